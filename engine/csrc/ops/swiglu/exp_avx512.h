// exp of 16 lanes for the AVX-512 kernels; the formula and its accuracy are in exp.h.
//
// Internal linkage only, so that no code built for AVX-512 can be shared with older processors.
#pragma once

#include <immintrin.h>

#include "ops/swiglu/exp.h"

namespace coli {

static inline __m512 exp_avx512(__m512 x) {
  const __m512 round = _mm512_set1_ps(kExpRound);
  const __m512 one = _mm512_set1_ps(1.0F);
  const __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(kExpLog2e), round);
  const __m512 n = _mm512_sub_ps(t, round);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(kExpMinusLn2Hi), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(kExpMinusLn2Lo), r);
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(kExpC6), r, _mm512_set1_ps(kExpC5));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpC4));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpC3));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpC2));
  p = _mm512_fmadd_ps(p, r, one);
  p = _mm512_fmadd_ps(p, r, one);
  const __m512i scale = _mm512_slli_epi32(_mm512_castps_si512(t), kExpShift);
  const __m512 y = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), scale));
  const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(kExpMin), _CMP_NLT_UQ);
  const __mmask16 large = _mm512_cmp_ps_mask(x, _mm512_set1_ps(kExpMax), _CMP_GT_OQ);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512 inf = _mm512_set1_ps(__builtin_inff());
  return _mm512_mask_mov_ps(_mm512_mask_mov_ps(_mm512_maskz_mov_ps(normal, y), large, inf), nan, x);
}

}  // namespace coli
