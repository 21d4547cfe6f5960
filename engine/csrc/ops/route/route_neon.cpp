// Router scores, 4 lanes at a time; sums keep 16 lanes in four registers.
#include "ops/route/route.h"

#include <arm_neon.h>

#include "ops/swiglu/exp_neon.h"

namespace coli {

namespace {

// Up to 16 values, the other lanes `fill`.
void load_lanes(const float* x, int64_t left, float fill, float32x4_t* v) {
  float lanes[16];
  for (int64_t l = 0; l < 16; ++l) lanes[l] = l < left ? x[l] : fill;
  for (int j = 0; j < 4; ++j) v[j] = vld1q_f32(lanes + 4 * j);
}

void store_lanes(float* out, int64_t left, const float32x4_t* v) {
  float lanes[16];
  for (int j = 0; j < 4; ++j) vst1q_f32(lanes + 4 * j, v[j]);
  for (int64_t l = 0; l < 16 && l < left; ++l) out[l] = lanes[l];
}

float max_of_row(const float* x, int64_t n) {
  const float lowest = -__builtin_inff();
  float32x4_t max = vdupq_n_f32(lowest);
  for (int64_t i = 0; i < n; i += 16) {
    float32x4_t v[4];
    load_lanes(x + i, n - i, lowest, v);
    // A comparison with NaN is false and keeps max.
    for (int j = 0; j < 4; ++j) max = vbslq_f32(vcgtq_f32(v[j], max), v[j], max);
  }
  return vmaxvq_f32(max);
}

// Adds 16 lanes in halves: 16 -> 8 -> 4 -> 2 -> 1.
float sum_lanes(const float32x4_t* v) {
  const float32x4_t four = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

}  // namespace

void sigmoid_row_neon(const float* x, int64_t n, float* out) {
  const float32x4_t one = vdupq_n_f32(1.0F);
  for (int64_t i = 0; i < n; i += 16) {
    float32x4_t v[4];
    load_lanes(x + i, n - i, 0.0F, v);
    for (int j = 0; j < 4; ++j) v[j] = vdivq_f32(one, vaddq_f32(one, exp_neon(vnegq_f32(v[j]))));
    store_lanes(out + i, n - i, v);
  }
}

void softmax_row_neon(const float* x, int64_t n, float* out) {
  const float lowest = -__builtin_inff();
  const float32x4_t max = vdupq_n_f32(max_of_row(x, n));
  float32x4_t lanes[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
  for (int64_t i = 0; i < n; i += 16) {
    float32x4_t v[4];
    load_lanes(x + i, n - i, lowest, v);  // padding lanes add exp(-inf) = 0
    for (int j = 0; j < 4; ++j) {
      v[j] = exp_neon(vsubq_f32(v[j], max));
      lanes[j] = vaddq_f32(lanes[j], v[j]);
    }
    store_lanes(out + i, n - i, v);
  }
  const float sum = sum_lanes(lanes);
  for (int64_t i = 0; i < n; ++i) out[i] = sum == sum ? out[i] / sum : __builtin_nanf("");
}

}  // namespace coli
