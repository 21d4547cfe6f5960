// Integer products with the matrix extension: usmmla multiplies 2 output rows by 2 activation
// rows over 8 inputs, unsigned codes by signed values.
//
// Its code operand is a zip of two neighbouring blocks of 4 inputs. Four rows by half a tile need
// 16 integer and 8 float accumulators of the 32 registers. A single row, which would fill half
// of each instruction, goes the NEON way on the same quantized rows.
#include "ops/matmul_int/blocks.h"
#include "ops/matmul_int/matmul_int.h"
#include "ops/matmul_int/tile_neon.h"

namespace coli {
namespace {

// Eight outputs: two quarters, each two pairs of output rows.
constexpr int kQuarters = 2;
constexpr int kCodePairs = 2 * kQuarters;

// Inputs k..k+7 of two rows side by side.
COLI_INLINE int8x16_t load_row_pair(const uint8_t* first, const uint8_t* second) {
  return vreinterpretq_s8_u8(vcombine_u8(vld1_u8(first), vld1_u8(second)));
}

template <Code kCode>
COLI_INLINE void load_code_pairs(const uint8_t* codes, int64_t k, uint8x16_t levels,
                                 uint8x16_t* pairs) {
  for (int q = 0; q < kQuarters; ++q) {
    uint8x16_t blocks[2];
    load_codes<kCode>(codes + q * 16, k, levels, blocks);
    const uint32x4_t first = vreinterpretq_u32_u8(blocks[0]);
    const uint32x4_t second = vreinterpretq_u32_u8(blocks[1]);
    pairs[2 * q] = vreinterpretq_u8_u32(vzip1q_u32(first, second));
    pairs[2 * q + 1] = vreinterpretq_u8_u32(vzip2q_u32(first, second));
  }
}

// Exact sums over one kernel group: lanes are (output, row) = (0, 0), (0, 1), (1, 0), (1, 1).
template <Code kCode, int kPlanes, int kPairs>
COLI_INLINE void sum_group(const Product& p, const Block<2 * kPairs>& block, int64_t begin,
                           int32x4_t (&sums)[kPlanes][kPairs][kCodePairs]) {
  const uint8x16_t levels = load_levels<kCode>(p.w);
  for (int64_t k = begin; k < begin + p.size; k += 8) {
    fetch_codes<kCode, 2 * kPairs, 1>(block, block.codes + k * 2 * code_bits(kCode));
    uint8x16_t codes[kCodePairs];
    load_code_pairs<kCode>(block.codes, k, levels, codes);
    for (int pair = 0; pair < kPairs; ++pair) {
      for (int plane = 0; plane < kPlanes; ++plane) {
        const int64_t at = plane * p.a.padded_inputs + k;
        const int8x16_t values =
            load_row_pair(block.rows[2 * pair] + at, block.rows[2 * pair + 1] + at);
        for (int c = 0; c < kCodePairs; ++c) {
          sums[plane][pair][c] = vusmmlaq_s32(sums[plane][pair][c], codes[c], values);
        }
      }
    }
  }
}

// Adds one kernel group's sums of a quarter to the results of one pair of rows.
template <int kPlanes>
COLI_INLINE void add_quarter(const int32x4_t* const (&planes)[kPlanes], float32x4_t scales,
                             const float (&act_scales)[2], float32x4_t* acc) {
  int32x4_t joined[2];
  for (int c = 0; c < 2; ++c) {
    joined[c] = planes[kPlanes - 1][c];
    if (kPlanes == 2) joined[c] = vaddq_s32(vshlq_n_s32(planes[0][c], 8), joined[c]);
  }
  acc[0] = add_sums(acc[0], vuzp1q_s32(joined[0], joined[1]), scales, act_scales[0]);
  acc[1] = add_sums(acc[1], vuzp2q_s32(joined[0], joined[1]), scales, act_scales[1]);
}

template <Code kCode, int kPlanes, int kPairs>
COLI_INLINE void add_group(const Product& p, const Block<2 * kPairs>& block, const Group& group,
                           const int32_t (&row_sums)[2 * kPairs],
                           const int32x4_t (&sums)[kPlanes][kPairs][kCodePairs],
                           float32x4_t (&acc)[kQuarters][2 * kPairs]) {
  const int64_t index = group.scale_index * kTile;
  const int64_t act_index = group.begin >> p.act_shift;
  fetch_scales(p, block, index);
  for (int q = 0; q < kQuarters; ++q) {
    const int64_t at = index + q * kQuarterTile;
    const float32x4_t scales = load_group_scales<kCode>(p.w, block.scales, at);
    for (int pair = 0; pair < kPairs; ++pair) {
      const int32x4_t* planes[kPlanes];
      for (int plane = 0; plane < kPlanes; ++plane) planes[plane] = &sums[plane][pair][2 * q];
      const float act_scales[2] = {block.act_scales[2 * pair][act_index],
                                   block.act_scales[2 * pair + 1][act_index]};
      add_quarter<kPlanes>(planes, scales, act_scales, &acc[q][2 * pair]);
    }
    if (block.mins == nullptr) continue;
    const float32x4_t mins = load_group_scales<kCode>(p.w, block.mins, at);
    for (int r = 0; r < 2 * kPairs; ++r) {
      const int32x4_t row_sum = vdupq_n_s32(row_sums[r]);
      acc[q][r] = add_sums(acc[q][r], row_sum, mins, block.act_scales[r][act_index]);
    }
  }
}

template <Code kCode, int kPlanes, int kPairs>
COLI_INLINE void multiply_half(const Product& p, const Block<2 * kPairs>& block, int64_t output,
                               int64_t row) {
  // The zero point leaves the inner loop: sum (c - z) v = sum c v - z sum v, all exact.
  const int32_t factor = block.mins != nullptr ? 0 : -p.w.zero;
  Group group = first_group(p);
  float32x4_t acc[kQuarters][2 * kPairs] = {};
  while (group.begin < p.w.padded_inputs) {
    int32x4_t sums[kPlanes][kPairs][kCodePairs] = {};
    int32_t row_sums[2 * kPairs];
    for (int r = 0; r < 2 * kPairs; ++r) {
      row_sums[r] = sum_values(block.sums[r], group.begin, p.size);
    }
    for (int pair = 0; pair < kPairs; ++pair) {
      const int32x2_t starts = {row_sums[2 * pair] * factor, row_sums[2 * pair + 1] * factor};
      for (int c = 0; c < kCodePairs; ++c) {
        sums[kPlanes - 1][pair][c] = vcombine_s32(starts, starts);
      }
    }
    sum_group<kCode, kPlanes, kPairs>(p, block, group.begin, sums);
    add_group<kCode, kPlanes, kPairs>(p, block, group, row_sums, sums, acc);
    step_group(p, group);
  }
  for (int q = 0; q < kQuarters; ++q) {
    for (int r = 0; r < 2 * kPairs; ++r) {
      store_outputs(p.w, p.range, output + q * kQuarterTile, row + r, acc[q][r]);
    }
  }
}

template <Code kCode, int kPlanes, int kPairs>
void multiply_block(const Product& p, int64_t tile, int64_t row, bool is_first) {
  constexpr int64_t kHalfTile = kQuarters * kQuarterTile;
  Block<2 * kPairs> block = locate_block<2 * kPairs>(p, tile, row, is_first);
  multiply_half<kCode, kPlanes, kPairs>(p, block, tile * kTile, row);
  block.codes += kHalfTile * 4;
  block.scales += kHalfTile * scale_bytes(p.w);
  if (block.mins != nullptr) block.mins += kHalfTile * scale_bytes(p.w);
  block.codes_end = nullptr;
  block.scales_end = nullptr;
  multiply_half<kCode, kPlanes, kPairs>(p, block, tile * kTile + kHalfTile, row);
}

template <Code kCode, int kPlanes>
void multiply_range(const Product& p) {
  const MatmulRange& range = p.range;
  fetch_start(p);
  int64_t panel = kPanelBytes / (kPlanes * p.a.padded_inputs) / 4 * 4;
  if (panel < 4) panel = 4;
  for (int64_t begin = range.row_begin; begin < range.row_end; begin += panel) {
    const int64_t end = begin + panel < range.row_end ? begin + panel : range.row_end;
    for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
      int64_t row = begin;
      for (; row + 4 <= end; row += 4) {
        multiply_block<kCode, kPlanes, 2>(p, tile, row, row == begin);
      }
      if (row + 2 <= end) multiply_block<kCode, kPlanes, 1>(p, tile, row, row == begin);
    }
  }
}

void multiply_pairs(const Product& p, bool is_fast) {
  switch (code_of(p.w)) {
    case Code::kNibble:
      return is_fast ? multiply_range<Code::kNibble, 1>(p) : multiply_range<Code::kNibble, 2>(p);
    case Code::kByte:
      return is_fast ? multiply_range<Code::kByte, 1>(p) : multiply_range<Code::kByte, 2>(p);
    case Code::kLevel:
      return is_fast ? multiply_range<Code::kLevel, 1>(p) : multiply_range<Code::kLevel, 2>(p);
  }
}

}  // namespace

void quantize_row_i8mm(const float* x, int64_t num_inputs, int64_t padded_inputs, Numerics numerics,
                       uint8_t* data, float* scales, int32_t* sums) {
  quantize_row_neon(x, num_inputs, padded_inputs, numerics, data, scales, sums);
}

void matmul_int_i8mm(const IntMatrix& w, const QuantRows& a, const MatmulRange& range) {
  if (is_empty(range)) return;
  const Product p = describe_product(w, a, range);
  const bool is_fast = a.numerics == Numerics::kFast;
  const int64_t paired_end = range.row_end - (range.row_end - range.row_begin) % 2;
  if (paired_end > range.row_begin) multiply_pairs(p, is_fast);
  if (paired_end == range.row_end) return;
  MatmulRange last = range;
  last.row_begin = paired_end;
  matmul_int_neon(w, a, last);
}

void matmul_int_float_i8mm(const IntMatrix& w, const FloatRows& a, const MatmulRange& range) {
  matmul_int_float_neon(w, a, range);
}

}  // namespace coli
