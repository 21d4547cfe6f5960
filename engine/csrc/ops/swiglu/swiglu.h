// Gated activation and scaled addition over one row.
//
// swiglu_row: out[i] = silu(gate[i]) * up[i] with silu(z) = z / (1 + exp(-z)); one f32 rounding
//   per step, exp as in exp.h. silu(-inf) is NaN, as is any NaN input. `out` may be gate or up.
// swiglu_clamped_row: g = gate[i] or limit if that is less, u = up[i] kept within -limit..limit;
//   out[i] = (u + 1) * (g / (1 + exp(-(alpha * g)))), one f32 rounding per step. NaN gives NaN, and
//   so does g = -inf. `out` may be gate or up.
// axpy_row: y[i] = fma(a, x[i], y[i]).
// Every variant gives the scalar variant's bits.
#pragma once

#include "core/pod.h"

namespace coli {

void swiglu_row_scalar(const float* gate, const float* up, int64_t n, float* out);
void swiglu_row_avx2(const float* gate, const float* up, int64_t n, float* out);
void swiglu_row_avx512(const float* gate, const float* up, int64_t n, float* out);
void swiglu_row_neon(const float* gate, const float* up, int64_t n, float* out);

void swiglu_clamped_row_scalar(const float* gate, const float* up, int64_t n,
                               const SwigluClamp& clamp, float* out);
void swiglu_clamped_row_avx2(const float* gate, const float* up, int64_t n,
                             const SwigluClamp& clamp, float* out);
void swiglu_clamped_row_avx512(const float* gate, const float* up, int64_t n,
                               const SwigluClamp& clamp, float* out);
void swiglu_clamped_row_neon(const float* gate, const float* up, int64_t n,
                             const SwigluClamp& clamp, float* out);

void axpy_row_scalar(float a, const float* x, int64_t n, float* y);
void axpy_row_avx2(float a, const float* x, int64_t n, float* y);
void axpy_row_avx512(float a, const float* x, int64_t n, float* y);
void axpy_row_neon(float a, const float* x, int64_t n, float* y);

}  // namespace coli
