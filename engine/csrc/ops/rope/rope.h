// Rotary position embedding of one head, in place.
//
// `rotated` (even) channels turn, the others stay. Pair j < rotated / 2 turns by the angle with
// cosine cos[j] and sine sin[j]. half: the pair is (x[j], x[j + rotated / 2]). interleaved: it is
// (x[2j], x[2j + 1]). With the pair called (a, b):
//   a' = fma(a, cos, -(b * sin)),   b' = fma(b, cos, a * sin),   products rounded to f32.
// Every variant gives the scalar variant's bits.
#pragma once

#include "core/pod.h"

namespace coli {

void rope_half_row_scalar(float* x, const float* cos, const float* sin, int64_t rotated);
void rope_half_row_avx2(float* x, const float* cos, const float* sin, int64_t rotated);
void rope_half_row_avx512(float* x, const float* cos, const float* sin, int64_t rotated);
void rope_half_row_neon(float* x, const float* cos, const float* sin, int64_t rotated);

void rope_interleaved_row_scalar(float* x, const float* cos, const float* sin, int64_t rotated);
void rope_interleaved_row_avx2(float* x, const float* cos, const float* sin, int64_t rotated);
void rope_interleaved_row_avx512(float* x, const float* cos, const float* sin, int64_t rotated);
void rope_interleaved_row_neon(float* x, const float* cos, const float* sin, int64_t rotated);

}  // namespace coli
