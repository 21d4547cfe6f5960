// exp of 8 lanes for the AVX2 kernels; the formula and its accuracy are in exp.h.
//
// Internal linkage only, so that no code built for AVX2 can be shared with older processors.
#pragma once

#include <immintrin.h>

#include "ops/swiglu/exp.h"

namespace coli {

static inline __m256 exp_avx2(__m256 x) {
  const __m256 round = _mm256_set1_ps(kExpRound);
  const __m256 one = _mm256_set1_ps(1.0F);
  const __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(kExpLog2e), round);
  const __m256 n = _mm256_sub_ps(t, round);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(kExpMinusLn2Hi), x);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(kExpMinusLn2Lo), r);
  __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(kExpC6), r, _mm256_set1_ps(kExpC5));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpC4));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpC3));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpC2));
  p = _mm256_fmadd_ps(p, r, one);
  p = _mm256_fmadd_ps(p, r, one);
  const __m256i scale = _mm256_slli_epi32(_mm256_castps_si256(t), kExpShift);
  __m256 y = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), scale));
  y = _mm256_and_ps(y, _mm256_cmp_ps(x, _mm256_set1_ps(kExpMin), _CMP_NLT_UQ));
  const __m256 large = _mm256_cmp_ps(x, _mm256_set1_ps(kExpMax), _CMP_GT_OQ);
  y = _mm256_blendv_ps(y, _mm256_set1_ps(__builtin_inff()), large);
  return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

}  // namespace coli
