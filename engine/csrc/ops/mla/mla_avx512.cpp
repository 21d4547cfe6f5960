// Latent attention with 512-bit vectors: a lane group is one register.
#include "ops/lanes/lanes_avx512.h"
#include "ops/mla/mla.h"

namespace coli {
namespace {

constexpr int kTileGroups = 4;

// Keys, or channels, whose sums a tile of so many groups keeps in registers.
constexpr int kTileWidth[] = {0, 12, 12, 8, 6};

}  // namespace
}  // namespace coli

#include "ops/mla/mla_tiles.h"

namespace coli {

void mla_segment_avx512(const RowsView& latents, const MlaShape& shape, const MlaSegment& part) {
  attend_segment(latents, shape, part);
}

void mla_join_avx512(const MlaShape& shape, float* state, const float* next) {
  join_states(shape, state, next);
}

void mla_divide_avx512(const MlaShape& shape, float* state) { divide_state(shape, state); }

}  // namespace coli
