// Root-mean-square normalization of one row.
//
// Lane l (of 16) sums the squares of x[l], x[l+16], ... in double with fma; the lanes are added in
// halves (l + 8, l + 4, l + 2, l + 1). r = (float)(1 / sqrt(sum / n + eps)), in double until the
// cast; out[i] = (x[i] * r) * weight[i] in f32. `out` may be x. Every variant gives the scalar
// variant's bits.
#pragma once

#include "core/pod.h"

namespace coli {

void rms_norm_row_scalar(const float* x, const float* weight, int64_t n, float eps, float* out);
void rms_norm_row_avx2(const float* x, const float* weight, int64_t n, float eps, float* out);
void rms_norm_row_avx512(const float* x, const float* weight, int64_t n, float eps, float* out);
void rms_norm_row_neon(const float* x, const float* weight, int64_t n, float eps, float* out);

}  // namespace coli
