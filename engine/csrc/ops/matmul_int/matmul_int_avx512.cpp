// Integer products with VNNI: one lane per output row, no horizontal sums.
//
// A 64-byte vector of codes is 16 output rows by 4 inputs (twice that at 4 bits), so vpdpbusd
// with 4 broadcast activation bytes adds 64 products. The two activation planes have an
// accumulator each, joined as 256 * high + low once per kernel group. Blocks of 4 rows by 2 tiles
// need 16 integer and 8 float accumulators, which with codes and activations fills 32 registers.
#include "ops/matmul_int/blocks.h"
#include "ops/matmul_int/matmul_int.h"
#include "ops/matmul_int/tile_avx512.h"

namespace coli {
namespace {

// Up to this many rows wait for memory: they take one tile at a time, as one linear stream. Codes
// of 4 bits carry twice the products per byte.
template <Code kCode>
constexpr int64_t linear_rows() {
  return kCode == Code::kByte ? 8 : 3;
}

// Activations kept in the L2 cache while all tiles pass over them.
constexpr int64_t kPanelBytes = 384 << 10;

COLI_INLINE __m512i broadcast4(const uint8_t* bytes) {
  int32_t word = 0;
  __builtin_memcpy(&word, bytes, sizeof word);
  return _mm512_set1_epi32(word);
}

// Exact sums over one kernel group, on top of the start values already in the last plane.
// kSize is the group's size when it is known to the compiler, else 0.
template <Code kCode, int kPlanes, int kRows, int kTiles, int kSize>
COLI_INLINE void sum_group(const Product& p, const Block<kRows>& block, int64_t begin,
                           __m512i (&sums)[kPlanes][kTiles][kRows]) {
  const int64_t end = begin + (kSize != 0 ? kSize : p.size);
  const __m512i levels = load_levels<kCode>(p.w);
#pragma GCC unroll 8
  for (int64_t k = begin; k < end; k += 8) {
    __m512i codes[kTiles][2];
    for (int t = 0; t < kTiles; ++t) {
      const uint8_t* stream = block.codes + t * block.code_stride;
      load_codes<kCode>(stream, k, levels, codes[t]);
      fetch_codes<kCode, kRows, kTiles>(block, stream + k * 2 * code_bits(kCode));
    }
    for (int half = 0; half < 2; ++half) {
      for (int r = 0; r < kRows; ++r) {
        for (int plane = 0; plane < kPlanes; ++plane) {
          const uint8_t* row = block.rows[r] + plane * p.a.padded_inputs;
          const __m512i values = broadcast4(row + k + half * 4);
          for (int t = 0; t < kTiles; ++t) {
            sums[plane][t][r] = _mm512_dpbusd_epi32(sums[plane][t][r], codes[t][half], values);
          }
        }
      }
    }
  }
}

// Adds one kernel group's sums to the results: scale product, then fused multiply-add.
template <Code kCode, int kPlanes, int kRows, int kTiles>
COLI_INLINE void add_group(const Product& p, const Block<kRows>& block, const Group& group,
                           const int32_t (&row_sums)[kRows],
                           __m512i (&sums)[kPlanes][kTiles][kRows], __m512 (&acc)[kTiles][kRows]) {
  const int64_t index = group.scale_index * kTile;
  const int64_t act_index = group.begin >> p.act_shift;
  if (kTiles == 1) fetch_scales(p, block, index);
  for (int t = 0; t < kTiles; ++t) {
    const __m512 scales =
        load_group_scales<kCode>(p.w, block.scales + t * block.scale_stride, index);
    for (int r = 0; r < kRows; ++r) {
      __m512i sum = sums[kPlanes - 1][t][r];
      if (kPlanes == 2) sum = _mm512_add_epi32(_mm512_slli_epi32(sums[0][t][r], 8), sum);
      const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(block.act_scales[r][act_index]));
      acc[t][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, acc[t][r]);
    }
  }
  if (block.mins == nullptr) return;
  for (int t = 0; t < kTiles; ++t) {
    const __m512 mins = load_group_scales<kCode>(p.w, block.mins + t * block.scale_stride, index);
    for (int r = 0; r < kRows; ++r) {
      const __m512 min = _mm512_mul_ps(mins, _mm512_set1_ps(block.act_scales[r][act_index]));
      const __m512 row_sum = _mm512_cvtepi32_ps(_mm512_set1_epi32(row_sums[r]));
      acc[t][r] = _mm512_fmadd_ps(row_sum, min, acc[t][r]);
    }
  }
}

template <Code kCode, int kPlanes, int kRows, int kTiles, int kSize>
void multiply_block(const Product& p, int64_t tile, int64_t row, bool is_first) {
  const Block<kRows> block = locate_block<kRows>(p, tile, row, is_first);
  // The zero point leaves the inner loop: sum (c - z) v = sum c v - z sum v, all exact.
  const int32_t factor = block.mins != nullptr ? 0 : -p.w.zero;
  Group group = first_group(p);
  __m512 acc[kTiles][kRows] = {};
  while (group.begin < p.w.padded_inputs) {
    __m512i sums[kPlanes][kTiles][kRows] = {};
    int32_t row_sums[kRows];
    for (int r = 0; r < kRows; ++r) {
      row_sums[r] = sum_values(block.sums[r], group.begin, kSize != 0 ? kSize : p.size);
      const __m512i start = _mm512_set1_epi32(row_sums[r] * factor);
      for (int t = 0; t < kTiles; ++t) sums[kPlanes - 1][t][r] = start;
    }
    sum_group<kCode, kPlanes, kRows, kTiles, kSize>(p, block, group.begin, sums);
    add_group<kCode, kPlanes, kRows, kTiles>(p, block, group, row_sums, sums, acc);
    step_group(p, group);
  }
  for (int t = 0; t < kTiles; ++t) {
    for (int r = 0; r < kRows; ++r) {
      store_outputs(p.w, p.range, tile + t, row + r, acc[t][r]);
    }
  }
}

template <Code kCode, int kPlanes, int kTiles>
void multiply_rows(const Product& p, int64_t tile, int64_t row_begin, int64_t row_end) {
  int64_t row = row_begin;
  for (; row + 4 <= row_end; row += 4) {
    const bool is_first = row == row_begin;
    // Groups of 32 are the common case, unrolled for 3 % more.
    p.size == 32 ? multiply_block<kCode, kPlanes, 4, kTiles, 32>(p, tile, row, is_first)
                 : multiply_block<kCode, kPlanes, 4, kTiles, 0>(p, tile, row, is_first);
  }
  const bool is_first = row == row_begin;
  if (row_end - row == 3) multiply_block<kCode, kPlanes, 3, kTiles, 0>(p, tile, row, is_first);
  if (row_end - row == 2) multiply_block<kCode, kPlanes, 2, kTiles, 0>(p, tile, row, is_first);
  if (row_end - row == 1) multiply_block<kCode, kPlanes, 1, kTiles, 0>(p, tile, row, is_first);
}

template <Code kCode, int kPlanes>
void multiply_one_row(const Product& p, int64_t row) {
  for (int64_t tile = p.range.tile_begin; tile < p.range.tile_end; ++tile) {
    if (p.size == 64) multiply_block<kCode, kPlanes, 1, 1, 64>(p, tile, row, true);
    if (p.size == 32) multiply_block<kCode, kPlanes, 1, 1, 32>(p, tile, row, true);
    if (p.size == 16) multiply_block<kCode, kPlanes, 1, 1, 16>(p, tile, row, true);
  }
}

template <Code kCode, int kPlanes>
void multiply_range(const Product& p) {
  const MatmulRange& range = p.range;
  const int64_t num_rows = range.row_end - range.row_begin;
  if (num_rows <= linear_rows<kCode>()) fetch_start(p);
  if (num_rows == 1) {
    multiply_one_row<kCode, kPlanes>(p, range.row_begin);
    return;
  }
  int64_t panel = kPanelBytes / (kPlanes * p.a.padded_inputs) / 4 * 4;
  if (panel < 4) panel = 4;
  for (int64_t row = range.row_begin; row < range.row_end; row += panel) {
    const int64_t row_end = row + panel < range.row_end ? row + panel : range.row_end;
    int64_t tile = range.tile_begin;
    for (; num_rows > linear_rows<kCode>() && tile + 2 <= range.tile_end; tile += 2) {
      multiply_rows<kCode, kPlanes, 2>(p, tile, row, row_end);
    }
    for (; tile < range.tile_end; ++tile) multiply_rows<kCode, kPlanes, 1>(p, tile, row, row_end);
  }
}

}  // namespace

void matmul_int_avx512(const IntMatrix& w, const QuantRows& a, const MatmulRange& range) {
  if (is_empty(range)) return;
  const Product p = describe_product(w, a, range);
  const bool is_fast = a.numerics == Numerics::kFast;
  switch (code_of(w)) {
    case Code::kNibble:
      return is_fast ? multiply_range<Code::kNibble, 1>(p) : multiply_range<Code::kNibble, 2>(p);
    case Code::kByte:
      return is_fast ? multiply_range<Code::kByte, 1>(p) : multiply_range<Code::kByte, 2>(p);
    case Code::kLevel:
      return is_fast ? multiply_range<Code::kLevel, 1>(p) : multiply_range<Code::kLevel, 2>(p);
  }
}

}  // namespace coli
