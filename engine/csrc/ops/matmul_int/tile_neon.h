// Pieces of a tile in 128-bit registers, for the NEON and i8mm sources only. A tile is four
// quarters of 4 output rows.
#pragma once

#include <arm_neon.h>

#include "ops/matmul_int/blocks.h"

namespace coli {

static constexpr int64_t kQuarterTile = 4;

// Activations kept in the L2 cache while all tiles pass over them.
static constexpr int64_t kPanelBytes = 256 << 10;

// Four scales or minimums from element `index` of a tile's stream.
COLI_INLINE float32x4_t load_scales(const uint8_t* stream, int64_t index, bool is_half_float) {
  if (is_half_float) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(stream + index * 2)));
  }
  return vreinterpretq_f32_u8(vld1q_u8(stream + index * 4));
}

// The same of bytes that stand for powers of two.
COLI_INLINE float32x4_t load_powers(const uint8_t* stream, int64_t index) {
  uint32_t word = 0;
  __builtin_memcpy(&word, stream + index, sizeof word);
  const uint8x8_t packed = vreinterpret_u8_u32(vdup_n_u32(word));
  const uint32x4_t bytes = vmovl_u16(vget_low_u16(vmovl_u8(packed)));
  const uint32x4_t one = vdupq_n_u32(1);
  const uint32x4_t normal = vshlq_n_u32(vsubq_u32(bytes, one), 23);
  const uint32x4_t least = vshlq_u32(vdupq_n_u32(kLeastPowerBits), vreinterpretq_s32_u32(bytes));
  return vreinterpretq_f32_u32(vbslq_u32(vcgtq_u32(bytes, one), normal, least));
}

// Four scales of whatever type a matrix of such codes may have.
template <Code kCode>
COLI_INLINE float32x4_t load_group_scales(const IntMatrix& w, const uint8_t* stream,
                                          int64_t index) {
  if (kCode == Code::kLevel && w.scale_e8m0 != 0) return load_powers(stream, index);
  return load_scales(stream, index, w.scale_f16 != 0);
}

// The levels of a matrix; nothing where its codes are the numbers themselves.
template <Code kCode>
COLI_INLINE uint8x16_t load_levels(const IntMatrix& w) {
  return kCode == Code::kLevel ? vld1q_u8(w.levels) : vdupq_n_u8(0);
}

// Inputs k..k+3 and k+4..k+7 of 4 output rows, one byte each: codes, or the levels they number.
template <Code kCode>
COLI_INLINE void load_codes(const uint8_t* codes, int64_t k, uint8x16_t levels, uint8x16_t* pair) {
  if (kCode == Code::kByte) {
    pair[0] = vld1q_u8(codes + k * 16);
    pair[1] = vld1q_u8(codes + k * 16 + 64);
    return;
  }
  const uint8x16_t both = vld1q_u8(codes + k * 8);
  pair[0] = vandq_u8(both, vdupq_n_u8(15));
  pair[1] = vshrq_n_u8(both, 4);
  if (kCode != Code::kLevel) return;
  pair[0] = vqtbl1q_u8(levels, pair[0]);
  pair[1] = vqtbl1q_u8(levels, pair[1]);
}

// One row's integer sums of 4 output rows become floats and join its results.
COLI_INLINE float32x4_t add_sums(float32x4_t acc, int32x4_t sums, float32x4_t scales,
                                 float act_scale) {
  return vfmaq_f32(acc, vcvtq_f32_s32(sums), vmulq_n_f32(scales, act_scale));
}

// Writes 4 results of a row from output `first` on, the padding outputs left out.
COLI_INLINE void store_outputs(const IntMatrix& w, const MatmulRange& range, int64_t first,
                               int64_t row, float32x4_t result) {
  const int64_t left = w.num_outputs - first;
  float* y = range.y + row * range.ldy + first;
  if (left >= kQuarterTile) {
    if (range.bias != nullptr) result = vaddq_f32(result, vld1q_f32(range.bias + first));
    if (range.add != 0) result = vaddq_f32(vld1q_f32(y), result);
    vst1q_f32(y, result);
    return;
  }
  float lanes[kQuarterTile];
  vst1q_f32(lanes, result);
  for (int64_t i = 0; i < left; ++i) {
    if (range.bias != nullptr) lanes[i] += range.bias[first + i];
    y[i] = range.add != 0 ? y[i] + lanes[i] : lanes[i];
  }
}

}  // namespace coli
