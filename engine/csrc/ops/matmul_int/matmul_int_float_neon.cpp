// Integer weights times f32 rows with NEON: a quarter tile of weights is decoded and meets 4 rows.
//
// A 32-bit lane holds 4 inputs of one output row, so a shift and a mask give the 4 weights of an
// input, and input k adds to accumulator k mod 4.
#include "ops/matmul_int/matmul_int.h"
#include "ops/matmul_int/tile_neon.h"

namespace coli {
namespace {

// Scales and minimums (or the zero point) of one weight group.
struct GroupParams {
  float32x4_t scales;
  float32x4_t mins;
  int32x4_t zero;
  uint8x16_t levels;
  bool has_mins;
};

template <int kRows>
struct Rows {
  const float* x[kRows];
  float32x4_t acc[kRows][4];
};

// A quarter of a tile, and the index of its first output.
struct Quarter {
  int64_t tile;
  int64_t offset;  // 0, 4, 8 or 12
};

template <Code kCode>
COLI_INLINE GroupParams load_group(const IntMatrix& w, const Quarter& quarter, int64_t group) {
  const int64_t index = group * kTile + quarter.offset;
  GroupParams params = {};
  params.scales = load_group_scales<kCode>(w, tile_stream(w, w.scales, quarter.tile), index);
  params.has_mins = w.mins != nullptr;
  params.zero = vdupq_n_s32(w.zero);
  params.levels = load_levels<kCode>(w);
  if (params.has_mins) {
    params.mins = load_group_scales<kCode>(w, tile_stream(w, w.mins, quarter.tile), index);
  }
  return params;
}

COLI_INLINE float32x4_t decode_weights(int32x4_t codes, const GroupParams& params) {
  if (params.has_mins) return vfmaq_f32(params.mins, params.scales, vcvtq_f32_s32(codes));
  return vmulq_f32(params.scales, vcvtq_f32_s32(vsubq_s32(codes, params.zero)));
}

// The 4 codes, or levels, of input `i` of the 8 inputs at `k`.
template <Code kCode>
COLI_INLINE int32x4_t load_input(const uint8_t* codes, int64_t k, int i, uint8x16_t levels) {
  const uint8_t* at = codes + k * 2 * code_bits(kCode) + (kCode == Code::kByte ? i / 4 * 64 : 0);
  const int shift = i % 4 * 8 + (kCode != Code::kByte ? i / 4 * 4 : 0);
  const uint32x4_t words = vreinterpretq_u32_u8(vld1q_u8(at));
  const uint32x4_t shifted = vshlq_u32(words, vdupq_n_s32(-shift));
  const uint32x4_t number = vandq_u32(shifted, vdupq_n_u32(kCode == Code::kByte ? 255 : 15));
  if (kCode != Code::kLevel) return vreinterpretq_s32_u32(number);
  // An index beyond the table gives zero: the upper bytes of each lane.
  const uint8x16_t lookup = vreinterpretq_u8_u32(vorrq_u32(number, vdupq_n_u32(0xFFFFFF00U)));
  return vreinterpretq_s32_u8(vqtbl1q_u8(levels, lookup));
}

template <Code kCode, int kRows>
COLI_INLINE void add_input(const uint8_t* codes, int64_t k, int i, const GroupParams& params,
                           Rows<kRows>& rows) {
  const float32x4_t weights = decode_weights(load_input<kCode>(codes, k, i, params.levels), params);
  for (int r = 0; r < kRows; ++r) {
    float32x4_t& acc = rows.acc[r][i % 4];
    acc = vfmaq_n_f32(acc, weights, rows.x[r][k + i]);
  }
}

template <Code kCode, int kRows>
void multiply_quarter(const IntMatrix& w, const FloatRows& a, const MatmulRange& range,
                      const Quarter& quarter, int64_t row) {
  Rows<kRows> rows = {};
  for (int r = 0; r < kRows; ++r) rows.x[r] = a.x + source_row(range, row + r) * a.ldx;
  const uint8_t* codes = tile_codes(w, quarter.tile) + quarter.offset * 4;
  for (int64_t begin = 0; begin < w.num_inputs; begin += w.group) {
    const GroupParams params = load_group<kCode>(w, quarter, begin / w.group);
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
    const float32x4_t even = vaddq_f32(rows.acc[r][0], rows.acc[r][1]);
    const float32x4_t odd = vaddq_f32(rows.acc[r][2], rows.acc[r][3]);
    const int64_t first = quarter.tile * kTile + quarter.offset;
    store_outputs(w, range, first, row + r, vaddq_f32(even, odd));
  }
}

template <Code kCode>
void multiply_range(const IntMatrix& w, const FloatRows& a, const MatmulRange& range) {
  for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
    for (int64_t offset = 0; offset < kTile; offset += kQuarterTile) {
      const Quarter quarter = {tile, offset};
      int64_t row = range.row_begin;
      for (; row + 4 <= range.row_end; row += 4) {
        multiply_quarter<kCode, 4>(w, a, range, quarter, row);
      }
      for (; row < range.row_end; ++row) multiply_quarter<kCode, 1>(w, a, range, quarter, row);
    }
  }
}

}  // namespace

void matmul_int_float_neon(const IntMatrix& w, const FloatRows& a, const MatmulRange& range) {
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
