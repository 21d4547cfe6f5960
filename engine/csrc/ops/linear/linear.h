// A linear layer over one or more packed matrices, and the work split of its product.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/aligned.h"
#include "core/pod.h"
#include "core/rows.h"
#include "core/weights.h"
#include "dispatch.h"

namespace coli {

// Several matrices over the same inputs whose outputs follow each other (q, k and v; gate and up),
// with an optional bias over all outputs. The parts may differ in format.
class Linear {
 public:
  // `bias` is empty or has one value per output. Throws std::invalid_argument when parts disagree.
  Linear(std::vector<std::shared_ptr<Matrix>> parts, std::vector<float> bias, Numerics numerics);

  int64_t num_inputs() const { return parts_.front()->num_inputs(); }
  int64_t num_outputs() const { return num_outputs_; }
  Numerics numerics() const { return numerics_; }
  bool wants_quantized() const { return wants_quantized_; }
  const Rotation* rotation() const { return parts_.front()->rotation(); }  // of its input, or null
  size_t nbytes() const;
  const std::vector<std::shared_ptr<Matrix>>& parts() const { return parts_; }

  // Tiles of all parts together, in output order.
  int64_t num_tiles() const { return first_tiles_.back(); }

 private:
  std::vector<std::shared_ptr<Matrix>> parts_;
  std::vector<float> bias_;
  Numerics numerics_;
  int64_t num_outputs_ = 0;
  bool wants_quantized_ = false;
  std::vector<int64_t> first_tiles_;    // of each part, then the total
  std::vector<int64_t> first_outputs_;  // of each part

  friend void multiply_tiles(const Linear&, const struct TileRange&, const struct Activations&,
                             const struct Target&);
};

// The same activations in the forms the parts of a layer may want.
struct Activations {
  FloatRows floats;
  QuantRows quantized;
};

// Where a product goes, and which activation row each of its rows reads (null: its own).
struct Target {
  float* y;
  int64_t ldy;
  const int32_t* row_index;
  bool add;
};

// Scratch for quantized activations: one set of rows at a time.
class QuantScratch {
 public:
  // Quantizes rows [0, num_rows) of x on the thread team. The result lives until the next call.
  QuantRows quantize(const float* x, int64_t ldx, int64_t num_rows, int64_t num_inputs,
                     Numerics numerics);

 private:
  AlignedBuffer data_;
  AlignedBuffer scales_;
  AlignedBuffer sums_;
};

// Scratch for the forms in which a layer takes its input: one set of rows at a time.
class InputScratch {
 public:
  // Rotates and quantizes rows [0, num_rows) of x as the layer wants it, on the thread team. The
  // result lives until the next call; unrotated floats are those of x.
  Activations prepare(const Linear& layer, const float* x, int64_t ldx, int64_t num_rows);

 private:
  AlignedBuffer rotated_;
  QuantScratch quantized_;
};

// out = the rotation of rows [0, num_rows) of x, on the thread team; `out` may be x.
void rotate_rows(const Rotation& rotation, const float* x, int64_t ldx, int64_t num_rows,
                 float* out, int64_t ldo);

// Tiles of a layer (over all its parts) and output rows.
struct TileRange {
  int64_t tile_begin;
  int64_t tile_end;
  int64_t row_begin;
  int64_t row_end;
};

// One range of a layer's product, on the calling thread.
void multiply_tiles(const Linear& layer, const TileRange& tiles, const Activations& input,
                    const Target& target);

// All of the layer for `num_rows` output rows, on the thread team.
void multiply(const Linear& layer, const Activations& input, const Target& target,
              int64_t num_rows);

// out (rows, num_outputs) = x (rows, num_inputs) W^T + bias, added to `out` when `add` is set.
// Sets out.rows() to x.rows() unless adding, where they must agree.
void linear(const Rows& x, const Linear& layer, Rows& out, bool add);

}  // namespace coli
