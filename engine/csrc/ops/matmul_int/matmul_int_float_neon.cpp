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

COLI_INLINE GroupParams load_group(const IntMatrix& w, const Quarter& quarter, int64_t group) {
  const bool is_half_float = w.scale_f16 != 0;
  const int64_t index = group * kTile + quarter.offset;
  GroupParams params = {};
  params.scales = load_scales(tile_stream(w, w.scales, quarter.tile), index, is_half_float);
  params.has_mins = w.mins != nullptr;
  params.zero = vdupq_n_s32(w.zero);
  if (params.has_mins) {
    params.mins = load_scales(tile_stream(w, w.mins, quarter.tile), index, is_half_float);
  }
  return params;
}

COLI_INLINE float32x4_t decode_weights(int32x4_t codes, const GroupParams& params) {
  if (params.has_mins) return vfmaq_f32(params.mins, params.scales, vcvtq_f32_s32(codes));
  return vmulq_f32(params.scales, vcvtq_f32_s32(vsubq_s32(codes, params.zero)));
}

// The 4 codes of input `i` of the 8 inputs at `k`.
template <int kBits>
COLI_INLINE int32x4_t load_input(const uint8_t* codes, int64_t k, int i) {
  const uint8_t* at = codes + k * 2 * kBits + (kBits == 8 ? i / 4 * 64 : 0);
  const int shift = i % 4 * 8 + (kBits == 4 ? i / 4 * 4 : 0);
  const uint32x4_t words = vreinterpretq_u32_u8(vld1q_u8(at));
  const uint32x4_t shifted = vshlq_u32(words, vdupq_n_s32(-shift));
  return vreinterpretq_s32_u32(vandq_u32(shifted, vdupq_n_u32(kBits == 8 ? 255 : 15)));
}

template <int kBits, int kRows>
COLI_INLINE void add_input(const uint8_t* codes, int64_t k, int i, const GroupParams& params,
                           Rows<kRows>& rows) {
  const float32x4_t weights = decode_weights(load_input<kBits>(codes, k, i), params);
  for (int r = 0; r < kRows; ++r) {
    float32x4_t& acc = rows.acc[r][i % 4];
    acc = vfmaq_n_f32(acc, weights, rows.x[r][k + i]);
  }
}

template <int kBits, int kRows>
void multiply_quarter(const IntMatrix& w, const FloatRows& a, const MatmulRange& range,
                      const Quarter& quarter, int64_t row) {
  Rows<kRows> rows = {};
  for (int r = 0; r < kRows; ++r) rows.x[r] = a.x + source_row(range, row + r) * a.ldx;
  const uint8_t* codes = tile_codes(w, quarter.tile) + quarter.offset * 4;
  for (int64_t begin = 0; begin < w.num_inputs; begin += w.group) {
    const GroupParams params = load_group(w, quarter, begin / w.group);
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
    const float32x4_t even = vaddq_f32(rows.acc[r][0], rows.acc[r][1]);
    const float32x4_t odd = vaddq_f32(rows.acc[r][2], rows.acc[r][3]);
    const int64_t first = quarter.tile * kTile + quarter.offset;
    store_outputs(w, range, first, row + r, vaddq_f32(even, odd));
  }
}

template <int kBits>
void multiply_range(const IntMatrix& w, const FloatRows& a, const MatmulRange& range) {
  for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
    for (int64_t offset = 0; offset < kTile; offset += kQuarterTile) {
      const Quarter quarter = {tile, offset};
      int64_t row = range.row_begin;
      for (; row + 4 <= range.row_end; row += 4) {
        multiply_quarter<kBits, 4>(w, a, range, quarter, row);
      }
      for (; row < range.row_end; ++row) multiply_quarter<kBits, 1>(w, a, range, quarter, row);
    }
  }
}

}  // namespace

void matmul_int_float_neon(const IntMatrix& w, const FloatRows& a, const MatmulRange& range) {
  w.bits == 4 ? multiply_range<4>(w, a, range) : multiply_range<8>(w, a, range);
}

}  // namespace coli
