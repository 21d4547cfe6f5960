// Gated activation and scaled addition, 4 lanes at a time.
#include "ops/swiglu/swiglu.h"

#include <arm_neon.h>

#include "ops/swiglu/exp_neon.h"

namespace coli {

namespace {

float32x4_t swiglu(float32x4_t z, float32x4_t up) {
  const float32x4_t denominator = vaddq_f32(vdupq_n_f32(1.0F), exp_neon(vnegq_f32(z)));
  return vmulq_f32(vdivq_f32(z, denominator), up);
}

// A comparison with NaN is false and keeps it.
float32x4_t swiglu_clamped(float32x4_t z, float32x4_t up, const SwigluClamp& clamp) {
  const float32x4_t one = vdupq_n_f32(1.0F);
  const float32x4_t high = vdupq_n_f32(clamp.limit);
  const float32x4_t low = vdupq_n_f32(-clamp.limit);
  const float32x4_t g = vbslq_f32(vcgtq_f32(z, high), high, z);
  float32x4_t u = vbslq_f32(vcgtq_f32(up, high), high, up);
  u = vbslq_f32(vcltq_f32(u, low), low, u);
  const float32x4_t negative = vnegq_f32(vmulq_f32(vdupq_n_f32(clamp.alpha), g));
  const float32x4_t gated = vdivq_f32(g, vaddq_f32(one, exp_neon(negative)));
  return vmulq_f32(vaddq_f32(u, one), gated);
}

// Fewer than 4 values, the other lanes zero.
float32x4_t load_tail(const float* x, int64_t left) {
  float lanes[4] = {};
  for (int64_t i = 0; i < left; ++i) lanes[i] = x[i];
  return vld1q_f32(lanes);
}

void store_tail(float* out, float32x4_t value, int64_t left) {
  float lanes[4];
  vst1q_f32(lanes, value);
  for (int64_t i = 0; i < left; ++i) out[i] = lanes[i];
}

}  // namespace

void swiglu_row_neon(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    vst1q_f32(out + i, swiglu(vld1q_f32(gate + i), vld1q_f32(up + i)));
  }
  const int64_t left = n - i;
  if (left > 0) {
    store_tail(out + i, swiglu(load_tail(gate + i, left), load_tail(up + i, left)), left);
  }
}

void swiglu_clamped_row_neon(const float* gate, const float* up, int64_t n,
                             const SwigluClamp& clamp, float* out) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    vst1q_f32(out + i, swiglu_clamped(vld1q_f32(gate + i), vld1q_f32(up + i), clamp));
  }
  const int64_t left = n - i;
  if (left > 0) {
    const float32x4_t z = load_tail(gate + i, left);
    store_tail(out + i, swiglu_clamped(z, load_tail(up + i, left), clamp), left);
  }
}

void axpy_row_neon(float a, const float* x, int64_t n, float* y) {
  const float32x4_t scale = vdupq_n_f32(a);
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    vst1q_f32(y + i, vfmaq_f32(vld1q_f32(y + i), scale, vld1q_f32(x + i)));
  }
  const int64_t left = n - i;
  if (left > 0) {
    const float32x4_t sum = vfmaq_f32(load_tail(y + i, left), scale, load_tail(x + i, left));
    store_tail(y + i, sum, left);
  }
}

}  // namespace coli
