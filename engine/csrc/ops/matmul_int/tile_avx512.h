// Pieces of a tile in 512-bit registers, for the AVX-512 and AMX sources only.
#pragma once

// GCC 12 takes the deliberately undefined operand inside its own 512-bit intrinsics for a mistake.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include "ops/matmul_int/blocks.h"

namespace coli {

// Sixteen scales or minimums from element `index` of a tile's stream.
COLI_INLINE __m512 load_scales(const uint8_t* stream, int64_t index, bool is_half) {
  if (is_half) {
    return _mm512_cvtph_ps(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(stream + index * 2)));
  }
  return _mm512_loadu_ps(stream + index * 4);
}

// Codes of inputs k..k+3 and k+4..k+7 of a tile, one byte each.
template <int kBits>
COLI_INLINE void load_codes(const uint8_t* codes, int64_t k, __m512i* pair) {
  if (kBits == 8) {
    pair[0] = _mm512_loadu_si512(codes + k * 16);
    pair[1] = _mm512_loadu_si512(codes + k * 16 + 64);
  } else {
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i both = _mm512_loadu_si512(codes + k * 8);
    pair[0] = _mm512_and_si512(both, nibble);
    pair[1] = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
  }
}

// Writes one tile's results of a row, the padding outputs left out.
COLI_INLINE void store_outputs(const IntMatrix& w, const MatmulRange& range, int64_t tile,
                               int64_t row, __m512 result) {
  const int64_t count = tile_outputs(w, tile);
  const __mmask16 mask = static_cast<__mmask16>((1U << count) - 1U);
  float* y = range.y + row * range.ldy + tile * kTile;
  if (range.bias != nullptr) {
    result = _mm512_add_ps(result, _mm512_maskz_loadu_ps(mask, range.bias + tile * kTile));
  }
  if (range.add != 0) result = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), result);
  _mm512_mask_storeu_ps(y, mask, result);
}

}  // namespace coli
