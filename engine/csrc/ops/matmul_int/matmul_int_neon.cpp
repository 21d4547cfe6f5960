// Integer products with the dot-product extension: one lane per output row.
//
// sdot wants signed codes: 4-bit ones are so as they are, 8-bit ones and levels become code - 128 by
// a flip of the top bit, which the start value of the sums makes good. Two rows by one tile need 16
// integer and 8 float accumulators of the 32 registers.
#include "ops/matmul_int/blocks.h"
#include "ops/matmul_int/matmul_int.h"
#include "ops/matmul_int/tile_neon.h"

namespace coli {
namespace {

COLI_INLINE int8x16_t load_values(const uint8_t* values) {
  return vreinterpretq_s8_u8(vld1q_u8(values));
}

template <Code kCode>
COLI_INLINE int8x16_t as_signed(uint8x16_t codes) {
  return vreinterpretq_s8_u8(kCode != Code::kNibble ? veorq_u8(codes, vdupq_n_u8(128)) : codes);
}

// Exact sums over 16 inputs of one quarter of a tile.
template <Code kCode, int kPlanes, int kRows>
COLI_INLINE void sum_quarter(const uint8_t* codes, int64_t k, uint8x16_t levels,
                             const int8x16_t (&values)[kRows][kPlanes],
                             int32x4_t (&sums)[kPlanes][kRows]) {
  uint8x16_t first[2];
  uint8x16_t second[2];
  load_codes<kCode>(codes, k, levels, first);
  load_codes<kCode>(codes, k + 8, levels, second);
  for (int r = 0; r < kRows; ++r) {
    for (int plane = 0; plane < kPlanes; ++plane) {
      const int8x16_t v = values[r][plane];
      int32x4_t sum = sums[plane][r];
      sum = vdotq_laneq_s32(sum, as_signed<kCode>(first[0]), v, 0);
      sum = vdotq_laneq_s32(sum, as_signed<kCode>(first[1]), v, 1);
      sum = vdotq_laneq_s32(sum, as_signed<kCode>(second[0]), v, 2);
      sums[plane][r] = vdotq_laneq_s32(sum, as_signed<kCode>(second[1]), v, 3);
    }
  }
}

// Exact sums over one kernel group, on top of the start values already in the last plane.
template <Code kCode, int kPlanes, int kRows>
COLI_INLINE void sum_group(const Product& p, const Block<kRows>& block, int64_t begin,
                           int32x4_t (&sums)[4][kPlanes][kRows]) {
  const uint8x16_t levels = load_levels<kCode>(p.w);
  for (int64_t k = begin; k < begin + p.size; k += 16) {
    const uint8_t* codes = block.codes + k * 2 * code_bits(kCode);
    fetch_codes<kCode, kRows, 1>(block, codes);
    fetch_codes<kCode, kRows, 1>(block, codes + 16 * code_bits(kCode));
    int8x16_t values[kRows][kPlanes];
    for (int r = 0; r < kRows; ++r) {
      for (int plane = 0; plane < kPlanes; ++plane) {
        values[r][plane] = load_values(block.rows[r] + plane * p.a.padded_inputs + k);
      }
    }
    for (int q = 0; q < 4; ++q) {
      // Keeps the compiler from loading all quarters first, which spills accumulators.
      __asm__ volatile("" ::: "memory");
      sum_quarter<kCode, kPlanes, kRows>(block.codes + q * 16, k, levels, values, sums[q]);
    }
  }
}

// Adds one kernel group's sums to the results: scale product, then fused multiply-add.
template <Code kCode, int kPlanes, int kRows>
COLI_INLINE void add_group(const Product& p, const Block<kRows>& block, const Group& group,
                           const int32_t (&row_sums)[kRows],
                           const int32x4_t (&sums)[4][kPlanes][kRows],
                           float32x4_t (&acc)[4][kRows]) {
  const int64_t index = group.scale_index * kTile;
  const int64_t act_index = group.begin >> p.act_shift;
  fetch_scales(p, block, index);
  for (int q = 0; q < 4; ++q) {
    const int64_t at = index + q * kQuarterTile;
    const float32x4_t scales = load_group_scales<kCode>(p.w, block.scales, at);
    for (int r = 0; r < kRows; ++r) {
      int32x4_t sum = sums[q][kPlanes - 1][r];
      if (kPlanes == 2) sum = vaddq_s32(vshlq_n_s32(sums[q][0][r], 8), sum);
      acc[q][r] = add_sums(acc[q][r], sum, scales, block.act_scales[r][act_index]);
    }
    if (block.mins == nullptr) continue;
    const float32x4_t mins = load_group_scales<kCode>(p.w, block.mins, at);
    for (int r = 0; r < kRows; ++r) {
      const int32x4_t row_sum = vdupq_n_s32(row_sums[r]);
      acc[q][r] = add_sums(acc[q][r], row_sum, mins, block.act_scales[r][act_index]);
    }
  }
}

template <Code kCode, int kPlanes, int kRows>
void multiply_block(const Product& p, int64_t tile, int64_t row, bool is_first) {
  const Block<kRows> block = locate_block<kRows>(p, tile, row, is_first);
  // The zero point leaves the inner loop: sum (c - z) v = sum c v - z sum v, all exact. Where the
  // codes are c - 128, 128 comes back the same way.
  const int32_t factor =
      (kCode != Code::kNibble ? 128 : 0) - (block.mins != nullptr ? 0 : p.w.zero);
  Group group = first_group(p);
  float32x4_t acc[4][kRows] = {};
  while (group.begin < p.w.padded_inputs) {
    int32x4_t sums[4][kPlanes][kRows] = {};
    int32_t row_sums[kRows];
    for (int r = 0; r < kRows; ++r) {
      row_sums[r] = sum_values(block.sums[r], group.begin, p.size);
      const int32x4_t start = vdupq_n_s32(row_sums[r] * factor);
      for (int q = 0; q < 4; ++q) sums[q][kPlanes - 1][r] = start;
    }
    sum_group<kCode, kPlanes, kRows>(p, block, group.begin, sums);
    add_group<kCode, kPlanes, kRows>(p, block, group, row_sums, sums, acc);
    step_group(p, group);
  }
  for (int q = 0; q < 4; ++q) {
    for (int r = 0; r < kRows; ++r) {
      store_outputs(p.w, p.range, tile * kTile + q * kQuarterTile, row + r, acc[q][r]);
    }
  }
}

template <Code kCode, int kPlanes>
void multiply_range(const Product& p) {
  const MatmulRange& range = p.range;
  fetch_start(p);
  int64_t panel = kPanelBytes / (kPlanes * p.a.padded_inputs) / 2 * 2;
  if (panel < 2) panel = 2;
  for (int64_t begin = range.row_begin; begin < range.row_end; begin += panel) {
    const int64_t end = begin + panel < range.row_end ? begin + panel : range.row_end;
    for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
      int64_t row = begin;
      for (; row + 2 <= end; row += 2) {
        multiply_block<kCode, kPlanes, 2>(p, tile, row, row == begin);
      }
      if (row < end) multiply_block<kCode, kPlanes, 1>(p, tile, row, row == begin);
    }
  }
}

}  // namespace

void matmul_int_neon(const IntMatrix& w, const QuantRows& a, const MatmulRange& range) {
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
