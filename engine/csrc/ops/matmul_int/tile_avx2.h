// Pieces of a tile in 256-bit registers, for the AVX2 sources only. A tile is two halves of 8
// output rows.
#pragma once

#include <immintrin.h>

#include "ops/matmul_int/blocks.h"

namespace coli {

static constexpr int64_t kHalfTile = 8;

// Eight scales or minimums from element `index` of a tile's stream.
COLI_INLINE __m256 load_scales(const uint8_t* stream, int64_t index, bool is_half_float) {
  if (is_half_float) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(stream + index * 2)));
  }
  return _mm256_loadu_ps(reinterpret_cast<const float*>(stream + index * 4));
}

// The same of bytes that stand for powers of two.
COLI_INLINE __m256 load_powers(const uint8_t* stream, int64_t index) {
  const __m256i bytes =
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(stream + index)));
  const __m256i one = _mm256_set1_epi32(1);
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(bytes, one), 23);
  const __m256i least = _mm256_sllv_epi32(_mm256_set1_epi32(kLeastPowerBits), bytes);
  const __m256i is_normal = _mm256_cmpgt_epi32(bytes, one);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(least, normal, is_normal));
}

// Eight scales of whatever type a matrix of such codes may have.
template <Code kCode>
COLI_INLINE __m256 load_group_scales(const IntMatrix& w, const uint8_t* stream, int64_t index) {
  if (kCode == Code::kLevel && w.scale_e8m0 != 0) return load_powers(stream, index);
  return load_scales(stream, index, w.scale_f16 != 0);
}

// The levels of a matrix in both halves; nothing where its codes are the numbers themselves.
template <Code kCode>
COLI_INLINE __m256i load_levels(const IntMatrix& w) {
  if (kCode != Code::kLevel) return _mm256_setzero_si256();
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w.levels)));
}

COLI_INLINE __m256i load_words(const uint8_t* bytes) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}

// Writes 8 results of a row from output `first` on, the padding outputs left out.
COLI_INLINE void store_outputs(const IntMatrix& w, const MatmulRange& range, int64_t first,
                               int64_t row, __m256 result) {
  const int64_t count = w.num_outputs - first;
  if (count <= 0) return;
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const int32_t limit = count < kHalfTile ? static_cast<int32_t>(count) : 8;
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(limit), lanes);
  float* y = range.y + row * range.ldy + first;
  if (range.bias != nullptr) {
    result = _mm256_add_ps(result, _mm256_maskload_ps(range.bias + first, mask));
  }
  if (range.add != 0) result = _mm256_add_ps(_mm256_maskload_ps(y, mask), result);
  _mm256_maskstore_ps(y, mask, result);
}

}  // namespace coli
