// Router scores of one row: logistic, and softmax over all experts.
//
// sigmoid_row: out[i] = 1 / (1 + exp(-x[i])), exp as in ops/swiglu/exp.h. NaN gives NaN.
// softmax_row: m = the largest x that is not NaN; e[i] = exp(x[i] - m); lane l sums e[l], e[l+16],
//   ... in that order; the 16 lanes are added in halves (l + 8, l + 4, l + 2, l + 1);
//   out[i] = e[i] / sum. Where no distribution exists (a NaN or +inf in the row, or only -inf)
//   every output is the quiet NaN 0x7fc00000, so any element tells such a row from a valid one.
// `out` may be x. Every variant gives the scalar variant's bits.
#pragma once

#include "core/pod.h"

namespace coli {

void sigmoid_row_scalar(const float* x, int64_t n, float* out);
void sigmoid_row_avx2(const float* x, int64_t n, float* out);
void sigmoid_row_avx512(const float* x, int64_t n, float* out);
void sigmoid_row_neon(const float* x, int64_t n, float* out);

void softmax_row_scalar(const float* x, int64_t n, float* out);
void softmax_row_avx2(const float* x, int64_t n, float* out);
void softmax_row_avx512(const float* x, int64_t n, float* out);
void softmax_row_neon(const float* x, int64_t n, float* out);

}  // namespace coli
