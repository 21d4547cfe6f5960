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
