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

// The same of bytes that stand for powers of two.
COLI_INLINE __m512 load_powers(const uint8_t* stream, int64_t index) {
  const __m512i bytes =
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(stream + index)));
  const __m512i one = _mm512_set1_epi32(1);
  const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(bytes, one), 23);
  const __m512i least = _mm512_sllv_epi32(_mm512_set1_epi32(kLeastPowerBits), bytes);
  const __mmask16 is_least = _mm512_cmple_epu32_mask(bytes, one);
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_least, least));
}

// Sixteen scales of whatever type a matrix of such codes may have.
template <Code kCode>
COLI_INLINE __m512 load_group_scales(const IntMatrix& w, const uint8_t* stream, int64_t index) {
  if (kCode == Code::kLevel && w.scale_e8m0 != 0) return load_powers(stream, index);
  return load_scales(stream, index, w.scale_f16 != 0);
}

// The levels of a matrix in every 128 bits; nothing where its codes are the numbers themselves.
template <Code kCode>
COLI_INLINE __m512i load_levels(const IntMatrix& w) {
  if (kCode != Code::kLevel) return _mm512_setzero_si512();
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w.levels)));
}

// Inputs k..k+3 and k+4..k+7 of a tile, one byte each: codes, or the levels they number.
template <Code kCode>
COLI_INLINE void load_codes(const uint8_t* codes, int64_t k, __m512i levels, __m512i* pair) {
  if (kCode == Code::kByte) {
    pair[0] = _mm512_loadu_si512(codes + k * 16);
    pair[1] = _mm512_loadu_si512(codes + k * 16 + 64);
    return;
  }
  const __m512i nibble = _mm512_set1_epi8(15);
  const __m512i both = _mm512_loadu_si512(codes + k * 8);
  pair[0] = _mm512_and_si512(both, nibble);
  pair[1] = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
  if (kCode != Code::kLevel) return;
  pair[0] = _mm512_shuffle_epi8(levels, pair[0]);
  pair[1] = _mm512_shuffle_epi8(levels, pair[1]);
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
