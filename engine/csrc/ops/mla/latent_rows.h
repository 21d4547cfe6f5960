// Where a position's latent lies in the cache; internal to the kernels that read it.
#pragma once

#include "core/pod.h"

namespace coli {

static inline const float* latent_row(const RowsView& view, int64_t position) {
  const float* block = view.blocks[position / view.block_positions];
  return block + view.offset + position % view.block_positions * view.dim;
}

}  // namespace coli
