// Router scores, 16 lanes at a time.
#include "ops/route/route.h"

#include <immintrin.h>

#include "ops/swiglu/exp_avx512.h"

namespace coli {

namespace {

__mmask16 lane_mask(int64_t left) {
  return left >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1U << left) - 1U);
}

float max_of_row(const float* x, int64_t n) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  __m512 max = lowest;
  for (int64_t i = 0; i < n; i += 16) {
    // The second operand is kept where the first is NaN.
    max = _mm512_max_ps(_mm512_mask_loadu_ps(lowest, lane_mask(n - i), x + i), max);
  }
  return _mm512_reduce_max_ps(max);
}

// Adds 16 lanes in halves: 16 -> 8 -> 4 -> 2 -> 1.
float sum_lanes(__m512 v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace

void sigmoid_row_avx512(const float* x, int64_t n, float* out) {
  const __m512 one = _mm512_set1_ps(1.0F);
  const __m512 sign = _mm512_set1_ps(-0.0F);
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = lane_mask(n - i);
    const __m512 negative = _mm512_xor_ps(_mm512_maskz_loadu_ps(mask, x + i), sign);
    const __m512 y = _mm512_div_ps(one, _mm512_add_ps(one, exp_avx512(negative)));
    _mm512_mask_storeu_ps(out + i, mask, y);
  }
}

void softmax_row_avx512(const float* x, int64_t n, float* out) {
  const __m512 max = _mm512_set1_ps(max_of_row(x, n));
  __m512 lanes = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = lane_mask(n - i);
    const __m512 e = exp_avx512(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), max));
    lanes = _mm512_mask_add_ps(lanes, mask, lanes, e);
    _mm512_mask_storeu_ps(out + i, mask, e);
  }
  const __m512 sum = _mm512_set1_ps(sum_lanes(lanes));
  const __m512 nan = _mm512_set1_ps(__builtin_nanf(""));
  const __mmask16 valid = _mm512_cmp_ps_mask(sum, sum, _CMP_ORD_Q);
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = lane_mask(n - i);
    const __m512 e = _mm512_maskz_loadu_ps(mask, out + i);
    _mm512_mask_storeu_ps(out + i, mask, _mm512_mask_div_ps(nan, valid, e, sum));
  }
}

}  // namespace coli
