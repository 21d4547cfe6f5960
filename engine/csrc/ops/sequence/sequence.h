// What ties rows to sequences: positions, rotary embedding, and attention over the caches.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/kv_cache.h"
#include "core/rows.h"
#include "ops/sequence/attention_options.h"

namespace coli {

// The rows of one forward pass: consecutive runs, each the next positions of one sequence.
class Batch {
 public:
  struct Segment {
    std::shared_ptr<KvCache> cache;
    int64_t start;  // position of the first row
    int64_t rows;
    int64_t first_row;  // within the step
  };

  // Replaces the segments and reserves room in their caches. Throws std::invalid_argument when a
  // segment leaves a gap behind its cache's length, starts before it where the cache has recurrent
  // state, or shares its cache with another, and KvAllocationError (the batch is then empty).
  void set(std::vector<Segment> segments);

  const std::vector<Segment>& segments() const { return segments_; }
  int64_t num_rows() const { return num_rows_; }
  int64_t end_position() const { return end_position_; }  // one past the last position

  // Declares the rows written: every cache's length becomes the end of its segment, and the state
  // the step wrote becomes its state.
  void commit();

 private:
  std::vector<Segment> segments_;
  int64_t num_rows_ = 0;
  int64_t end_position_ = 0;
};

// Rotary embedding of the first `rotated` channels of a head. Tables grow with the positions seen.
class Rope {
 public:
  // inv_freq has rotated / 2 values; cos and sin are multiplied by `scale` (YaRN's factor).
  Rope(int64_t rotated, std::vector<double> inv_freq, double scale, bool interleaved);

  int64_t rotated() const { return rotated_; }
  bool interleaved() const { return interleaved_; }
  void ensure(int64_t positions);
  const float* cos(int64_t position) const { return &cos_[index(position)]; }
  const float* sin(int64_t position) const { return &sin_[index(position)]; }

 private:
  size_t index(int64_t position) const { return static_cast<size_t>(position * rotated_ / 2); }

  int64_t rotated_;
  std::vector<double> inv_freq_;
  double scale_;
  bool interleaved_;
  int64_t positions_ = 0;
  std::vector<float> cos_;
  std::vector<float> sin_;
};

// qkv (rows, (num_heads + 2 * kv_heads) * head_dim): rotates q and k in place and writes k and v
// of every row into its sequence's cache.
void rope_store(Rows& qkv, const Batch& batch, int64_t layer, Rope& rope, int64_t num_heads);

// The same without rotation: columns from `offset` on are the rows' keys, then their values.
void store_kv(const Rows& rows, const Batch& batch, int64_t layer, int64_t offset);

struct AttentionCall {
  int64_t layer;
  int64_t num_heads;
  float scale;
  const AttentionOptions* options;  // null: plain
};

// out (rows, num_heads * head_dim) = causal attention of the rows' queries over their caches. qkv as
// above; with relative profiles each row goes on with the mixing weights of every head.
void attention(const Rows& qkv, const Batch& batch, const AttentionCall& call, Rows& out);

}  // namespace coli
