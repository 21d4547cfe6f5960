// Root-mean-square normalization: the definition every other variant matches bit for bit.
#include "ops/norm/norm.h"

#include <cmath>

namespace coli {

void rms_norm_row_scalar(const float* x, const float* weight, int64_t n, float eps, float* out) {
  double lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) {
    const double value = static_cast<double>(x[i]);
    lanes[i % 16] = std::fma(value, value, lanes[i % 16]);
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  const double mean = lanes[0] / static_cast<double>(n);
  const float r = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps)));
  for (int64_t i = 0; i < n; ++i) out[i] = (x[i] * r) * weight[i];
}

}  // namespace coli
