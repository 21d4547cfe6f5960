// Where a position's latent lies in the cache; internal to the kernels that read it.
#pragma once

#include "core/pod.h"

namespace coli {

static inline float* latent_block(const RowsView& view, int64_t position) {
  return view.blocks[position / view.block_positions];
}

// The first of its numbers in that block.
static inline int64_t latent_at(const RowsView& view, int64_t position) {
  return view.offset + position % view.block_positions * view.dim;
}

}  // namespace coli
