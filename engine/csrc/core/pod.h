// Plain data that crosses the line between the drivers and the per-ISA kernels.
//
// Only plain structs and fixed-width integers: an ISA translation unit may include this file
// without pulling inline code that the linker could then share with older processors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coli {

constexpr int64_t kTile = 16;          // output rows per packed tile
constexpr int64_t kInputPad = 64;      // inputs are padded to a multiple of this
constexpr int64_t kSumGroup = 16;      // activation sums are kept per this many inputs
constexpr int64_t kLevels = 16;        // entries of a table of levels
constexpr int64_t kKeyBlock = 16;      // positions per transposed key block
constexpr int64_t kSoftmaxBlock = 64;  // keys per online-softmax step
constexpr int64_t kMaxProfiles = 64;   // of a relative bias
constexpr int64_t kBankPad = 16;       // floats around each profile that a key block may touch

// How activations meet integer weights; see docs/numerics.md.
enum class Numerics : int32_t { kDefault = 0, kFast = 1, kFloat = 2 };

// Grouped unsigned integer codes, packed in tiles of 16 output rows.
//
// codes:  [num_tiles][padded_inputs / 4][16][4] bytes (8 bits), or two such blocks per 64 bytes
//         (4 bits: low nibble = even block, high nibble = odd block).
// scales: [num_tiles][num_groups][16], f16 or f32. mins: the same shape and type, or null.
// value = scale * (code - zero) without mins, scale * code + min with mins.
//
// With levels, codes of 4 bits number the entries of a table of 16 bytes, which stand in for them
// above. Only then, and without mins, scales may be bytes s (E8M0), which mean 2^(s - 128).
struct IntMatrix {
  const uint8_t* codes;
  const void* scales;
  const void* mins;
  int64_t num_outputs;
  int64_t num_inputs;
  int64_t num_tiles;
  int64_t padded_inputs;
  int64_t num_groups;  // ceil(padded_inputs / group); scales of padding groups are zero bytes
  int32_t group;       // inputs per scale, a multiple of 16
  int32_t bits;        // 4 or 8
  int32_t zero;        // used without mins
  int32_t scale_f16;   // 1: scales and mins are f16, 0: f32
  int32_t scale_e8m0 = 0;
  int32_t has_levels = 0;
  uint8_t levels[kLevels] = {};
};

enum class FloatKind : int32_t { kF32 = 0, kF16 = 1, kBf16 = 2, kE4m3 = 3 };

// Float weights, [num_tiles][num_inputs][16] elements of `kind`; padding rows are zero.
//
// E4M3 weights have scales, [num_tiles][num_groups][16], one for `group` inputs (a multiple of 16),
// and no code is a NaN. Sign, exponent and mantissa of a code, put where f16 has them, are 2^-8 of
// its value; the scales are 2^8 times what they mean. value = f16 * scale, rounded once.
struct FloatMatrix {
  const void* data;
  int64_t num_outputs;
  int64_t num_inputs;
  int64_t num_tiles;
  FloatKind kind;
  int64_t group = 0;
  int64_t num_groups = 0;
  const float* scales = nullptr;
};

// Activations quantized by the same ISA's quantize_row; `data` has a layout private to that ISA.
//
// data:   row r starts at data + r * 2 * padded_inputs.
// scales: [row][padded_inputs / activation group] (64 in default numerics, 32 in fast).
// sums:   [row][padded_inputs / 16], exact sums of the quantized values.
struct QuantRows {
  const uint8_t* data;
  const float* scales;
  const int32_t* sums;
  int64_t padded_inputs;
  Numerics numerics;
};

// One product over a range of weight tiles and of output rows.
//
// Output row r (row_begin <= r < row_end) reads activation row row_index[r] (or r without an
// index) and writes y[r * ldy + o] for every real output o of tiles [tile_begin, tile_end):
// result (+ bias[o]), added to what is there when `add` is set.
struct MatmulRange {
  int64_t tile_begin;
  int64_t tile_end;
  int64_t row_begin;
  int64_t row_end;
  const int32_t* row_index;
  const float* bias;
  float* y;
  int64_t ldy;
  int32_t add;
};

// Float activations: row r starts at x + r * ldx and has num_inputs values.
struct FloatRows {
  const float* x;
  int64_t ldx;
};

// How a gated unit with clamps treats its inputs: gate above `limit`, up beyond +-limit, and the gain
// of the gate's sigmoid.
struct SwigluClamp {
  float limit;
  float alpha;
};

// One row of a short convolution over `count` channels: inputs[j], oldest first, and the weights of
// tap j at weight + j * ldw.
struct ConvRow {
  const float* const* inputs;
  const float* weight;
  int64_t ldw;
  int64_t num_taps;
  int64_t count;
  const float* base;  // added to, or null
  float* out;
};

// What the numbers of a cache are stored as: floats, or their upper halves, rounded.
enum class KvType : int32_t { kF32, kBf16 };

constexpr int64_t kMaxIndexDim = 256;  // numbers of an index key

// One layer of one sequence's cache. Offsets count numbers, of `type` whatever the pointers say.
// Positions live in blocks of `block_positions` (a multiple of
// 64); blocks[b] is the block's base, and within it, for this layer, KV head h has its keys at
// key_offset + h * head_dim * block_positions, as [block_positions / 16][head_dim][16], and its
// values at value_offset + h * head_dim * block_positions, as [block_positions][head_dim].
struct KvLayerView {
  float* const* blocks;
  int64_t key_offset;
  int64_t value_offset;
  int64_t block_positions;
  int64_t head_dim;
  KvType type = KvType::kF32;
};

// One row of `dim` numbers of `type` per position, of one layer of one sequence's cache: blocks[b] + offset is
// where positions [b * block_positions, (b + 1) * block_positions) lie, either row by row or, where
// the reader wants positions in lanes, as [block_positions / 16][dim][16].
struct RowsView {
  float* const* blocks;
  int64_t offset;
  int64_t block_positions;
  int64_t dim;
  KvType type = KvType::kF32;
};

// A learned bias for every distance from query to key, as mixtures of a few profiles: profile j
// starts at data + j * stride and has the value of distance d at [kBankPad + extent - 1 - d], so that
// it is read forwards as keys are. kBankPad floats on both sides belong to it, whatever they hold.
struct RelativeBank {
  const float* data;
  int64_t num_profiles;  // at most kMaxProfiles
  int64_t extent;        // distances [0, extent) have a bias
  int64_t stride;
};

// Attention of `num_rows` consecutive positions, first_position onwards, for query heads
// [head_begin, head_end) that all share KV head kv_head. Query of row r and head h starts at
// q + r * ldq + h * head_dim; the result goes to out + r * ldo + h * head_dim. What follows the
// scale is off when zero or null.
struct AttentionRange {
  const float* q;
  float* out;
  int64_t ldq;
  int64_t ldo;
  int64_t first_position;
  int64_t num_rows;
  int64_t head_begin;
  int64_t head_end;
  int64_t kv_head;
  float scale;
  int64_t window = 0;                   // keys at this distance and beyond are not seen
  const float* sinks = nullptr;         // [query head]: a score whose key has no value
  const float* query_scales = nullptr;  // [row]: a factor on queries and mixing weights
  const float* mix = nullptr;           // of row r and head h: + r * ldq + h * bank.num_profiles
  RelativeBank bank = {};
};

}  // namespace coli
