// Rotary embedding of heads that lie anywhere in the rows.
#pragma once

#include <cstdint>

#include "core/rows.h"
#include "ops/sequence/sequence.h"

namespace coli {

// Rotates, in place, the rope's channels at columns offset + h * stride of every head h. Throws
// std::invalid_argument where they lie outside the rows.
void rotate_columns(Rows& x, const Batch& batch, Rope& rope, int64_t offset, int64_t num_heads,
                    int64_t stride);

}  // namespace coli
