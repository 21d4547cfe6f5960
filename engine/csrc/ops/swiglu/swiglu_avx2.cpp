// Gated activation and scaled addition, 8 lanes at a time.
#include "ops/swiglu/swiglu.h"

#include <immintrin.h>

#include "ops/swiglu/exp_avx2.h"

namespace coli {

namespace {

// Lanes below `left` have their sign bit set.
__m256i lane_mask(int64_t left) {
  const __m256i iota = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(left)), iota);
}

__m256 swiglu(__m256 z, __m256 up) {
  const __m256 negative = _mm256_xor_ps(z, _mm256_set1_ps(-0.0F));
  const __m256 denominator = _mm256_add_ps(_mm256_set1_ps(1.0F), exp_avx2(negative));
  return _mm256_mul_ps(_mm256_div_ps(z, denominator), up);
}

// Where a minimum or maximum meets NaN, the second operand is kept.
__m256 swiglu_clamped(__m256 z, __m256 up, const SwigluClamp& clamp) {
  const __m256 one = _mm256_set1_ps(1.0F);
  const __m256 g = _mm256_min_ps(_mm256_set1_ps(clamp.limit), z);
  const __m256 below = _mm256_min_ps(_mm256_set1_ps(clamp.limit), up);
  const __m256 u = _mm256_max_ps(_mm256_set1_ps(-clamp.limit), below);
  const __m256 gained = _mm256_mul_ps(_mm256_set1_ps(clamp.alpha), g);
  const __m256 negative = _mm256_xor_ps(gained, _mm256_set1_ps(-0.0F));
  const __m256 gated = _mm256_div_ps(g, _mm256_add_ps(one, exp_avx2(negative)));
  return _mm256_mul_ps(_mm256_add_ps(u, one), gated);
}

}  // namespace

void swiglu_row_avx2(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(out + i, swiglu(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
  }
  if (i < n) {
    const __m256i mask = lane_mask(n - i);
    const __m256 z = _mm256_maskload_ps(gate + i, mask);
    _mm256_maskstore_ps(out + i, mask, swiglu(z, _mm256_maskload_ps(up + i, mask)));
  }
}

void swiglu_clamped_row_avx2(const float* gate, const float* up, int64_t n,
                             const SwigluClamp& clamp, float* out) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 z = _mm256_loadu_ps(gate + i);
    _mm256_storeu_ps(out + i, swiglu_clamped(z, _mm256_loadu_ps(up + i), clamp));
  }
  if (i < n) {
    const __m256i mask = lane_mask(n - i);
    const __m256 z = _mm256_maskload_ps(gate + i, mask);
    const __m256 y = swiglu_clamped(z, _mm256_maskload_ps(up + i, mask), clamp);
    _mm256_maskstore_ps(out + i, mask, y);
  }
}

void axpy_row_avx2(float a, const float* x, int64_t n, float* y) {
  const __m256 scale = _mm256_set1_ps(a);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 sum = _mm256_fmadd_ps(scale, _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i));
    _mm256_storeu_ps(y + i, sum);
  }
  if (i < n) {
    const __m256i mask = lane_mask(n - i);
    const __m256 sum =
        _mm256_fmadd_ps(scale, _mm256_maskload_ps(x + i, mask), _mm256_maskload_ps(y + i, mask));
    _mm256_maskstore_ps(y + i, mask, sum);
  }
}

}  // namespace coli
