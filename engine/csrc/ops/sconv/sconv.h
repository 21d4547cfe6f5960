// One row of a short causal convolution per channel, with its input added.
//
// sconv_row: s = 0; s = fma(weight[j][c], inputs[j][c], s) for j = 0, 1, ... num_taps - 1, oldest
//   input first; y = inputs[num_taps - 1][c] + s; out[c] = y, or base[c] + y where there is a base.
//   One f32 rounding per step. `out` may be the newest input or the base.
// Every variant gives the scalar variant's bits.
#pragma once

#include "core/pod.h"

namespace coli {

void sconv_row_scalar(const ConvRow& row);
void sconv_row_avx2(const ConvRow& row);
void sconv_row_avx512(const ConvRow& row);
void sconv_row_neon(const ConvRow& row);

}  // namespace coli
