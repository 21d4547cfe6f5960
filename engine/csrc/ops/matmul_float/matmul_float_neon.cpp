// Float products with NEON: a quarter weight tile is one register, an output four accumulators.
//
// One row takes a whole tile (16 accumulators). More rows go three at a time over half a tile
// (24 of 32 registers accumulate).
#include "ops/matmul_float/matmul_float.h"

#include <arm_neon.h>

namespace coli {

namespace {

constexpr int64_t kMaxRows = 3;
constexpr int64_t kRowBlock = 48;  // rows per sweep over the weights; their inputs stay in L2
constexpr int64_t kLanes = 4;

// The outputs of one tile, or of one half of it, for up to three rows.
struct Block {
  const MatmulRange* range;
  int64_t num_outputs;
  int64_t first_output;
  int64_t row;
};

template <FloatKind kKind>
float32x4_t load_weights(const void* data, int64_t index, float32x4_t scales) {
  if constexpr (kKind == FloatKind::kE4m3) {
    uint32_t codes = 0;
    __builtin_memcpy(&codes, static_cast<const uint8_t*>(data) + index, sizeof codes);
    const int16x8_t wide = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(codes)));
    const uint16x4_t shifted = vreinterpret_u16_s16(vshl_n_s16(vget_low_s16(wide), 7));
    const uint16x4_t halves = vand_u16(shifted, vdup_n_u16(0xBFFF));
    return vmulq_f32(vcvt_f32_f16(vreinterpret_f16_u16(halves)), scales);
  } else if constexpr (kKind == FloatKind::kF32) {
    return vld1q_f32(static_cast<const float*>(data) + index);
  } else {
    const uint16x4_t bits = vld1_u16(static_cast<const uint16_t*>(data) + index);
    if constexpr (kKind == FloatKind::kF16) return vcvt_f32_f16(vreinterpret_f16_u16(bits));
    return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
  }
}

// Writes 4 outputs of one row: bias, sum and the ragged last tile.
void store_outputs(const Block& block, int row, int part, float32x4_t result) {
  const MatmulRange& range = *block.range;
  const int64_t first = block.first_output + part * kLanes;
  const int64_t left = block.num_outputs - first;
  float* y = range.y + (block.row + row) * range.ldy + first;
  if (left >= kLanes) {
    if (range.bias != nullptr) result = vaddq_f32(result, vld1q_f32(range.bias + first));
    if (range.add != 0) result = vaddq_f32(vld1q_f32(y), result);
    vst1q_f32(y, result);
    return;
  }
  float lanes[kLanes];
  vst1q_f32(lanes, result);
  for (int64_t l = 0; l < left; ++l) {
    const float biased = range.bias != nullptr ? lanes[l] + range.bias[first + l] : lanes[l];
    y[l] = range.add != 0 ? y[l] + biased : biased;
  }
}

// kParts quarter tiles (from block.first_output) times kRows rows.
template <FloatKind kKind, int kParts, int kRows>
void multiply_block(const FloatMatrix& w, const float* const* x, const Block& block) {
  const int64_t num_inputs = w.num_inputs;
  const int64_t run = kKind == FloatKind::kE4m3 ? w.group : num_inputs;  // inputs of one scale
  const int64_t tile = block.first_output / kTile;
  const int64_t first = tile * num_inputs * kTile + block.first_output % kTile;
  float32x4_t scales[kParts] = {};
  const float* rows[kRows];
  float32x4_t acc[kParts][kRows][4];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    rows[r] = x[r];
    for (int p = 0; p < kParts; ++p) {
      for (int q = 0; q < 4; ++q) acc[p][r][q] = vdupq_n_f32(0.0F);
    }
  }
  const auto step = [&](int64_t k, int q) {
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) {
      const int64_t index = first + k * kTile + p * kLanes;
      const float32x4_t weights = load_weights<kKind>(w.data, index, scales[p]);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        acc[p][r][q] = vfmaq_f32(acc[p][r][q], weights, vld1q_dup_f32(rows[r] + k));
      }
    }
  };
  int64_t k = 0;
  for (int64_t begin = 0; begin < num_inputs; begin += run) {
    if constexpr (kKind == FloatKind::kE4m3) {
      const float* group = w.scales + (tile * w.num_groups + begin / run) * kTile;
      for (int p = 0; p < kParts; ++p) {
        scales[p] = vld1q_f32(group + block.first_output % kTile + p * kLanes);
      }
    }
    const int64_t end = run < num_inputs - begin ? begin + run : num_inputs;
    for (; k + 4 <= end; k += 4) {
      step(k, 0);
      step(k + 1, 1);
      step(k + 2, 2);
      step(k + 3, 3);
    }
  }
  if (k < num_inputs) step(k, 0);
  if (k + 1 < num_inputs) step(k + 1, 1);
  if (k + 2 < num_inputs) step(k + 2, 2);
#pragma GCC unroll 4
  for (int p = 0; p < kParts; ++p) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const float32x4_t even = vaddq_f32(acc[p][r][0], acc[p][r][1]);
      const float32x4_t odd = vaddq_f32(acc[p][r][2], acc[p][r][3]);
      store_outputs(block, r, p, vaddq_f32(even, odd));
    }
  }
}

// One tile for up to three rows.
template <FloatKind kKind>
void multiply_rows(const FloatMatrix& w, const float* const* x, int64_t num_rows,
                   const Block& block) {
  if (num_rows == 1) return multiply_block<kKind, 4, 1>(w, x, block);
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t first = block.first_output + half * kTile / 2;
    const Block part{block.range, block.num_outputs, first, block.row};
    if (first >= block.num_outputs) break;
    if (num_rows == 2) {
      multiply_block<kKind, 2, 2>(w, x, part);
    } else {
      multiply_block<kKind, 2, 3>(w, x, part);
    }
  }
}

// Rows of the next pass: three, or two and two for the last four.
int64_t pass_rows(int64_t left) {
  if (left <= kMaxRows) return left;
  return left == 4 ? 2 : kMaxRows;
}

template <FloatKind kKind>
void multiply(const FloatMatrix& w, const FloatRows& a, const MatmulRange& range) {
  const float* x[kRowBlock];
  for (int64_t begin = range.row_begin; begin < range.row_end; begin += kRowBlock) {
    const int64_t left = range.row_end - begin;
    const int64_t num_rows = left < kRowBlock ? left : kRowBlock;
    for (int64_t r = 0; r < num_rows; ++r) {
      const int64_t source = range.row_index != nullptr ? range.row_index[begin + r] : begin + r;
      x[r] = a.x + source * a.ldx;
    }
    for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
      for (int64_t r = 0; r < num_rows;) {
        const int64_t count = pass_rows(num_rows - r);
        multiply_rows<kKind>(w, x + r, count, {&range, w.num_outputs, tile * kTile, begin + r});
        r += count;
      }
    }
  }
}

}  // namespace

void matmul_float_neon(const FloatMatrix& w, const FloatRows& a, const MatmulRange& range) {
  switch (w.kind) {
    case FloatKind::kF32:
      return multiply<FloatKind::kF32>(w, a, range);
    case FloatKind::kF16:
      return multiply<FloatKind::kF16>(w, a, range);
    case FloatKind::kBf16:
      return multiply<FloatKind::kBf16>(w, a, range);
    case FloatKind::kE4m3:
      return multiply<FloatKind::kE4m3>(w, a, range);
  }
}

}  // namespace coli
