// Rotary position embedding, 8 lanes at a time.
#include "ops/rope/rope.h"

#include <immintrin.h>

namespace coli {

namespace {

void rotate_one(float* first, float* second, float cos, float sin) {
  const float a = *first;
  const float b = *second;
  *first = __builtin_fmaf(a, cos, -(b * sin));
  *second = __builtin_fmaf(b, cos, a * sin);
}

}  // namespace

void rope_half_row_avx2(float* x, const float* cos, const float* sin, int64_t rotated) {
  const int64_t half = rotated / 2;
  const __m256 sign = _mm256_set1_ps(-0.0F);
  int64_t j = 0;
  for (; j + 8 <= half; j += 8) {
    const __m256 a = _mm256_loadu_ps(x + j);
    const __m256 b = _mm256_loadu_ps(x + half + j);
    const __m256 c = _mm256_loadu_ps(cos + j);
    const __m256 s = _mm256_loadu_ps(sin + j);
    const __m256 minus_bs = _mm256_xor_ps(_mm256_mul_ps(b, s), sign);
    _mm256_storeu_ps(x + j, _mm256_fmadd_ps(a, c, minus_bs));
    _mm256_storeu_ps(x + half + j, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
  }
  for (; j < half; ++j) rotate_one(x + j, x + half + j, cos[j], sin[j]);
}

void rope_interleaved_row_avx2(float* x, const float* cos, const float* sin, int64_t rotated) {
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  int64_t j = 0;
  for (; 2 * j + 8 <= rotated; j += 4) {
    const __m256 c4 = _mm256_castps128_ps256(_mm_loadu_ps(cos + j));
    const __m256 s4 = _mm256_castps128_ps256(_mm_loadu_ps(sin + j));
    const __m256 c = _mm256_permutevar8x32_ps(c4, twice);
    const __m256 s = _mm256_permutevar8x32_ps(s4, twice);
    const __m256 v = _mm256_loadu_ps(x + 2 * j);
    const __m256 swapped = _mm256_permute_ps(v, 0xB1);
    // Even lanes v * c - swapped * s, odd lanes v * c + swapped * s.
    _mm256_storeu_ps(x + 2 * j, _mm256_fmaddsub_ps(v, c, _mm256_mul_ps(swapped, s)));
  }
  for (; j < rotated / 2; ++j) rotate_one(x + 2 * j, x + 2 * j + 1, cos[j], sin[j]);
}

}  // namespace coli
