// The rotation some matrices are stored under: signs, then a Walsh-Hadamard transform per block.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace coli {

// Orthogonal on rows of `num_values`, in float32 and one fixed order of additions, so that every
// processor gets the same bits. See docs/numerics.md, "Rotated matrices".
class Rotation {
 public:
  explicit Rotation(int64_t num_values);

  // The one instance for a width; safe to call from any thread.
  static std::shared_ptr<const Rotation> of(int64_t num_values);

  void apply(const float* x, float* out) const;  // `out` may be x
  void undo(float* x) const;                     // up to the rounding of both

 private:
  struct Block {
    int64_t begin;
    int64_t length;  // a power of two
    float factor;    // 1 / sqrt(length)
  };
  std::vector<Block> blocks_;
  std::vector<float> signs_;  // +1 or -1 for each value
};

}  // namespace coli
