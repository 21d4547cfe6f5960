// Gated activation and scaled addition, 16 lanes at a time.
#include "ops/swiglu/swiglu.h"

#include <immintrin.h>

#include "ops/swiglu/exp_avx512.h"

namespace coli {

namespace {

__mmask16 lane_mask(int64_t left) {
  return left >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1U << left) - 1U);
}

// Where a minimum or maximum meets NaN, the second operand is kept.
__m512 swiglu_clamped(__m512 z, __m512 up, const SwigluClamp& clamp) {
  const __m512 one = _mm512_set1_ps(1.0F);
  const __m512 g = _mm512_min_ps(_mm512_set1_ps(clamp.limit), z);
  const __m512 below = _mm512_min_ps(_mm512_set1_ps(clamp.limit), up);
  const __m512 u = _mm512_max_ps(_mm512_set1_ps(-clamp.limit), below);
  const __m512 gained = _mm512_mul_ps(_mm512_set1_ps(clamp.alpha), g);
  const __m512 negative = _mm512_xor_ps(gained, _mm512_set1_ps(-0.0F));
  const __m512 gated = _mm512_div_ps(g, _mm512_add_ps(one, exp_avx512(negative)));
  return _mm512_mul_ps(_mm512_add_ps(u, one), gated);
}

}  // namespace

void swiglu_row_avx512(const float* gate, const float* up, int64_t n, float* out) {
  const __m512 one = _mm512_set1_ps(1.0F);
  const __m512 sign = _mm512_set1_ps(-0.0F);
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = lane_mask(n - i);
    const __m512 z = _mm512_maskz_loadu_ps(mask, gate + i);
    const __m512 denominator = _mm512_add_ps(one, exp_avx512(_mm512_xor_ps(z, sign)));
    const __m512 silu = _mm512_div_ps(z, denominator);
    const __m512 y = _mm512_mul_ps(silu, _mm512_maskz_loadu_ps(mask, up + i));
    _mm512_mask_storeu_ps(out + i, mask, y);
  }
}

void swiglu_clamped_row_avx512(const float* gate, const float* up, int64_t n,
                               const SwigluClamp& clamp, float* out) {
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = lane_mask(n - i);
    const __m512 z = _mm512_maskz_loadu_ps(mask, gate + i);
    const __m512 y = swiglu_clamped(z, _mm512_maskz_loadu_ps(mask, up + i), clamp);
    _mm512_mask_storeu_ps(out + i, mask, y);
  }
}

void axpy_row_avx512(float a, const float* x, int64_t n, float* y) {
  const __m512 scale = _mm512_set1_ps(a);
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = lane_mask(n - i);
    const __m512 sum = _mm512_fmadd_ps(scale, _mm512_maskz_loadu_ps(mask, x + i),
                                       _mm512_maskz_loadu_ps(mask, y + i));
    _mm512_mask_storeu_ps(y + i, mask, sum);
  }
}

}  // namespace coli
