// 16 floats that advance together, with 128-bit vectors: four registers.
//
// All of it has internal linkage: nothing built for one instruction set is shared with another.
#pragma once

#include <arm_neon.h>

#include "ops/swiglu/exp_neon.h"

namespace coli {
namespace {

struct Lanes {
  float32x4_t a;
  float32x4_t b;
  float32x4_t c;
  float32x4_t d;
};

inline Lanes load(const float* from) {
  return {vld1q_f32(from), vld1q_f32(from + 4), vld1q_f32(from + 8), vld1q_f32(from + 12)};
}

inline float32x4_t widen_quarter(const uint16_t* from) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(from), 16));
}

// 16 bf16 as floats.
inline Lanes widen(const uint16_t* from) {
  return {widen_quarter(from), widen_quarter(from + 4), widen_quarter(from + 8),
          widen_quarter(from + 12)};
}

inline void store(float* to, const Lanes& x) {
  vst1q_f32(to, x.a);
  vst1q_f32(to + 4, x.b);
  vst1q_f32(to + 8, x.c);
  vst1q_f32(to + 12, x.d);
}

inline Lanes splat(float x) {
  const float32x4_t all = vdupq_n_f32(x);
  return {all, all, all, all};
}

inline Lanes fmadd(const Lanes& x, const Lanes& y, const Lanes& sum) {
  return {vfmaq_f32(sum.a, x.a, y.a), vfmaq_f32(sum.b, x.b, y.b), vfmaq_f32(sum.c, x.c, y.c),
          vfmaq_f32(sum.d, x.d, y.d)};
}

inline Lanes add(const Lanes& x, const Lanes& y) {
  return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b), vaddq_f32(x.c, y.c), vaddq_f32(x.d, y.d)};
}

inline Lanes sub(const Lanes& x, const Lanes& y) {
  return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b), vsubq_f32(x.c, y.c), vsubq_f32(x.d, y.d)};
}

inline Lanes mul(const Lanes& x, const Lanes& y) {
  return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b), vmulq_f32(x.c, y.c), vmulq_f32(x.d, y.d)};
}

inline Lanes divide(const Lanes& x, const Lanes& y) {
  return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b), vdivq_f32(x.c, y.c), vdivq_f32(x.d, y.d)};
}

inline Lanes larger(const Lanes& x, const Lanes& y) {
  return {vmaxq_f32(x.a, y.a), vmaxq_f32(x.b, y.b), vmaxq_f32(x.c, y.c), vmaxq_f32(x.d, y.d)};
}

inline Lanes exp_not_positive(const Lanes& x) {
  return {exp_neon(x.a), exp_neon(x.b), exp_neon(x.c), exp_neon(x.d)};
}

inline float32x4_t keep_below(float32x4_t x, float first, float n, float fill) {
  const float steps[] = {0.0F, 1.0F, 2.0F, 3.0F};
  const float32x4_t lane = vaddq_f32(vld1q_f32(steps), vdupq_n_f32(first));
  return vbslq_f32(vcltq_f32(lane, vdupq_n_f32(n)), x, vdupq_n_f32(fill));
}

inline Lanes keep_first(const Lanes& x, int n, float fill) {
  const float count = static_cast<float>(n);
  return {keep_below(x.a, 0.0F, count, fill), keep_below(x.b, 4.0F, count, fill),
          keep_below(x.c, 8.0F, count, fill), keep_below(x.d, 12.0F, count, fill)};
}

inline float32x4_t fill_below(float32x4_t x, float lane0, float n, float fill) {
  const float steps[] = {0.0F, 1.0F, 2.0F, 3.0F};
  const float32x4_t lane = vaddq_f32(vld1q_f32(steps), vdupq_n_f32(lane0));
  return vbslq_f32(vcltq_f32(lane, vdupq_n_f32(n)), vdupq_n_f32(fill), x);
}

// The lanes from n on; `fill` in those before.
inline Lanes keep_from(const Lanes& x, int n, float fill) {
  const float first = static_cast<float>(n);
  return {fill_below(x.a, 0.0F, first, fill), fill_below(x.b, 4.0F, first, fill),
          fill_below(x.c, 8.0F, first, fill), fill_below(x.d, 12.0F, first, fill)};
}

inline float largest_lane(const Lanes& x) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.a, x.c), vmaxq_f32(x.b, x.d)));
}

inline float sum_lanes(const Lanes& x) {
  const float32x4_t x4 = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
  const float32x2_t x2 = vadd_f32(vget_low_f32(x4), vget_high_f32(x4));
  return vget_lane_f32(x2, 0) + vget_lane_f32(x2, 1);
}

}  // namespace
}  // namespace coli
