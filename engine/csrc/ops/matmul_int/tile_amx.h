// Tile registers of the AMX source: which holds what, and their shapes.
#pragma once

#include <immintrin.h>

#include <cstdint>

// Sums of two kernel groups for each plane, activation planes, codes. Macros, because the
// intrinsics paste the number into the instruction.
#define COLI_SUMS_0_FIRST 0
#define COLI_SUMS_0_SECOND 1
#define COLI_SUMS_1_FIRST 2
#define COLI_SUMS_1_SECOND 3
#define COLI_ROWS_FIRST 4
#define COLI_ROWS_SECOND 5
#define COLI_CODES 6

namespace coli {

// The intrinsics of GCC do not say that they read memory: this keeps the stores before them.
#define COLI_TILE_FENCE() __asm__ volatile("" ::: "memory")

// Operand of LDTILECFG.
struct alignas(64) TileConfig {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t num_rows[16];
};

// Shapes for kernel groups of `group_size` inputs and `num_rows` activation rows. Configured per
// call, since it costs little and leaves nothing for a thread to remember.
static inline void configure_tiles(int64_t group_size, int64_t num_rows) {
  TileConfig config = {};
  config.palette = 1;
  for (int t = COLI_SUMS_0_FIRST; t <= COLI_SUMS_1_SECOND; ++t) {
    config.row_bytes[t] = 64;
    config.num_rows[t] = static_cast<uint8_t>(num_rows);
  }
  for (int t = COLI_ROWS_FIRST; t <= COLI_ROWS_SECOND; ++t) {
    config.row_bytes[t] = static_cast<uint16_t>(group_size);
    config.num_rows[t] = static_cast<uint8_t>(num_rows);
  }
  config.row_bytes[COLI_CODES] = 64;
  config.num_rows[COLI_CODES] = static_cast<uint8_t>(group_size / 4);
  __asm__ volatile("" ::"r"(&config) : "memory");
  _tile_loadconfig(&config);
}

}  // namespace coli
