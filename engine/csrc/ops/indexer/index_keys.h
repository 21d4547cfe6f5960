// Where the index keys of 16 positions lie in the cache; internal to the kernels that read them.
#pragma once

#include "core/pod.h"

namespace coli {

static inline float* index_block(const RowsView& view, int64_t position) {
  return view.blocks[position / view.block_positions];
}

// Where in that block the keys of the positions from `position` on (a multiple of 16) begin, as
// [dim][16].
static inline int64_t index_key_at(const RowsView& view, int64_t position) {
  return view.offset + position % view.block_positions * view.dim;
}

}  // namespace coli
