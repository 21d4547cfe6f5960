// Integer weights times f32 rows: weights are decoded in registers and meet 4 rows at a time.
//
// A 32-bit lane holds 4 inputs of one output row, so a shift and a mask give the 16 weights of an
// input, and input k adds to accumulator k mod 4.
#include "ops/matmul_int/matmul_int.h"
#include "ops/matmul_int/tile_avx512.h"

namespace coli {
namespace {

// Scales and minimums (or the zero point) of one weight group.
struct GroupParams {
  __m512 scales;
  __m512 mins;
  __m512i zero;
  __m512i levels;
  bool has_mins;
};

template <int kRows>
struct Rows {
  const float* x[kRows];
  __m512 acc[kRows][4];
};

template <Code kCode>
COLI_INLINE GroupParams load_group(const IntMatrix& w, int64_t tile, int64_t group) {
  GroupParams params = {};
  params.scales = load_group_scales<kCode>(w, tile_stream(w, w.scales, tile), group * kTile);
  params.has_mins = w.mins != nullptr;
  params.zero = _mm512_set1_epi32(w.zero);
  params.levels = load_levels<kCode>(w);
  if (params.has_mins) {
    params.mins = load_group_scales<kCode>(w, tile_stream(w, w.mins, tile), group * kTile);
  }
  return params;
}

COLI_INLINE __m512 decode_weights(__m512i codes, const GroupParams& params) {
  if (params.has_mins) {
    return _mm512_fmadd_ps(params.scales, _mm512_cvtepi32_ps(codes), params.mins);
  }
  return _mm512_mul_ps(params.scales, _mm512_cvtepi32_ps(_mm512_sub_epi32(codes, params.zero)));
}

// The 16 codes, or levels, of input `i` of the 8 inputs at `k`.
template <Code kCode>
COLI_INLINE __m512i load_input(const uint8_t* codes, int64_t k, int i, __m512i levels) {
  const uint8_t* at = codes + k * 2 * code_bits(kCode) + (kCode == Code::kByte ? i / 4 * 64 : 0);
  const int shift = i % 4 * 8 + (kCode != Code::kByte ? i / 4 * 4 : 0);
  const __m512i words = _mm512_loadu_si512(at);
  const __m512i mask = _mm512_set1_epi32(kCode == Code::kByte ? 255 : 15);
  const __m512i number =
      _mm512_and_si512(_mm512_srli_epi32(words, static_cast<unsigned>(shift)), mask);
  if (kCode != Code::kLevel) return number;
  // A set top bit makes the shuffle give zero: the upper bytes of each lane.
  const __m512i empty = _mm512_set1_epi32(static_cast<int32_t>(0x80808000U));
  return _mm512_shuffle_epi8(levels, _mm512_or_si512(number, empty));
}

template <Code kCode, int kRows>
COLI_INLINE void add_input(const uint8_t* codes, int64_t k, int i, const GroupParams& params,
                           Rows<kRows>& rows) {
  const __m512 weights = decode_weights(load_input<kCode>(codes, k, i, params.levels), params);
  for (int r = 0; r < kRows; ++r) {
    __m512& acc = rows.acc[r][i % 4];
    acc = _mm512_fmadd_ps(weights, _mm512_set1_ps(rows.x[r][k + i]), acc);
  }
}

template <Code kCode, int kRows>
void multiply_block(const IntMatrix& w, const FloatRows& a, const MatmulRange& range, int64_t tile,
                    int64_t row) {
  Rows<kRows> rows = {};
  for (int r = 0; r < kRows; ++r) rows.x[r] = a.x + source_row(range, row + r) * a.ldx;
  const uint8_t* codes = tile_codes(w, tile);
  for (int64_t begin = 0; begin < w.num_inputs; begin += w.group) {
    const GroupParams params = load_group<kCode>(w, tile, begin / w.group);
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
    const __m512 even = _mm512_add_ps(rows.acc[r][0], rows.acc[r][1]);
    const __m512 odd = _mm512_add_ps(rows.acc[r][2], rows.acc[r][3]);
    store_outputs(w, range, tile, row + r, _mm512_add_ps(even, odd));
  }
}

template <Code kCode>
void multiply_range(const IntMatrix& w, const FloatRows& a, const MatmulRange& range) {
  for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
    int64_t row = range.row_begin;
    for (; row + 4 <= range.row_end; row += 4) multiply_block<kCode, 4>(w, a, range, tile, row);
    for (; row < range.row_end; ++row) multiply_block<kCode, 1>(w, a, range, tile, row);
  }
}

}  // namespace

void matmul_int_float_avx512(const IntMatrix& w, const FloatRows& a, const MatmulRange& range) {
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
