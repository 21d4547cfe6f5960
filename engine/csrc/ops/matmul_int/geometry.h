// Sizes and addresses that every variant of matmul_int agrees on.
//
// All functions are static so that each instruction set gets its own copy: a shared (weak) one
// could be kept in its newest form and crash an older processor.
#pragma once

#include "core/pod.h"

namespace coli {

// Largest quantized magnitude. 32512 = 127 * 256, so that the value splits into two signed bytes,
// 256 * high + low, without overflow of the high one.
static constexpr float kDefaultLimit = 32512.0F;
static constexpr float kFastLimit = 127.0F;

// Bits of 2^(s - 128) for the two scale bytes s that give no normal number: this shifted by s.
static constexpr uint32_t kLeastPowerBits = 0x00200000U;

static constexpr uint32_t kInfinityBits = 0x7F800000U;
static constexpr uint32_t kMagnitudeMask = 0x7FFFFFFFU;

// Inputs that share one activation scale.
static inline int64_t activation_group(Numerics numerics) {
  return numerics == Numerics::kFast ? 32 : 64;
}

// Inputs whose products are summed as exact integers. It divides the weight group and the
// activation group, so one product of scales serves the whole sum; at most 64 inputs of at most
// 255 * 32512 stay below 2^31.
static inline int64_t kernel_group(const IntMatrix& w, Numerics numerics) {
  int64_t size = activation_group(numerics);
  while (w.group % size != 0) size /= 2;
  return size;
}

static inline int64_t tile_code_bytes(const IntMatrix& w) {
  return w.padded_inputs * kTile * w.bits / 8;
}

// Values in one tile of the scales (or mins).
static inline int64_t tile_scales(const IntMatrix& w) { return w.num_groups * kTile; }

static inline int64_t scale_bytes(const IntMatrix& w) {
  if (w.scale_e8m0 != 0) return 1;
  return w.scale_f16 != 0 ? 2 : 4;
}

static inline const uint8_t* tile_codes(const IntMatrix& w, int64_t tile) {
  return w.codes + tile * tile_code_bytes(w);
}

// Address of a tile's scales or mins; null for an absent stream.
static inline const uint8_t* tile_stream(const IntMatrix& w, const void* stream, int64_t tile) {
  if (stream == nullptr) return nullptr;
  return static_cast<const uint8_t*>(stream) + tile * tile_scales(w) * scale_bytes(w);
}

// Real output rows of a tile: 16, or fewer in the last one.
static inline int64_t tile_outputs(const IntMatrix& w, int64_t tile) {
  const int64_t left = w.num_outputs - tile * kTile;
  return left < kTile ? left : kTile;
}

static inline int64_t source_row(const MatmulRange& range, int64_t row) {
  return range.row_index != nullptr ? range.row_index[row] : row;
}

}  // namespace coli
