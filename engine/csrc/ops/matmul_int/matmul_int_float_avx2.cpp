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

COLI_INLINE GroupParams load_group(const IntMatrix& w, const Half& half, int64_t group) {
  const bool is_half_float = w.scale_f16 != 0;
  const int64_t index = group * kTile + half.offset;
  GroupParams params = {};
  params.scales = load_scales(tile_stream(w, w.scales, half.tile), index, is_half_float);
  params.has_mins = w.mins != nullptr;
  params.zero = _mm256_set1_epi32(w.zero);
  if (params.has_mins) {
    params.mins = load_scales(tile_stream(w, w.mins, half.tile), index, is_half_float);
  }
  return params;
}

COLI_INLINE __m256 decode_weights(__m256i codes, const GroupParams& params) {
  if (params.has_mins) {
    return _mm256_fmadd_ps(params.scales, _mm256_cvtepi32_ps(codes), params.mins);
  }
  return _mm256_mul_ps(params.scales, _mm256_cvtepi32_ps(_mm256_sub_epi32(codes, params.zero)));
}

// The 8 codes of input `i` of the 8 inputs at `k`.
template <int kBits>
COLI_INLINE __m256i load_input(const uint8_t* codes, int64_t k, int i) {
  const uint8_t* at = codes + k * 2 * kBits + (kBits == 8 ? i / 4 * 64 : 0);
  const int shift = i % 4 * 8 + (kBits == 4 ? i / 4 * 4 : 0);
  const __m256i mask = _mm256_set1_epi32(kBits == 8 ? 255 : 15);
  return _mm256_and_si256(_mm256_srli_epi32(load_words(at), shift), mask);
}

template <int kBits, int kRows>
COLI_INLINE void add_input(const uint8_t* codes, int64_t k, int i, const GroupParams& params,
                           Rows<kRows>& rows) {
  const __m256 weights = decode_weights(load_input<kBits>(codes, k, i), params);
  for (int r = 0; r < kRows; ++r) {
    __m256& acc = rows.acc[r][i % 4];
    acc = _mm256_fmadd_ps(weights, _mm256_set1_ps(rows.x[r][k + i]), acc);
  }
}

template <int kBits, int kRows>
void multiply_half(const IntMatrix& w, const FloatRows& a, const MatmulRange& range,
                   const Half& half, int64_t row) {
  Rows<kRows> rows = {};
  for (int r = 0; r < kRows; ++r) rows.x[r] = a.x + source_row(range, row + r) * a.ldx;
  const uint8_t* codes = tile_codes(w, half.tile) + half.offset * 4;
  for (int64_t begin = 0; begin < w.num_inputs; begin += w.group) {
    const GroupParams params = load_group(w, half, begin / w.group);
    const int64_t end = begin + w.group < w.num_inputs ? begin + w.group : w.num_inputs;
    int64_t k = begin;
    for (; k + 8 <= end; k += 8) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) add_input<kBits, kRows>(codes, k, i, params, rows);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 7; ++i) {
      if (k + i < end) add_input<kBits, kRows>(codes, k, i, params, rows);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const __m256 even = _mm256_add_ps(rows.acc[r][0], rows.acc[r][1]);
    const __m256 odd = _mm256_add_ps(rows.acc[r][2], rows.acc[r][3]);
    const int64_t first = half.tile * kTile + half.offset;
    store_outputs(w, range, first, row + r, _mm256_add_ps(even, odd));
  }
}

template <int kBits>
void multiply_range(const IntMatrix& w, const FloatRows& a, const MatmulRange& range) {
  for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
    for (int64_t offset = 0; offset < kTile; offset += kHalfTile) {
      const Half half = {tile, offset};
      int64_t row = range.row_begin;
      for (; row + 2 <= range.row_end; row += 2) multiply_half<kBits, 2>(w, a, range, half, row);
      if (row < range.row_end) multiply_half<kBits, 1>(w, a, range, half, row);
    }
  }
}

}  // namespace

void matmul_int_float_avx2(const IntMatrix& w, const FloatRows& a, const MatmulRange& range) {
  w.bits == 4 ? multiply_range<4>(w, a, range) : multiply_range<8>(w, a, range);
}

}  // namespace coli
