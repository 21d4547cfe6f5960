// The best of many scores.
#pragma once

#include <cstdint>

namespace coli {

// Writes the indices of the `count` largest of n scores, ascending; of equal ones the lower index
// is larger, and NaN is the smallest. 1 <= count <= n. Reads scores several times, allocates
// nothing.
void choose_largest(const float* scores, int64_t n, int64_t count, int32_t* indices);

}  // namespace coli
