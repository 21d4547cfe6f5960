// Root-mean-square normalization, 16 lanes at a time.
#include "ops/norm/norm.h"

#include <immintrin.h>

namespace coli {

namespace {

__mmask16 lane_mask(int64_t left) {
  return left >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1U << left) - 1U);
}

// Sum of squares: 16 double lanes in two registers, then added in halves.
double sum_of_squares(const float* x, int64_t n) {
  __m512d low = _mm512_setzero_pd();
  __m512d high = _mm512_setzero_pd();
  for (int64_t i = 0; i < n; i += 16) {
    const __m512 v = _mm512_maskz_loadu_ps(lane_mask(n - i), x + i);
    const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
    const __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
    low = _mm512_fmadd_pd(a, a, low);
    high = _mm512_fmadd_pd(b, b, high);
  }
  const __m512d eight = _mm512_add_pd(low, high);
  const __m256d four =
      _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

double square_root(double x) { return _mm_cvtsd_f64(_mm_sqrt_pd(_mm_set1_pd(x))); }

}  // namespace

void rms_norm_row_avx512(const float* x, const float* weight, int64_t n, float eps, float* out) {
  const double mean = sum_of_squares(x, n) / static_cast<double>(n);
  const double root = square_root(mean + static_cast<double>(eps));
  const __m512 r = _mm512_set1_ps(static_cast<float>(1.0 / root));
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = lane_mask(n - i);
    const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), r);
    const __m512 y = _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(mask, weight + i));
    _mm512_mask_storeu_ps(out + i, mask, y);
  }
}

}  // namespace coli
