// Row-wise operators: norms, the gated unit, embedding rows.
#pragma once

#include <cstdint>

#include "core/rows.h"
#include "core/weights.h"

namespace coli {

// out (rows, width) = x / rms(x) * weight; weight has `width` values. x and out may be the same.
void rms_norm(const Rows& x, const float* weight, float eps, Rows& out);

// The same in place for `num_heads` consecutive heads of `head_dim` columns from `offset` on; all
// heads share `weight` (head_dim values).
void rms_norm_heads(Rows& x, int64_t offset, int64_t num_heads, int64_t head_dim,
                    const float* weight, float eps);

// out (rows, width) = silu(gate) * up; gate_up (rows, 2 * width) holds gate, then up.
void swiglu(const Rows& gate_up, Rows& out);

// out (count, width) = rows `ids` of the table; throws std::out_of_range on an id outside it.
void embed(const Matrix& table, const int32_t* ids, int64_t count, Rows& out);

}  // namespace coli
