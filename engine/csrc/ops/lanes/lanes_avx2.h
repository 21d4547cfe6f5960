// 16 floats that advance together, with 256-bit vectors: two registers.
//
// All of it has internal linkage: nothing built for one instruction set is shared with another.
#pragma once

#include <immintrin.h>

#include "ops/swiglu/exp_avx2.h"

namespace coli {
namespace {

struct Lanes {
  __m256 low;
  __m256 high;
};

inline Lanes load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }

inline __m256 widen_half(const uint16_t* from) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

// 16 bf16 as floats.
inline Lanes widen(const uint16_t* from) { return {widen_half(from), widen_half(from + 8)}; }

inline void store(float* to, const Lanes& x) {
  _mm256_storeu_ps(to, x.low);
  _mm256_storeu_ps(to + 8, x.high);
}

inline Lanes splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }

inline Lanes fmadd(const Lanes& a, const Lanes& b, const Lanes& c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

inline Lanes add(const Lanes& a, const Lanes& b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

inline Lanes sub(const Lanes& a, const Lanes& b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}

inline Lanes mul(const Lanes& a, const Lanes& b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}

inline Lanes divide(const Lanes& a, const Lanes& b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}

inline Lanes larger(const Lanes& a, const Lanes& b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

inline Lanes exp_not_positive(const Lanes& x) { return {exp_avx2(x.low), exp_avx2(x.high)}; }

inline Lanes keep_first(const Lanes& x, int n, float fill) {
  const __m256 count = _mm256_set1_ps(static_cast<float>(n));
  const __m256 low = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 high = _mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15);
  const __m256 rest = _mm256_set1_ps(fill);
  return {_mm256_blendv_ps(rest, x.low, _mm256_cmp_ps(low, count, _CMP_LT_OQ)),
          _mm256_blendv_ps(rest, x.high, _mm256_cmp_ps(high, count, _CMP_LT_OQ))};
}

// The lanes from n on; `fill` in those before.
inline Lanes keep_from(const Lanes& x, int n, float fill) {
  const __m256 first = _mm256_set1_ps(static_cast<float>(n));
  const __m256 low = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 high = _mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15);
  const __m256 rest = _mm256_set1_ps(fill);
  return {_mm256_blendv_ps(x.low, rest, _mm256_cmp_ps(low, first, _CMP_LT_OQ)),
          _mm256_blendv_ps(x.high, rest, _mm256_cmp_ps(high, first, _CMP_LT_OQ))};
}

inline float largest_lane(const Lanes& x) {
  const __m256 x8 = _mm256_max_ps(x.low, x.high);
  const __m128 x4 = _mm_max_ps(_mm256_castps256_ps128(x8), _mm256_extractf128_ps(x8, 1));
  const __m128 x2 = _mm_max_ps(x4, _mm_movehl_ps(x4, x4));
  return _mm_cvtss_f32(_mm_max_ss(x2, _mm_movehdup_ps(x2)));
}

inline float sum_lanes(const Lanes& x) {
  const __m256 x8 = _mm256_add_ps(x.low, x.high);
  const __m128 x4 = _mm_add_ps(_mm256_castps256_ps128(x8), _mm256_extractf128_ps(x8, 1));
  const __m128 x2 = _mm_add_ps(x4, _mm_movehl_ps(x4, x4));
  return _mm_cvtss_f32(_mm_add_ss(x2, _mm_movehdup_ps(x2)));
}

}  // namespace
}  // namespace coli
