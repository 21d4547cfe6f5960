// Rotary position embedding: the definition every other variant matches bit for bit.
#include "ops/rope/rope.h"

#include <cmath>

namespace coli {

namespace {

void rotate(float* first, float* second, float cos, float sin) {
  const float a = *first;
  const float b = *second;
  *first = std::fma(a, cos, -(b * sin));
  *second = std::fma(b, cos, a * sin);
}

}  // namespace

void rope_half_row_scalar(float* x, const float* cos, const float* sin, int64_t rotated) {
  const int64_t half = rotated / 2;
  for (int64_t j = 0; j < half; ++j) rotate(x + j, x + half + j, cos[j], sin[j]);
}

void rope_interleaved_row_scalar(float* x, const float* cos, const float* sin, int64_t rotated) {
  for (int64_t j = 0; j < rotated / 2; ++j) rotate(x + 2 * j, x + 2 * j + 1, cos[j], sin[j]);
}

}  // namespace coli
