// Router scores: the definition every other variant matches bit for bit.
#include "ops/route/route.h"

#include <cmath>

#include "ops/swiglu/exp_scalar.h"

namespace coli {

namespace {

// Adds 16 lanes in halves: 16 -> 8 -> 4 -> 2 -> 1.
float sum_lanes(float* lanes) {
  for (int width = 8; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

}  // namespace

void sigmoid_row_scalar(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = 1.0F / (1.0F + exp_scalar(-x[i]));
}

void softmax_row_scalar(const float* x, int64_t n, float* out) {
  float max = -HUGE_VALF;
  for (int64_t i = 0; i < n; ++i) max = x[i] > max ? x[i] : max;
  float lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) {
    out[i] = exp_scalar(x[i] - max);
    lanes[i % 16] += out[i];
  }
  const float sum = sum_lanes(lanes);
  if (sum != sum) {
    for (int64_t i = 0; i < n; ++i) out[i] = __builtin_nanf("");
    return;
  }
  for (int64_t i = 0; i < n; ++i) out[i] = out[i] / sum;
}

}  // namespace coli
