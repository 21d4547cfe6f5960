// exp of 4 lanes for the NEON kernels; the formula and its accuracy are in exp.h.
#pragma once

#include <arm_neon.h>

#include "ops/swiglu/exp.h"

namespace coli {

static inline float32x4_t exp_neon(float32x4_t x) {
  const float32x4_t round = vdupq_n_f32(kExpRound);
  const float32x4_t one = vdupq_n_f32(1.0F);
  const float32x4_t t = vfmaq_f32(round, x, vdupq_n_f32(kExpLog2e));
  const float32x4_t n = vsubq_f32(t, round);
  float32x4_t r = vfmaq_f32(x, n, vdupq_n_f32(kExpMinusLn2Hi));
  r = vfmaq_f32(r, n, vdupq_n_f32(kExpMinusLn2Lo));
  float32x4_t p = vfmaq_f32(vdupq_n_f32(kExpC5), vdupq_n_f32(kExpC6), r);
  p = vfmaq_f32(vdupq_n_f32(kExpC4), p, r);
  p = vfmaq_f32(vdupq_n_f32(kExpC3), p, r);
  p = vfmaq_f32(vdupq_n_f32(kExpC2), p, r);
  p = vfmaq_f32(one, p, r);
  p = vfmaq_f32(one, p, r);
  const uint32x4_t scale = vshlq_n_u32(vreinterpretq_u32_f32(t), kExpShift);
  float32x4_t y = vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p), scale));
  y = vbslq_f32(vcltq_f32(x, vdupq_n_f32(kExpMin)), vdupq_n_f32(0.0F), y);
  y = vbslq_f32(vcgtq_f32(x, vdupq_n_f32(kExpMax)), vdupq_n_f32(__builtin_inff()), y);
  return vbslq_f32(vceqq_f32(x, x), y, x);
}

}  // namespace coli
