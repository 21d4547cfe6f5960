// Root-mean-square normalization, 4 lanes at a time; the 16 double lanes take eight registers.
#include "ops/norm/norm.h"

#include <arm_neon.h>

namespace coli {

namespace {

// Adds the squares of 16 values to 16 double lanes.
void add_squares(const float* x, float64x2_t* acc) {
  for (int j = 0; j < 4; ++j) {
    const float32x4_t v = vld1q_f32(x + 4 * j);
    const float64x2_t a = vcvt_f64_f32(vget_low_f32(v));
    const float64x2_t b = vcvt_high_f64_f32(v);
    acc[2 * j] = vfmaq_f64(acc[2 * j], a, a);
    acc[2 * j + 1] = vfmaq_f64(acc[2 * j + 1], b, b);
  }
}

double sum_of_squares(const float* x, int64_t n) {
  float64x2_t acc[8];
  for (int j = 0; j < 8; ++j) acc[j] = vdupq_n_f64(0.0);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) add_squares(x + i, acc);
  if (i < n) {
    float tail[16] = {};
    for (int64_t l = 0; l < n - i; ++l) tail[l] = x[i + l];
    add_squares(tail, acc);
  }
  for (int j = 0; j < 4; ++j) acc[j] = vaddq_f64(acc[j], acc[j + 4]);
  const float64x2_t two = vaddq_f64(vaddq_f64(acc[0], acc[2]), vaddq_f64(acc[1], acc[3]));
  return vgetq_lane_f64(two, 0) + vgetq_lane_f64(two, 1);
}

double square_root(double x) { return vgetq_lane_f64(vsqrtq_f64(vdupq_n_f64(x)), 0); }

}  // namespace

void rms_norm_row_neon(const float* x, const float* weight, int64_t n, float eps, float* out) {
  const double mean = sum_of_squares(x, n) / static_cast<double>(n);
  const double root = square_root(mean + static_cast<double>(eps));
  const float r = static_cast<float>(1.0 / root);
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const float32x4_t scaled = vmulq_n_f32(vld1q_f32(x + i), r);
    vst1q_f32(out + i, vmulq_f32(scaled, vld1q_f32(weight + i)));
  }
  for (; i < n; ++i) out[i] = (x[i] * r) * weight[i];
}

}  // namespace coli
