// Short convolution, 4 channels at a time.
#include "ops/sconv/sconv.h"

#include <arm_neon.h>

namespace coli {

namespace {

// Up to 4 values, the other lanes zero.
float32x4_t load_some(const float* x, int64_t left) {
  if (left >= 4) return vld1q_f32(x);
  float lanes[4] = {};
  for (int64_t i = 0; i < left; ++i) lanes[i] = x[i];
  return vld1q_f32(lanes);
}

void store_some(float* out, int64_t left, float32x4_t value) {
  if (left >= 4) {
    vst1q_f32(out, value);
    return;
  }
  float lanes[4];
  vst1q_f32(lanes, value);
  for (int64_t i = 0; i < left; ++i) out[i] = lanes[i];
}

}  // namespace

void sconv_row_neon(const ConvRow& row) {
  for (int64_t c = 0; c < row.count; c += 4) {
    const int64_t left = row.count - c;
    float32x4_t sum = vdupq_n_f32(0.0F);
    float32x4_t input = sum;
    for (int64_t j = 0; j < row.num_taps; ++j) {
      input = load_some(row.inputs[j] + c, left);
      sum = vfmaq_f32(sum, load_some(row.weight + j * row.ldw + c, left), input);
    }
    float32x4_t y = vaddq_f32(input, sum);
    if (row.base != nullptr) y = vaddq_f32(load_some(row.base + c, left), y);
    store_some(row.out + c, left, y);
  }
}

}  // namespace coli
