// Rotary position embedding, 16 lanes at a time.
#include "ops/rope/rope.h"

#include <immintrin.h>

namespace coli {

namespace {

__mmask16 lane_mask(int64_t left) {
  return left >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1U << left) - 1U);
}

}  // namespace

void rope_half_row_avx512(float* x, const float* cos, const float* sin, int64_t rotated) {
  const int64_t half = rotated / 2;
  const __m512 sign = _mm512_set1_ps(-0.0F);
  for (int64_t j = 0; j < half; j += 16) {
    const __mmask16 mask = lane_mask(half - j);
    const __m512 a = _mm512_maskz_loadu_ps(mask, x + j);
    const __m512 b = _mm512_maskz_loadu_ps(mask, x + half + j);
    const __m512 c = _mm512_maskz_loadu_ps(mask, cos + j);
    const __m512 s = _mm512_maskz_loadu_ps(mask, sin + j);
    const __m512 minus_bs = _mm512_xor_ps(_mm512_mul_ps(b, s), sign);
    _mm512_mask_storeu_ps(x + j, mask, _mm512_fmadd_ps(a, c, minus_bs));
    _mm512_mask_storeu_ps(x + half + j, mask, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
  }
}

void rope_interleaved_row_avx512(float* x, const float* cos, const float* sin, int64_t rotated) {
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  for (int64_t i = 0; i < rotated; i += 16) {
    const int64_t left = rotated - i;
    const __mmask16 mask = lane_mask(left);
    const __mmask16 angles = lane_mask(left >= 16 ? 8 : left / 2);
    const __m512 c = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(angles, cos + i / 2));
    const __m512 s = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(angles, sin + i / 2));
    const __m512 v = _mm512_maskz_loadu_ps(mask, x + i);
    const __m512 swapped = _mm512_permute_ps(v, 0xB1);
    // Even lanes v * c - swapped * s, odd lanes v * c + swapped * s.
    _mm512_mask_storeu_ps(x + i, mask, _mm512_fmaddsub_ps(v, c, _mm512_mul_ps(swapped, s)));
  }
}

}  // namespace coli
