// Root-mean-square normalization, 8 lanes at a time; the 16 double lanes take four registers.
#include "ops/norm/norm.h"

#include <immintrin.h>

namespace coli {

namespace {

// Lanes below `left` have their sign bit set; none where left <= 0.
__m256i lane_mask(int64_t left) {
  const __m256i iota = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const int32_t count = left >= 8 ? 8 : static_cast<int32_t>(left);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), iota);
}

void add_squares(__m256 v, __m256d* acc) {
  const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
  const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
  acc[0] = _mm256_fmadd_pd(a, a, acc[0]);
  acc[1] = _mm256_fmadd_pd(b, b, acc[1]);
}

double sum_of_squares(const float* x, int64_t n) {
  __m256d acc[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(),
                    _mm256_setzero_pd()};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    add_squares(_mm256_loadu_ps(x + i), acc);
    add_squares(_mm256_loadu_ps(x + i + 8), acc + 2);
  }
  if (i < n) add_squares(_mm256_maskload_ps(x + i, lane_mask(n - i)), acc);
  if (i + 8 < n) add_squares(_mm256_maskload_ps(x + i + 8, lane_mask(n - i - 8)), acc + 2);
  const __m256d four = _mm256_add_pd(_mm256_add_pd(acc[0], acc[2]), _mm256_add_pd(acc[1], acc[3]));
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

double square_root(double x) { return _mm_cvtsd_f64(_mm_sqrt_pd(_mm_set1_pd(x))); }

}  // namespace

void rms_norm_row_avx2(const float* x, const float* weight, int64_t n, float eps, float* out) {
  const double mean = sum_of_squares(x, n) / static_cast<double>(n);
  const double root = square_root(mean + static_cast<double>(eps));
  const __m256 r = _mm256_set1_ps(static_cast<float>(1.0 / root));
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + i), r);
    _mm256_storeu_ps(out + i, _mm256_mul_ps(scaled, _mm256_loadu_ps(weight + i)));
  }
  if (i < n) {
    const __m256i mask = lane_mask(n - i);
    const __m256 scaled = _mm256_mul_ps(_mm256_maskload_ps(x + i, mask), r);
    const __m256 y = _mm256_mul_ps(scaled, _mm256_maskload_ps(weight + i, mask));
    _mm256_maskstore_ps(out + i, mask, y);
  }
}

}  // namespace coli
