// How every vector variant walks a product: blocks of a few tiles by a few rows, one kernel group
// after the other, with the streams of weights fetched ahead.
//
// Static functions only, see geometry.h.
#pragma once

#include "ops/matmul_int/geometry.h"

// Blocks live in registers only when all of their steps are inlined into one function.
#define COLI_INLINE static inline __attribute__((always_inline))

namespace coli {

// How far few rows, which wait for memory only, fetch their streams ahead. Measured on Zen 5: a
// single linear stream of codes so fetched reads as fast as memory goes; two tiles side by side
// reached two thirds of that, and the hardware prefetchers alone 85 %.
static constexpr int64_t kCodesAhead = 8192;
static constexpr int64_t kScalesAhead = 1024;

// What a code is: the number itself, in 4 or 8 bits, or 4 bits that number a level.
enum class Code { kNibble, kByte, kLevel };

static constexpr int code_bits(Code code) { return code == Code::kByte ? 8 : 4; }

static inline Code code_of(const IntMatrix& w) {
  if (w.bits == 8) return Code::kByte;
  return w.has_levels != 0 ? Code::kLevel : Code::kNibble;
}

struct Product {
  const IntMatrix& w;
  const QuantRows& a;
  const MatmulRange& range;
  int64_t size;       // inputs per kernel group
  int64_t act_shift;  // log2 of the inputs per activation scale
};

COLI_INLINE Product describe_product(const IntMatrix& w, const QuantRows& a,
                                     const MatmulRange& range) {
  return {w, a, range, kernel_group(w, a.numerics), a.numerics == Numerics::kFast ? 5 : 6};
}

COLI_INLINE bool is_empty(const MatmulRange& range) {
  return range.tile_begin >= range.tile_end || range.row_begin >= range.row_end;
}

// Where a block of tiles and rows starts, and the strides inside it.
template <int kRows>
struct Block {
  const uint8_t* codes;
  const uint8_t* scales;
  const uint8_t* mins;  // null: symmetric weights
  int64_t code_stride;
  int64_t scale_stride;
  // Bound of fetching ahead: the end of the matrix, since the same thread usually goes on where a
  // range ends; null in all but the first block that reads a tile.
  const uint8_t* codes_end;
  const uint8_t* scales_end;
  const uint8_t* rows[kRows];
  const float* act_scales[kRows];
  const int32_t* sums[kRows];
};

template <int kRows>
COLI_INLINE Block<kRows> locate_block(const Product& p, int64_t tile, int64_t row, bool is_first) {
  Block<kRows> block = {};
  block.codes = tile_codes(p.w, tile);
  block.scales = tile_stream(p.w, p.w.scales, tile);
  block.mins = tile_stream(p.w, p.w.mins, tile);
  block.code_stride = tile_code_bytes(p.w);
  block.scale_stride = tile_scales(p.w) * scale_bytes(p.w);
  if (is_first) {
    block.codes_end = tile_codes(p.w, p.w.num_tiles);
    block.scales_end = tile_stream(p.w, p.w.scales, p.w.num_tiles);
  }
  for (int r = 0; r < kRows; ++r) {
    const int64_t source = source_row(p.range, row + r);
    block.rows[r] = p.a.data + source * 2 * p.a.padded_inputs;
    block.act_scales[r] = p.a.scales + source * (p.a.padded_inputs >> p.act_shift);
    block.sums[r] = p.a.sums + source * (p.a.padded_inputs / kSumGroup);
  }
  return block;
}

// The kernel group being summed, stepped along instead of found by slow divisions.
struct Group {
  int64_t begin;        // its first input
  int64_t scale_index;  // its weight group
  int64_t left;         // inputs of that weight group not yet summed
};

COLI_INLINE Group first_group(const Product& p) { return {0, 0, p.w.group}; }

COLI_INLINE void step_group(const Product& p, Group& group) {
  group.begin += p.size;
  group.left -= p.size;
  if (group.left > 0) return;
  ++group.scale_index;
  group.left = p.w.group;
}

// Sum of a row's values over one kernel group.
COLI_INLINE int32_t sum_values(const int32_t* sums, int64_t begin, int64_t size) {
  const int32_t* part = sums + begin / kSumGroup;
  if (size == 16) return part[0];
  const int32_t pair = part[0] + part[1];
  return size == 32 ? pair : pair + (part[2] + part[3]);
}

// Fetches ahead the codes of 8 inputs: at a fixed distance in a linear stream, else the same
// inputs of the tiles that follow the block.
template <Code kCode, int kRows, int kTiles>
COLI_INLINE void fetch_codes(const Block<kRows>& block, const uint8_t* codes) {
  const uint8_t* ahead = codes + (kTiles == 1 ? kCodesAhead : kTiles * block.code_stride);
  if (ahead >= block.codes_end) return;
  __builtin_prefetch(ahead);
  if (kCode == Code::kByte) __builtin_prefetch(ahead + 64);
}

// Scales are far fewer bytes than codes, too few for the hardware to see their stream in time.
template <int kRows>
COLI_INLINE void fetch_scales(const Product& p, const Block<kRows>& block, int64_t index) {
  const int64_t at = index * scale_bytes(p.w) + kScalesAhead;
  if (block.scales + at >= block.scales_end) return;
  __builtin_prefetch(block.scales + at);
  if (block.mins != nullptr) __builtin_prefetch(block.mins + at);
}

// Asks at once for all that the first kernel groups fetch too late: a call lasts a few
// microseconds, and one wait for memory after the other would be a tenth of that.
static inline void fetch_start(const Product& p) {
  const uint8_t* codes = tile_codes(p.w, p.range.tile_begin);
  const int64_t codes_left = tile_codes(p.w, p.range.tile_end) - codes;
  const uint8_t* scales = tile_stream(p.w, p.w.scales, p.range.tile_begin);
  const uint8_t* mins = tile_stream(p.w, p.w.mins, p.range.tile_begin);
  const int64_t scales_left = tile_stream(p.w, p.w.scales, p.range.tile_end) - scales;
  for (int64_t at = 0; at < kCodesAhead && at < codes_left; at += 64) {
    // The scales are spread among the codes they belong to.
    const int64_t scales_at = at * kScalesAhead / kCodesAhead;
    if (scales_at % 64 == 0 && scales_at < scales_left) {
      __builtin_prefetch(scales + scales_at);
      if (mins != nullptr) __builtin_prefetch(mins + scales_at);
    }
    __builtin_prefetch(codes + at);
  }
}

}  // namespace coli
