// Integer weights times f32 rows with AVX2: half a tile of weights is decoded and meets 2 rows.
//
// A 32-bit lane holds 4 inputs of one output row, so a shift and a mask give the 8 weights of an
// input, and input k adds to accumulator k mod 4.
#include "ops/matmul_int/matmul_int.h"
#include "ops/matmul_int/tile_avx2.h"

namespace coli {
namespace {

// Scales and minimums (or the zero point) of one weight group.
struct GroupParams {
  __m256 scales;
  __m256 mins;
  __m256i zero;
  __m256i levels;
  bool has_mins;
};

template <int kRows>
struct Rows {
  const float* x[kRows];
  __m256 acc[kRows][4];
};

// Half a tile, and the index of its first output.
struct Half {
  int64_t tile;
  int64_t offset;  // 0 or 8
};

template <Code kCode>
COLI_INLINE GroupParams load_group(const IntMatrix& w, const Half& half, int64_t group) {
  const int64_t index = group * kTile + half.offset;
  GroupParams params = {};
  params.scales = load_group_scales<kCode>(w, tile_stream(w, w.scales, half.tile), index);
  params.has_mins = w.mins != nullptr;
  params.zero = _mm256_set1_epi32(w.zero);
  params.levels = load_levels<kCode>(w);
  if (params.has_mins) {
    params.mins = load_group_scales<kCode>(w, tile_stream(w, w.mins, half.tile), index);
  }
  return params;
}

COLI_INLINE __m256 decode_weights(__m256i codes, const GroupParams& params) {
  if (params.has_mins) {
    return _mm256_fmadd_ps(params.scales, _mm256_cvtepi32_ps(codes), params.mins);
  }
  return _mm256_mul_ps(params.scales, _mm256_cvtepi32_ps(_mm256_sub_epi32(codes, params.zero)));
}

// The 8 codes, or levels, of input `i` of the 8 inputs at `k`.
template <Code kCode>
COLI_INLINE __m256i load_input(const uint8_t* codes, int64_t k, int i, __m256i levels) {
  const uint8_t* at = codes + k * 2 * code_bits(kCode) + (kCode == Code::kByte ? i / 4 * 64 : 0);
  const int shift = i % 4 * 8 + (kCode != Code::kByte ? i / 4 * 4 : 0);
  const __m256i mask = _mm256_set1_epi32(kCode == Code::kByte ? 255 : 15);
  const __m256i number = _mm256_and_si256(_mm256_srli_epi32(load_words(at), shift), mask);
  if (kCode != Code::kLevel) return number;
  // A set top bit makes the shuffle give zero: the upper bytes of each lane.
  const __m256i empty = _mm256_set1_epi32(static_cast<int32_t>(0x80808000U));
  return _mm256_shuffle_epi8(levels, _mm256_or_si256(number, empty));
}

template <Code kCode, int kRows>
COLI_INLINE void add_input(const uint8_t* codes, int64_t k, int i, const GroupParams& params,
                           Rows<kRows>& rows) {
  const __m256 weights = decode_weights(load_input<kCode>(codes, k, i, params.levels), params);
  for (int r = 0; r < kRows; ++r) {
    __m256& acc = rows.acc[r][i % 4];
    acc = _mm256_fmadd_ps(weights, _mm256_set1_ps(rows.x[r][k + i]), acc);
  }
}

template <Code kCode, int kRows>
void multiply_half(const IntMatrix& w, const FloatRows& a, const MatmulRange& range,
                   const Half& half, int64_t row) {
  Rows<kRows> rows = {};
  for (int r = 0; r < kRows; ++r) rows.x[r] = a.x + source_row(range, row + r) * a.ldx;
  const uint8_t* codes = tile_codes(w, half.tile) + half.offset * 4;
  for (int64_t begin = 0; begin < w.num_inputs; begin += w.group) {
    const GroupParams params = load_group<kCode>(w, half, begin / w.group);
    const int64_t end = begin + w.group < w.num_inputs ? begin + w.group : w.num_inputs;
    int64_t k = begin;
    for (; k + 8 <= end; k += 8) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) add_input<kCode, kRows>(codes, k, i, params, rows);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 7; ++i) {
      if (k + i < end) add_input<kCode, kRows>(codes, k, i, params, rows);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const __m256 even = _mm256_add_ps(rows.acc[r][0], rows.acc[r][1]);
    const __m256 odd = _mm256_add_ps(rows.acc[r][2], rows.acc[r][3]);
    const int64_t first = half.tile * kTile + half.offset;
    store_outputs(w, range, first, row + r, _mm256_add_ps(even, odd));
  }
}

template <Code kCode>
void multiply_range(const IntMatrix& w, const FloatRows& a, const MatmulRange& range) {
  for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
    for (int64_t offset = 0; offset < kTile; offset += kHalfTile) {
      const Half half = {tile, offset};
      int64_t row = range.row_begin;
      for (; row + 2 <= range.row_end; row += 2) multiply_half<kCode, 2>(w, a, range, half, row);
      if (row < range.row_end) multiply_half<kCode, 1>(w, a, range, half, row);
    }
  }
}

}  // namespace

void matmul_int_float_avx2(const IntMatrix& w, const FloatRows& a, const MatmulRange& range) {
  switch (code_of(w)) {
    case Code::kNibble:
      return multiply_range<Code::kNibble>(w, a, range);
    case Code::kByte:
      return multiply_range<Code::kByte>(w, a, range);
    case Code::kLevel:
      return multiply_range<Code::kLevel>(w, a, range);
  }
}

}  // namespace coli
