// Activation rows for AVX-512 VNNI and AMX: two signed byte planes, the high one first.
//
// value = 256 * high + low; each plane has padded_inputs bytes in input order, so four consecutive
// inputs are one 32-bit element to broadcast. Fast numerics fill only the first plane.
// GCC 12 takes the deliberately undefined operand inside its own 512-bit intrinsics for a mistake.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include "ops/matmul_int/geometry.h"
#include "ops/matmul_int/matmul_int.h"

namespace coli {
namespace {

// Sums of 16 lanes of four vectors at once: [sum a, sum b, sum c, sum d].
__m128i sum_lanes(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  const __m512i quads =
      _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  const __m256i half =
      _mm256_add_epi32(_mm512_castsi512_si256(quads), _mm512_extracti64x4_epi64(quads, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

// Lanes below `count`, for a vector that may lie partly or wholly past the end of the row.
__mmask16 lane_mask(int64_t count) {
  if (count >= 16) return 0xFFFF;
  return count <= 0 ? static_cast<__mmask16>(0) : static_cast<__mmask16>((1U << count) - 1U);
}

// Integers of `kVectors` vectors sharing one scale, which is returned.
template <int kVectors>
float quantize_group(const __m512* x, float limit, __m512i* values) {
  // Magnitude bits order like the values, and a NaN orders above infinity.
  __m512i magnitude = _mm512_setzero_si512();
  const __m512i mask = _mm512_set1_epi32(static_cast<int32_t>(kMagnitudeMask));
  for (int v = 0; v < kVectors; ++v) {
    magnitude = _mm512_max_epi32(magnitude, _mm512_and_si512(_mm512_castps_si512(x[v]), mask));
  }
  const int32_t max_bits = _mm512_reduce_max_epi32(magnitude);
  const __m128 amax = _mm_castsi128_ps(_mm_cvtsi32_si128(max_bits));
  const float scale = _mm_cvtss_f32(amax) / limit;
  const bool is_usable = scale > 0 && max_bits < static_cast<int32_t>(kInfinityBits);
  const __mmask16 usable = is_usable ? 0xFFFF : 0;
  const __m512 scales = _mm512_set1_ps(scale);
  const __m512i bound = _mm512_set1_epi32(static_cast<int32_t>(limit));
  const __m512i low_bound = _mm512_sub_epi32(_mm512_setzero_si512(), bound);
  for (int v = 0; v < kVectors; ++v) {
    const __m512i value = _mm512_maskz_cvtps_epi32(usable, _mm512_div_ps(x[v], scales));
    values[v] = _mm512_max_epi32(_mm512_min_epi32(value, bound), low_bound);
  }
  return scale;
}

void store_planes(const __m512i* values, int64_t padded_inputs, uint8_t* data) {
  const __m512i half = _mm512_set1_epi32(128);
  for (int v = 0; v < 4; ++v) {
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(values[v], half), 8);
    auto* out = reinterpret_cast<__m128i*>(data + v * 16);
    _mm_storeu_si128(out, _mm512_cvtepi32_epi8(high));
    auto* low_out = reinterpret_cast<__m128i*>(data + padded_inputs + v * 16);
    _mm_storeu_si128(low_out, _mm512_cvtepi32_epi8(values[v]));
  }
}

}  // namespace

void quantize_row_avx512(const float* x, int64_t num_inputs, int64_t padded_inputs,
                         Numerics numerics, uint8_t* data, float* scales, int32_t* sums) {
  for (int64_t begin = 0; begin < padded_inputs; begin += kInputPad) {
    __m512 inputs[4];
    __m512i values[4];
    for (int64_t v = 0; v < 4; ++v) {
      const __mmask16 mask = lane_mask(num_inputs - begin - v * 16);
      inputs[v] = _mm512_maskz_loadu_ps(mask, x + (mask != 0 ? begin + v * 16 : 0));
    }
    if (numerics == Numerics::kFast) {
      scales[begin / 32] = quantize_group<2>(inputs, kFastLimit, values);
      scales[begin / 32 + 1] = quantize_group<2>(inputs + 2, kFastLimit, values + 2);
      for (int64_t v = 0; v < 4; ++v) {
        auto* out = reinterpret_cast<__m128i*>(data + begin + v * 16);
        _mm_storeu_si128(out, _mm512_cvtepi32_epi8(values[v]));
      }
    } else {
      scales[begin / 64] = quantize_group<4>(inputs, kDefaultLimit, values);
      store_planes(values, padded_inputs, data + begin);
    }
    auto* sums_out = reinterpret_cast<__m128i*>(sums + begin / kSumGroup);
    _mm_storeu_si128(sums_out, sum_lanes(values[0], values[1], values[2], values[3]));
  }
}

}  // namespace coli
