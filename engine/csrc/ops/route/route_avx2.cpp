// Router scores, 8 lanes at a time; sums keep 16 lanes in two registers.
#include "ops/route/route.h"

#include <immintrin.h>

#include "ops/swiglu/exp_avx2.h"

namespace coli {

namespace {

// Lanes below `left` have their sign bit set; none where left <= 0.
__m256i lane_mask(int64_t left) {
  const __m256i iota = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const int32_t count = left >= 8 ? 8 : static_cast<int32_t>(left);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), iota);
}

float max_of_row(const float* x, int64_t n) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  __m256 max = lowest;
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i mask = lane_mask(n - i);
    const __m256 v = _mm256_maskload_ps(x + i, mask);
    // The second operand is kept where the first is NaN.
    max = _mm256_max_ps(_mm256_blendv_ps(lowest, v, _mm256_castsi256_ps(mask)), max);
  }
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

// Adds 16 lanes in halves: 16 -> 8 -> 4 -> 2 -> 1.
float sum_lanes(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// out[0..8) = exp(x - max) where the mask is set; returns it with zeros elsewhere.
__m256 exp_step(const float* x, __m256 max, __m256i mask, float* out) {
  const __m256 e = exp_avx2(_mm256_sub_ps(_mm256_maskload_ps(x, mask), max));
  _mm256_maskstore_ps(out, mask, e);
  return _mm256_and_ps(e, _mm256_castsi256_ps(mask));
}

}  // namespace

void sigmoid_row_avx2(const float* x, int64_t n, float* out) {
  const __m256 one = _mm256_set1_ps(1.0F);
  const __m256 sign = _mm256_set1_ps(-0.0F);
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i mask = lane_mask(n - i);
    const __m256 negative = _mm256_xor_ps(_mm256_maskload_ps(x + i, mask), sign);
    const __m256 y = _mm256_div_ps(one, _mm256_add_ps(one, exp_avx2(negative)));
    _mm256_maskstore_ps(out + i, mask, y);
  }
}

void softmax_row_avx2(const float* x, int64_t n, float* out) {
  const __m256 max = _mm256_set1_ps(max_of_row(x, n));
  __m256 low = _mm256_setzero_ps();
  __m256 high = _mm256_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    low = _mm256_add_ps(low, exp_step(x + i, max, lane_mask(n - i), out + i));
    const int64_t left = n - i - 8;
    if (left > 0)
      high = _mm256_add_ps(high, exp_step(x + i + 8, max, lane_mask(left), out + i + 8));
  }
  const __m256 sum = _mm256_set1_ps(sum_lanes(low, high));
  const __m256 nan = _mm256_set1_ps(__builtin_nanf(""));
  const __m256 valid = _mm256_cmp_ps(sum, sum, _CMP_ORD_Q);
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i mask = lane_mask(n - i);
    const __m256 y = _mm256_div_ps(_mm256_maskload_ps(out + i, mask), sum);
    _mm256_maskstore_ps(out + i, mask, _mm256_blendv_ps(nan, y, valid));
  }
}

}  // namespace coli
