// What one sequence keeps of its past, layer by layer: who owns the memory, how far it is filled.
//
// Positions live in blocks of 256 that hold every layer, so growth is one allocation and never
// moves what is there. Recurrent state has no positions: it is kept for the current length, and
// for the few lengths a snapshot was taken at. Knows no kernels and no Python. Not thread-safe:
// one owner at a time; other threads read through a KvReader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "core/aligned.h"
#include "core/pod.h"

namespace coli {

// The cache could not grow; what it held is untouched.
class KvAllocationError : public std::bad_alloc {
 public:
  // Wanted `positions` positions; `nbytes` is the size of one block, 0 when not representable.
  KvAllocationError(int64_t positions, size_t nbytes) noexcept;
  const char* what() const noexcept override { return message_; }

 private:
  char message_[160];
};

// What one layer keeps, in numbers; zero where it has none of a kind.
struct LayerLayout {
  int64_t num_kv_heads = 0;  // keys and values of grouped-query attention
  int64_t head_dim = 0;      // a multiple of 16 up to KvCache::kMaxHeadDim
  int64_t latent_dim = 0;    // row per position that latent attention reads as key and as value
  int64_t index_dim = 0;     // key per position by which an indexer chooses positions
  int64_t state_dim = 0;     // recurrent state, whatever the length

  bool operator==(const LayerLayout& other) const;
};

// Where in a block of positions one layer's begin, in numbers.
struct BlockOffsets {
  int64_t keys = 0;
  int64_t values = 0;
  int64_t latents = 0;
  int64_t index_keys = 0;
};

class KvCache {
 public:
  static constexpr int64_t kBlockPositions = 256;
  static constexpr int64_t kMaxHeadDim = 256;
  static constexpr size_t kMaxSnapshots = 4;

  // One layout per layer; positions are stored as `type`, recurrent state as floats. Throws
  // std::invalid_argument; allocates nothing.
  explicit KvCache(std::vector<LayerLayout> layers, KvType type = KvType::kF32);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }
  const LayerLayout& layout(int64_t layer) const { return place(layer).layout; }
  KvType type() const { return type_; }
  bool has_state() const { return state_size_ != 0; }
  // Numbers of one position as a row, and of the state of one length, all layers together.
  int64_t row_dim() const;
  int64_t state_dim() const { return static_cast<int64_t>(state_size_ / sizeof(float)); }
  int64_t length() const { return length_; }
  int64_t capacity() const { return static_cast<int64_t>(blocks_.size()) * kBlockPositions; }
  // Bytes of address space held; pages cost memory only once written.
  size_t nbytes() const;

  // Makes room for `positions` in whole blocks (never shrinks). New memory reads as zero.
  // Throws KvAllocationError with capacity and contents as before the call.
  void reserve(int64_t positions);

  // Declares the first `length` positions written, and next_state() of every layer the state that
  // belongs to them. Throws std::invalid_argument beyond capacity.
  void commit(int64_t length);

  // The largest length up to `length` that truncate() and copy_prefix() accept: `length` itself
  // without state, else one the state is known for. Throws std::invalid_argument beyond length().
  int64_t restorable(int64_t length) const;

  // Keeps the state of the current length, so that it stays restorable; the oldest of more than
  // kMaxSnapshots goes. Does nothing without state, or without memory for it.
  void snapshot();

  // Forgets positions from `length` on, keeping their memory. Throws std::invalid_argument for a
  // length that is not restorable.
  void truncate(int64_t length);

  // Becomes a copy of the first `length` positions of `other`, which has the same layers.
  // Throws std::invalid_argument, or KvAllocationError with this cache untouched.
  void copy_prefix(const KvCache& other, int64_t length);

  // Appends `count` positions from rows of row_dim() floats that begin `stride` floats apart: layer
  // by layer the keys of all heads, their values, the latent, the index key. They are rounded to
  // type(); what a cache of the same type gave comes back as it was. The state of the new length, if there is any, is unknown until put_state() tells it. Throws KvAllocationError with
  // this cache untouched.
  void append_rows(const float* rows, int64_t count, int64_t stride);

  // Declares state_dim() floats the state of `length`, which becomes restorable; of the current
  // length, the current state. Throws std::invalid_argument without state, or for a length that is
  // not within 1..length(), and std::bad_alloc.
  void put_state(int64_t length, const float* state);

  // Views are good until the next reserve or copy_prefix.
  KvLayerView view(int64_t layer) const;
  RowsView latents(int64_t layer) const;     // [position][latent_dim]
  RowsView index_keys(int64_t layer) const;  // [position / 16][index_dim][16]

  // State of the current length, zero at length 0, and where a step writes what commit() makes
  // the state; every layer must write all of its own. Good until the next commit or truncate.
  // Throws std::invalid_argument before the first reserve().
  const float* state(int64_t layer) const;
  float* next_state(int64_t layer);

 private:
  friend class KvReader;
  struct Place {
    LayerLayout layout;
    BlockOffsets at;
    int64_t state = 0;  // within the state
  };
  struct Snapshot {
    int64_t length;
    std::shared_ptr<const AlignedBuffer> state;  // shared with readers, never changed
  };

  const Place& place(int64_t layer) const;
  void copy_block_prefix(float* to, const float* from, int64_t positions) const;
  const AlignedBuffer* state_at(int64_t length) const;  // null where it is zero
  void set_state(const KvCache& other, int64_t length);
  void drop_snapshots(int64_t beyond);
  void keep_snapshot(int64_t length, const void* state);

  std::vector<Place> layers_;
  KvType type_;
  size_t number_nbytes_;
  int64_t length_ = 0;
  size_t block_nbytes_ = 0;
  size_t state_size_ = 0;  // bytes
  std::vector<float*> blocks_;
  AlignedBuffer state_;
  AlignedBuffer next_state_;
  std::vector<Snapshot> snapshots_;  // oldest first
};

}  // namespace coli
