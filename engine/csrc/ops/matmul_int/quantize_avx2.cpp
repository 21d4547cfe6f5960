// Activation rows for AVX2: int16 values, the four of each 4 inputs in the order 0 2 1 3.
//
// That is the order in which masks and shifts widen 4 codes to two pairs of 16-bit numbers.
#include "ops/matmul_int/matmul_int.h"
#include "ops/matmul_int/tile_avx2.h"

namespace coli {
namespace {

COLI_INLINE __m256i load_mask(int64_t count) {
  const int32_t limit = count < 0 ? 0 : count > 8 ? 8 : static_cast<int32_t>(count);
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(limit), lanes);
}

COLI_INLINE int32_t max_lane(__m256i x) {
  __m128i max = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0x4E));
  max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0xB1));
  return _mm_cvtsi128_si32(max);
}

// Integers of `kVectors` vectors sharing one scale, which is returned.
template <int kVectors>
COLI_INLINE float quantize_group(const __m256* x, float limit, __m256i* values) {
  // Magnitude bits order like the values, and a NaN orders above infinity.
  __m256i magnitude = _mm256_setzero_si256();
  const __m256i mask = _mm256_set1_epi32(static_cast<int32_t>(kMagnitudeMask));
  for (int v = 0; v < kVectors; ++v) {
    magnitude = _mm256_max_epi32(magnitude, _mm256_and_si256(_mm256_castps_si256(x[v]), mask));
  }
  const int32_t max_bits = max_lane(magnitude);
  const float scale = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(max_bits))) / limit;
  const bool is_usable = scale > 0 && max_bits < static_cast<int32_t>(kInfinityBits);
  const __m256i usable = _mm256_set1_epi32(is_usable ? -1 : 0);
  const __m256 scales = _mm256_set1_ps(scale);
  const __m256i bound = _mm256_set1_epi32(static_cast<int32_t>(limit));
  const __m256i low_bound = _mm256_sub_epi32(_mm256_setzero_si256(), bound);
  for (int v = 0; v < kVectors; ++v) {
    const __m256i value = _mm256_cvtps_epi32(_mm256_div_ps(x[v], scales));
    const __m256i clamped = _mm256_max_epi32(_mm256_min_epi32(value, bound), low_bound);
    values[v] = _mm256_and_si256(clamped, usable);
  }
  return scale;
}

// Sixteen values in order: stored as int16, and their sum.
COLI_INLINE int32_t store_values(__m256i first, __m256i second, int16_t* out) {
  // packs interleaves the 128-bit halves: 0-3, 8-11, 4-7, 12-15.
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(first, second), 0xD8);
  const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15,  //
                                         0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_shuffle_epi8(packed, order));
  const __m256i both = _mm256_add_epi32(first, second);
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1)));
}

}  // namespace

void quantize_row_avx2(const float* x, int64_t num_inputs, int64_t padded_inputs, Numerics numerics,
                       uint8_t* data, float* scales, int32_t* sums) {
  auto* out = reinterpret_cast<int16_t*>(data);
  for (int64_t begin = 0; begin < padded_inputs; begin += kInputPad) {
    __m256 inputs[8];
    __m256i values[8];
    for (int64_t v = 0; v < 8; ++v) {
      const int64_t left = num_inputs - begin - v * 8;
      inputs[v] = _mm256_maskload_ps(x + (left > 0 ? begin + v * 8 : 0), load_mask(left));
    }
    if (numerics == Numerics::kFast) {
      scales[begin / 32] = quantize_group<4>(inputs, kFastLimit, values);
      scales[begin / 32 + 1] = quantize_group<4>(inputs + 4, kFastLimit, values + 4);
    } else {
      scales[begin / 64] = quantize_group<8>(inputs, kDefaultLimit, values);
    }
    for (int64_t v = 0; v < 4; ++v) {
      const int64_t at = begin + v * kSumGroup;
      sums[at / kSumGroup] = store_values(values[2 * v], values[2 * v + 1], out + at);
    }
  }
}

}  // namespace coli
