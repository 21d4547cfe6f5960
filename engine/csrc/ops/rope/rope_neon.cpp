// Rotary position embedding, 4 pairs at a time.
#include "ops/rope/rope.h"

#include <arm_neon.h>

namespace coli {

namespace {

void rotate_one(float* first, float* second, float cos, float sin) {
  const float a = *first;
  const float b = *second;
  *first = __builtin_fmaf(a, cos, -(b * sin));
  *second = __builtin_fmaf(b, cos, a * sin);
}

void rotate(float32x4_t* first, float32x4_t* second, const float* cos, const float* sin) {
  const float32x4_t a = *first;
  const float32x4_t b = *second;
  const float32x4_t c = vld1q_f32(cos);
  const float32x4_t s = vld1q_f32(sin);
  *first = vfmaq_f32(vnegq_f32(vmulq_f32(b, s)), a, c);
  *second = vfmaq_f32(vmulq_f32(a, s), b, c);
}

}  // namespace

void rope_half_row_neon(float* x, const float* cos, const float* sin, int64_t rotated) {
  const int64_t half = rotated / 2;
  int64_t j = 0;
  for (; j + 4 <= half; j += 4) {
    float32x4_t a = vld1q_f32(x + j);
    float32x4_t b = vld1q_f32(x + half + j);
    rotate(&a, &b, cos + j, sin + j);
    vst1q_f32(x + j, a);
    vst1q_f32(x + half + j, b);
  }
  for (; j < half; ++j) rotate_one(x + j, x + half + j, cos[j], sin[j]);
}

void rope_interleaved_row_neon(float* x, const float* cos, const float* sin, int64_t rotated) {
  int64_t j = 0;
  for (; 2 * j + 8 <= rotated; j += 4) {
    float32x4x2_t pairs = vld2q_f32(x + 2 * j);
    rotate(&pairs.val[0], &pairs.val[1], cos + j, sin + j);
    vst2q_f32(x + 2 * j, pairs);
  }
  for (; j < rotated / 2; ++j) rotate_one(x + 2 * j, x + 2 * j + 1, cos[j], sin[j]);
}

}  // namespace coli
