// A linear layer with a matrix of its own for every head.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/pod.h"
#include "core/rows.h"
#include "core/weights.h"

namespace coli {

// y_h = W_h x_h. A matrix of grouped integers that is used transposed has its scales at the inputs
// instead of the outputs: then the matrix holds the codes alone, with scale 1, and for every run of
// `scale_outputs` outputs the inputs are multiplied by the scales of that run first.
class HeadLinear {
 public:
  // `input_scales` is empty or [head][run of outputs][input]; scale_outputs is a multiple of 16.
  // Throws std::invalid_argument when the parts disagree.
  HeadLinear(std::vector<std::shared_ptr<Matrix>> heads, std::vector<float> input_scales,
             int64_t scale_outputs, Numerics numerics);

  int64_t num_heads() const { return static_cast<int64_t>(heads_.size()); }
  int64_t num_inputs() const { return heads_.front()->num_inputs(); }    // of one head
  int64_t num_outputs() const { return heads_.front()->num_outputs(); }  // of one head
  size_t nbytes() const;

 private:
  friend void head_linear(const Rows&, int64_t, const HeadLinear&, Rows&);
  struct Panel;

  void multiply(int64_t head, const Panel& panel) const;
  void multiply_run(int64_t head, int64_t run, const Panel& panel) const;
  int64_t num_runs() const;
  size_t scratch_floats(int64_t rows) const;

  std::vector<std::shared_ptr<Matrix>> heads_;
  std::vector<float> input_scales_;
  int64_t scale_outputs_;
  Numerics numerics_;
};

// x (rows, num_heads * width), of which each head reads num_inputs columns from `offset` within
// its own; out (rows, num_heads * num_outputs) is another buffer. Throws std::invalid_argument.
void head_linear(const Rows& x, int64_t offset, const HeadLinear& layer, Rows& out);

}  // namespace coli
