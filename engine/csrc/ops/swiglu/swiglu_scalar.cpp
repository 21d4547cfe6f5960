// Gated activation and scaled addition: the definition every other variant matches bit for bit.
#include "ops/swiglu/swiglu.h"

#include <cmath>

#include "ops/swiglu/exp_scalar.h"

namespace coli {

void swiglu_row_scalar(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float silu = gate[i] / (1.0F + exp_scalar(-gate[i]));
    out[i] = silu * up[i];
  }
}

void swiglu_clamped_row_scalar(const float* gate, const float* up, int64_t n,
                               const SwigluClamp& clamp, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = gate[i] > clamp.limit ? clamp.limit : gate[i];
    float u = up[i] > clamp.limit ? clamp.limit : up[i];
    u = u < -clamp.limit ? -clamp.limit : u;
    const float gated = g / (1.0F + exp_scalar(-(clamp.alpha * g)));
    out[i] = (u + 1.0F) * gated;
  }
}

void axpy_row_scalar(float a, const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = std::fma(a, x[i], y[i]);
}

}  // namespace coli
