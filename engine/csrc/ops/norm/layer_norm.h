// Layer normalization with a bias, of some columns of every row.
//
// mean = sum x / n and var = sum (x - mean)^2 / n in index order,
// out = (x - mean) / sqrt(var + eps) * weight + bias; all of it in double, rounded to f32 once.
#pragma once

#include <cstdint>

#include "core/rows.h"

namespace coli {

// In place on columns [offset, offset + n). Throws std::invalid_argument outside the rows.
void layer_norm_columns(Rows& x, int64_t offset, int64_t n, const float* weight, const float* bias,
                        double eps);

}  // namespace coli
