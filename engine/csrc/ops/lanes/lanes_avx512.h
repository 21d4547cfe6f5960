// 16 floats that advance together, with 512-bit vectors: one register.
//
// All of it has internal linkage: nothing built for one instruction set is shared with another.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12's _mm512_undefined_ps trips it
#endif
#include <immintrin.h>

#include "ops/swiglu/exp.h"

namespace coli {
namespace {

using Lanes = __m512;

inline Lanes load(const float* from) { return _mm512_loadu_ps(from); }
// 16 bf16 as floats.
inline Lanes widen(const uint16_t* from) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
inline void store(float* to, Lanes x) { _mm512_storeu_ps(to, x); }
inline Lanes splat(float x) { return _mm512_set1_ps(x); }
inline Lanes fmadd(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
inline Lanes add(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
inline Lanes sub(Lanes a, Lanes b) { return _mm512_sub_ps(a, b); }
inline Lanes mul(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
inline Lanes divide(Lanes a, Lanes b) { return _mm512_div_ps(a, b); }
inline Lanes larger(Lanes a, Lanes b) { return _mm512_max_ps(a, b); }

// exp.h's formula without its step for large x; vscalefps multiplies by 2^n and carries NaN.
inline Lanes exp_not_positive(Lanes x) {
  const Lanes round = splat(kExpRound);
  const Lanes n = sub(fmadd(x, splat(kExpLog2e), round), round);
  const Lanes r = fmadd(n, splat(kExpMinusLn2Lo), fmadd(n, splat(kExpMinusLn2Hi), x));
  Lanes p = fmadd(splat(kExpC6), r, splat(kExpC5));
  p = fmadd(p, r, splat(kExpC4));
  p = fmadd(p, r, splat(kExpC3));
  p = fmadd(p, r, splat(kExpC2));
  p = fmadd(p, r, splat(1.0F));
  p = fmadd(p, r, splat(1.0F));
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, splat(kExpMin), _CMP_NLT_UQ), p, n);
}

inline Lanes keep_first(Lanes x, int n, float fill) {
  return _mm512_mask_mov_ps(_mm512_set1_ps(fill), static_cast<__mmask16>((1U << n) - 1U), x);
}

// The lanes from n on; `fill` in those before.
inline Lanes keep_from(Lanes x, int n, float fill) {
  return _mm512_mask_mov_ps(x, static_cast<__mmask16>((1U << n) - 1U), _mm512_set1_ps(fill));
}

inline __m256 low_half(Lanes x) { return _mm512_castps512_ps256(x); }
inline __m256 high_half(Lanes x) { return _mm512_extractf32x8_ps(x, 1); }

inline float largest_lane(Lanes x) {
  const __m256 x8 = _mm256_max_ps(low_half(x), high_half(x));
  const __m128 x4 = _mm_max_ps(_mm256_castps256_ps128(x8), _mm256_extractf128_ps(x8, 1));
  const __m128 x2 = _mm_max_ps(x4, _mm_movehl_ps(x4, x4));
  return _mm_cvtss_f32(_mm_max_ss(x2, _mm_movehdup_ps(x2)));
}

inline float sum_lanes(Lanes x) {
  const __m256 x8 = _mm256_add_ps(low_half(x), high_half(x));
  const __m128 x4 = _mm_add_ps(_mm256_castps256_ps128(x8), _mm256_extractf128_ps(x8, 1));
  const __m128 x2 = _mm_add_ps(x4, _mm_movehl_ps(x4, x4));
  return _mm_cvtss_f32(_mm_add_ss(x2, _mm_movehdup_ps(x2)));
}

}  // namespace
}  // namespace coli
