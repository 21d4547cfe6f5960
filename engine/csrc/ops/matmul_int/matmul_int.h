// Products of quantized activations and packed integer weights, one set per instruction set.
//
// quantize_row      one activation row to integers: `data`, `scales` and `sums` of QuantRows.
// matmul_int        integer weights times rows quantized by the same set's quantize_row.
// matmul_int_float  integer weights times f32 rows: the "float" numerics.
//
// Every set gives the bits of the scalar one, for any number of rows in a call.
#pragma once

#include "core/pod.h"

#define COLI_DECLARE_MATMUL_INT(isa)                                                       \
  void quantize_row_##isa(const float* x, int64_t num_inputs, int64_t padded_inputs,       \
                          Numerics numerics, uint8_t* data, float* scales, int32_t* sums); \
  void matmul_int_##isa(const IntMatrix& w, const QuantRows& a, const MatmulRange& range); \
  void matmul_int_float_##isa(const IntMatrix& w, const FloatRows& a, const MatmulRange& range)

namespace coli {

COLI_DECLARE_MATMUL_INT(scalar);
COLI_DECLARE_MATMUL_INT(avx2);
COLI_DECLARE_MATMUL_INT(avx512);
COLI_DECLARE_MATMUL_INT(amx);
COLI_DECLARE_MATMUL_INT(neon);
COLI_DECLARE_MATMUL_INT(i8mm);

}  // namespace coli
