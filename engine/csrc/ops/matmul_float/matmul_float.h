// Product of float weights (f32, f16, bf16, scaled E4M3) with f32 activations.
//
// Each output is its own lane: acc[k % 4] = fma(w[k], x[k], acc[k % 4]) for k = 0, 1, ... from
// acc = 0, weights as f32 (exact; E4M3 is rounded once, times its scale); result = (acc[0] + acc[1]) + (acc[2] + acc[3]), then
// + bias, then added to y where range.add is set. Nothing else enters, so an output has the same
// bits in every variant and for any split into tiles, rows and threads.
//
// Reads num_inputs activations per row and num_outputs biases, writes only outputs below
// num_outputs. No pointer needs alignment beyond its element's. y overlaps nothing else.
#pragma once

#include "core/pod.h"

namespace coli {

void matmul_float_scalar(const FloatMatrix& w, const FloatRows& a, const MatmulRange& range);
void matmul_float_avx2(const FloatMatrix& w, const FloatRows& a, const MatmulRange& range);
void matmul_float_avx512(const FloatMatrix& w, const FloatRows& a, const MatmulRange& range);
void matmul_float_neon(const FloatMatrix& w, const FloatRows& a, const MatmulRange& range);

}  // namespace coli
