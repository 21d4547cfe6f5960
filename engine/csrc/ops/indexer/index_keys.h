// Where the index keys of 16 positions lie in the cache; internal to the kernels that read them.
#pragma once

#include "core/pod.h"

namespace coli {

// Keys of the positions from `position` on (a multiple of 16), as [dim][16].
static inline const float* index_key_block(const RowsView& view, int64_t position) {
  const float* block = view.blocks[position / view.block_positions];
  return block + view.offset + position % view.block_positions * view.dim;
}

}  // namespace coli
