// Latent attention of a step's rows, and the work split of it.
#pragma once

#include <cstdint>

#include "core/rows.h"
#include "ops/mla/selection.h"
#include "ops/sequence/sequence.h"

namespace coli {

// The query heads of a layer.
struct LatentHeads {
  int64_t num_heads;
  float scale;  // of every score
};

// absorbed (rows, num_heads * value_dim): each head's query in the space of the latents; becomes
// the attended latents. q (rows, num_heads * head_width): the last latent_dim - value_dim channels
// of each head meet the rest of the latents. Keys are the cached latents of a layer up to the row's
// own position, of those the ones a selection names. Throws std::invalid_argument.
void latent_attention(Rows& absorbed, const Rows& q, const Batch& batch, int64_t layer,
                      const LatentHeads& heads, const Selection* selection);

// Writes columns [offset, offset + latent_dim) of every row to its sequence's latents, or
// [offset, offset + index_dim) to its index keys. Throws std::invalid_argument.
void store_latents(const Rows& x, int64_t offset, const Batch& batch, int64_t layer);
void store_index_keys(const Rows& x, int64_t offset, const Batch& batch, int64_t layer);

}  // namespace coli
