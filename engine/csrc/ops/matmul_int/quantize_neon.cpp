// Activation rows for NEON and i8mm: two signed byte planes, the high one first.
//
// value = 256 * high + low; each plane has padded_inputs bytes in input order. Fast numerics fill
// only the first plane.
#include "ops/matmul_int/matmul_int.h"
#include "ops/matmul_int/tile_neon.h"

namespace coli {
namespace {

// Integers of `count` inputs (32 or 64) sharing one scale, which is returned.
float quantize_group(const float* x, int64_t count, float limit, int16_t* values) {
  // Magnitude bits order like the values, and a NaN orders above infinity.
  uint32x4_t magnitude = vdupq_n_u32(0);
  for (int64_t i = 0; i < count; i += 4) {
    const uint32x4_t bits = vreinterpretq_u32_f32(vld1q_f32(x + i));
    magnitude = vmaxq_u32(magnitude, vandq_u32(bits, vdupq_n_u32(kMagnitudeMask)));
  }
  const uint32_t max_bits = vmaxvq_u32(magnitude);
  const float scale = vgetq_lane_f32(vreinterpretq_f32_u32(vdupq_n_u32(max_bits)), 0) / limit;
  const bool is_usable = scale > 0 && max_bits < kInfinityBits;
  const int32x4_t usable = vdupq_n_s32(is_usable ? -1 : 0);
  const int32x4_t bound = vdupq_n_s32(static_cast<int32_t>(limit));
  for (int64_t i = 0; i < count; i += 4) {
    const int32x4_t value = vcvtnq_s32_f32(vdivq_f32(vld1q_f32(x + i), vdupq_n_f32(scale)));
    const int32x4_t clamped = vmaxq_s32(vminq_s32(value, bound), vnegq_s32(bound));
    vst1_s16(values + i, vmovn_s32(vandq_s32(clamped, usable)));
  }
  return scale;
}

// Planes and sum of 16 values; without a second plane the values are bytes already.
int32_t store_values(const int16_t* values, bool has_planes, int64_t padded_inputs, uint8_t* data) {
  int32_t sum = 0;
  for (int64_t i = 0; i < kSumGroup; i += 8) {
    const int16x8_t value = vld1q_s16(values + i);
    const uint8x8_t low = vreinterpret_u8_s8(vmovn_s16(value));
    sum += vaddlvq_s16(value);
    if (has_planes) {
      const int8x8_t high = vshrn_n_s16(vaddq_s16(value, vdupq_n_s16(128)), 8);
      vst1_u8(data + i, vreinterpret_u8_s8(high));
      vst1_u8(data + padded_inputs + i, low);
    } else {
      vst1_u8(data + i, low);
    }
  }
  return sum;
}

}  // namespace

void quantize_row_neon(const float* x, int64_t num_inputs, int64_t padded_inputs, Numerics numerics,
                       uint8_t* data, float* scales, int32_t* sums) {
  const bool is_fast = numerics == Numerics::kFast;
  for (int64_t begin = 0; begin < padded_inputs; begin += kInputPad) {
    float padded[kInputPad];
    int16_t values[kInputPad];
    const float* inputs = x + begin;
    if (begin + kInputPad > num_inputs) {
      for (int64_t i = 0; i < kInputPad; ++i) {
        padded[i] = begin + i < num_inputs ? x[begin + i] : 0.0F;
      }
      inputs = padded;
    }
    if (is_fast) {
      scales[begin / 32] = quantize_group(inputs, 32, kFastLimit, values);
      scales[begin / 32 + 1] = quantize_group(inputs + 32, 32, kFastLimit, values + 32);
    } else {
      scales[begin / 64] = quantize_group(inputs, 64, kDefaultLimit, values);
    }
    for (int64_t i = 0; i < kInputPad; i += kSumGroup) {
      sums[(begin + i) / kSumGroup] =
          store_values(values + i, !is_fast, padded_inputs, data + begin + i);
    }
  }
}

}  // namespace coli
