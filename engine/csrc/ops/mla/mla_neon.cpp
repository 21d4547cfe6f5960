// Latent attention with 128-bit vectors: a lane group is four registers, and a tile has one group.
#include "ops/lanes/lanes_neon.h"
#include "ops/mla/mla.h"

namespace coli {
namespace {

constexpr int kTileGroups = 1;

// Keys, or channels, whose sums a tile of so many groups keeps in registers.
constexpr int kTileWidth[] = {0, 6};

}  // namespace
}  // namespace coli

#include "ops/mla/mla_tiles.h"

namespace coli {

void mla_segment_neon(const RowsView& latents, const MlaShape& shape, const MlaSegment& part) {
  attend_segment(latents, shape, part);
}

void mla_join_neon(const MlaShape& shape, float* state, const float* next) {
  join_states(shape, state, next);
}

void mla_divide_neon(const MlaShape& shape, float* state) { divide_state(shape, state); }

}  // namespace coli
