#include "core/kv_cache.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/kv_rows.h"

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#define COLI_KV_MMAP 1
#endif

namespace coli {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallBlock = size_t{64} << 20;
constexpr size_t kBlockAlignment = 64;

// Product of positive sizes, 0 when it does not fit in an object.
size_t checked_product(size_t a, size_t b) {
  constexpr size_t kMax = static_cast<size_t>(std::numeric_limits<ptrdiff_t>::max());
  return a != 0 && b <= kMax / a ? a * b : 0;
}

// Adds `floats` floats to a size in floats; false when its bytes would not fit in an object.
bool grow_size(int64_t& size, int64_t a, int64_t b) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max() / 8;
  if (a == 0 || b == 0) return true;
  if (b > kMax / a || size > kMax - a * b) return false;
  size += a * b;
  return true;
}

#if defined(COLI_KV_MMAP)

// A fresh anonymous mapping reads as zero and takes memory page by page as it is written.
float* map_block(size_t nbytes, bool want_huge_pages) {
  const size_t slack = want_huge_pages ? kHugePage : 0;
  if (nbytes > std::numeric_limits<size_t>::max() - slack) return nullptr;
  void* mapping =
      mmap(nullptr, nbytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(mapping);
  const size_t head = slack == 0 ? 0 : (slack - reinterpret_cast<uintptr_t>(begin) % slack) % slack;
  if (head != 0) munmap(begin, head);
  if (slack != head) munmap(begin + head + nbytes, slack - head);
#if defined(MADV_HUGEPAGE)
  if (want_huge_pages) madvise(begin + head, nbytes, MADV_HUGEPAGE);  // advice: failure is fine
#endif
  return reinterpret_cast<float*>(begin + head);
}

void unmap_block(float* block, size_t nbytes) { munmap(block, nbytes); }

#else

float* map_block(size_t nbytes, bool) {
  void* memory = ::operator new(nbytes, std::align_val_t(kBlockAlignment), std::nothrow);
  if (memory != nullptr) std::memset(memory, 0, nbytes);
  return static_cast<float*>(memory);
}

void unmap_block(float* block, size_t) {
  ::operator delete(block, std::align_val_t(kBlockAlignment));
}

#endif

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

// Copies the first `positions` of [position / 16][dim][16], of numbers of `size` bytes.
void copy_transposed(char* to, const char* from, int64_t positions, int64_t dim, size_t size) {
  const int64_t whole = positions / kKeyBlock * kKeyBlock;
  const size_t rest_nbytes = size * static_cast<size_t>(positions - whole);
  std::memcpy(to, from, size * static_cast<size_t>(whole * dim));
  for (int64_t d = 0; rest_nbytes != 0 && d < dim; ++d) {
    const size_t at = size * static_cast<size_t>(whole * dim + d * kKeyBlock);
    std::memcpy(to + at, from + at, rest_nbytes);
  }
}

}  // namespace

KvAllocationError::KvAllocationError(int64_t positions, size_t nbytes) noexcept {
  if (nbytes == 0) {
    std::snprintf(message_, sizeof message_, "KV cache of %lld positions is beyond any memory",
                  static_cast<long long>(positions));
  } else {
    std::snprintf(message_, sizeof message_,
                  "no memory to grow the KV cache to %lld positions (%zu bytes per %lld)",
                  static_cast<long long>(positions), nbytes,
                  static_cast<long long>(KvCache::kBlockPositions));
  }
}

bool LayerLayout::operator==(const LayerLayout& other) const {
  return num_kv_heads == other.num_kv_heads && head_dim == other.head_dim &&
         latent_dim == other.latent_dim && index_dim == other.index_dim &&
         state_dim == other.state_dim;
}

KvCache::KvCache(std::vector<LayerLayout> layers, KvType type)
    : type_(type), number_nbytes_(type == KvType::kF32 ? sizeof(float) : sizeof(uint16_t)) {
  require(!layers.empty(), "KV cache needs at least one layer");
  int64_t numbers = 0;  // of one block
  int64_t state = 0;
  for (const LayerLayout& layout : layers) {
    const auto& [heads, head_dim, latent_dim, index_dim, state_dim] = layout;
    require(heads >= 0 && head_dim >= 0 && latent_dim >= 0 && index_dim >= 0 && state_dim >= 0,
            "KV cache layer with a negative size");
    require((heads == 0) == (head_dim == 0), "KV cache layer with heads or head_dim alone");
    require(heads != 0 || latent_dim != 0 || index_dim != 0 || state_dim != 0,
            "KV cache layer that keeps nothing");
    require(head_dim % kKeyBlock == 0 && head_dim <= kMaxHeadDim,
            "KV cache head_dim " + std::to_string(head_dim) + " is not a multiple of 16 up to 256");
    require(type == KvType::kF32 || index_dim <= kMaxIndexDim,
            "KV cache in bf16 with index keys of " + std::to_string(index_dim) +
                " numbers, more than 256");
    Place place;
    place.layout = layout;
    place.at.keys = numbers;
    bool fits = grow_size(numbers, heads, head_dim * kBlockPositions);
    place.at.values = numbers;
    fits = fits && grow_size(numbers, heads, head_dim * kBlockPositions);
    place.at.latents = numbers;
    fits = fits && grow_size(numbers, latent_dim, kBlockPositions);
    place.at.index_keys = numbers;
    fits = fits && grow_size(numbers, index_dim, kBlockPositions);
    place.state = state;
    fits = fits && grow_size(state, state_dim, 1);
    require(fits, "KV cache dimensions overflow");
    layers_.push_back(place);
  }
  require(numbers != 0, "KV cache that keeps nothing per position");
  state_size_ = sizeof(float) * static_cast<size_t>(state);
  block_nbytes_ = number_nbytes_ * static_cast<size_t>(numbers);
  if (block_nbytes_ > kHugePage) {
    block_nbytes_ = (block_nbytes_ + kHugePage - 1) / kHugePage * kHugePage;
  }
}

KvCache::~KvCache() {
  for (float* block : blocks_) unmap_block(block, block_nbytes_);
}

size_t KvCache::nbytes() const {
  size_t total = blocks_.size() * block_nbytes_ + state_.size() + next_state_.size();
  for (const Snapshot& snapshot : snapshots_) total += snapshot.state->size();
  return total;
}

void KvCache::reserve(int64_t positions) {
  require(positions >= 0, "KV cache cannot reserve " + std::to_string(positions) + " positions");
  if (positions <= capacity()) return;
  const size_t before = blocks_.size();
  const size_t wanted = static_cast<size_t>((positions - 1) / kBlockPositions) + 1;
  if (checked_product(wanted, block_nbytes_) == 0) throw KvAllocationError(positions, 0);
  try {
    blocks_.reserve(wanted);
    if (state_.size() != state_size_) {
      AlignedBuffer first(state_size_);
      next_state_ = AlignedBuffer(state_size_);
      state_ = std::move(first);
    }
  } catch (const std::exception&) {
    throw KvAllocationError(positions, block_nbytes_);
  }
  while (blocks_.size() < wanted) {
    // Huge pages make the first writes some 15 times cheaper but touch the whole block, so a big
    // model's first block, which a short sequence never fills, grows by small pages.
    const bool want_huge_pages =
        block_nbytes_ >= kHugePage && (!blocks_.empty() || block_nbytes_ <= kSmallBlock);
    float* block = map_block(block_nbytes_, want_huge_pages);
    if (block == nullptr) {
      for (; blocks_.size() > before; blocks_.pop_back()) {
        unmap_block(blocks_.back(), block_nbytes_);
      }
      throw KvAllocationError(positions, block_nbytes_);
    }
    blocks_.push_back(block);
  }
}

void KvCache::commit(int64_t length) {
  require(length >= 0 && length <= capacity(), "KV cache length " + std::to_string(length) +
                                                   " is outside its capacity of " +
                                                   std::to_string(capacity()));
  length_ = length;
  std::swap(state_, next_state_);
}

int64_t KvCache::restorable(int64_t length) const {
  require(length >= 0 && length <= length_, "KV cache of " + std::to_string(length_) +
                                                " positions cannot be restored to " +
                                                std::to_string(length));
  if (!has_state() || length == length_) return length;
  int64_t best = 0;
  for (const Snapshot& snapshot : snapshots_) {
    if (snapshot.length <= length) best = std::max(best, snapshot.length);
  }
  return best;
}

void KvCache::snapshot() {
  if (!has_state() || length_ == 0) return;
  for (const Snapshot& kept : snapshots_) {
    if (kept.length == length_) return;
  }
  try {
    keep_snapshot(length_, state_.data());
  } catch (const std::bad_alloc&) {
    return;  // a later request computes more; nothing else is lost
  }
}

void KvCache::keep_snapshot(int64_t length, const void* state) {
  AlignedBuffer copy(state_size_);
  std::memcpy(copy.data(), state, state_size_);
  snapshots_.push_back({length, std::make_shared<const AlignedBuffer>(std::move(copy))});
  if (snapshots_.size() > kMaxSnapshots) snapshots_.erase(snapshots_.begin());
}

void KvCache::truncate(int64_t length) {
  require(length >= 0 && length <= length_, "KV cache of " + std::to_string(length_) +
                                                " positions cannot be truncated to " +
                                                std::to_string(length));
  require(restorable(length) == length, "KV cache has no recurrent state at position " +
                                            std::to_string(length) + "; the nearest is at " +
                                            std::to_string(restorable(length)));
  set_state(*this, length);
  length_ = length;
  drop_snapshots(length);
}

void KvCache::copy_prefix(const KvCache& other, int64_t length) {
  const auto same = [](const Place& a, const Place& b) { return a.layout == b.layout; };
  require(type_ == other.type_, "KV caches of different types");
  require(
      std::equal(layers_.begin(), layers_.end(), other.layers_.begin(), other.layers_.end(), same),
      "KV caches of different dimensions");
  require(length >= 0 && length <= other.length_, "KV cache of " + std::to_string(other.length_) +
                                                      " positions has no prefix of " +
                                                      std::to_string(length));
  require(other.restorable(length) == length,
          "KV cache has no recurrent state at position " + std::to_string(length) + " to copy");
  if (&other == this) return truncate(length);
  reserve(length);
  for (int64_t begin = 0; begin < length; begin += kBlockPositions) {
    const size_t block = static_cast<size_t>(begin / kBlockPositions);
    const int64_t rest = length - begin;
    copy_block_prefix(blocks_[block], other.blocks_[block],
                      rest < kBlockPositions ? rest : kBlockPositions);
  }
  set_state(other, length);
  length_ = length;
  drop_snapshots(0);
}

int64_t KvCache::row_dim() const {
  int64_t dim = 0;
  for (const Place& place : layers_) dim += row_dim_of(place.layout);
  return dim;
}

void KvCache::append_rows(const float* rows, int64_t count, int64_t stride) {
  require(count >= 0 && stride >= row_dim(), "KV cache rows of a negative number or overlapping");
  require(count <= std::numeric_limits<int64_t>::max() - length_, "KV cache rows overflow");
  reserve(length_ + count);
  for (int64_t done = 0; done < count;) {
    const int64_t position = length_ + done;
    const int64_t first = position % kBlockPositions;
    const int64_t part = std::min(count - done, kBlockPositions - first);
    float* block = blocks_[static_cast<size_t>(position / kBlockPositions)];
    const float* from = rows + done * stride;
    const RowRange range = {first, part, stride};
    for (const Place& place : layers_) {
      from = put_layer_rows({type_, place.layout, place.at}, block, range, from);
    }
    done += part;
  }
  length_ += count;
}

void KvCache::put_state(int64_t length, const float* state) {
  require(has_state(), "KV cache without recurrent state is given one");
  require(length >= 1 && length <= length_, "KV cache of " + std::to_string(length_) +
                                                " positions is given the state of " +
                                                std::to_string(length));
  for (const Snapshot& kept : snapshots_) {
    require(kept.length != length, "KV cache knows the state of this length already");
  }
  keep_snapshot(length, state);
  if (length == length_) std::memcpy(state_.data(), state, state_size_);
}

const AlignedBuffer* KvCache::state_at(int64_t length) const {
  if (length == 0) return nullptr;
  if (length == length_) return &state_;
  for (const Snapshot& snapshot : snapshots_) {
    if (snapshot.length == length) return snapshot.state.get();
  }
  return nullptr;
}

void KvCache::set_state(const KvCache& other, int64_t length) {
  if (!has_state() || state_.size() == 0) return;
  const AlignedBuffer* from = other.state_at(length);
  if (from == nullptr) {
    std::memset(state_.data(), 0, state_size_);
  } else if (from != &state_) {
    std::memcpy(state_.data(), from->data(), state_size_);
  }
}

void KvCache::drop_snapshots(int64_t beyond) {
  const auto later = [=](const Snapshot& snapshot) { return snapshot.length > beyond; };
  snapshots_.erase(std::remove_if(snapshots_.begin(), snapshots_.end(), later), snapshots_.end());
}

void KvCache::copy_block_prefix(float* to, const float* from, int64_t positions) const {
  char* to_bytes = reinterpret_cast<char*>(to);
  const char* from_bytes = reinterpret_cast<const char*>(from);
  const auto transposed = [&](int64_t at, int64_t dim) {
    const size_t start = number_nbytes_ * static_cast<size_t>(at);
    copy_transposed(to_bytes + start, from_bytes + start, positions, dim, number_nbytes_);
  };
  const auto rows = [&](int64_t at, int64_t dim) {
    const size_t start = number_nbytes_ * static_cast<size_t>(at);
    std::memcpy(to_bytes + start, from_bytes + start,
                number_nbytes_ * static_cast<size_t>(positions * dim));
  };
  for (const Place& place : layers_) {
    const LayerLayout& layout = place.layout;
    for (int64_t head = 0; head < layout.num_kv_heads; ++head) {
      const int64_t at = head * layout.head_dim * kBlockPositions;
      transposed(place.at.keys + at, layout.head_dim);
      rows(place.at.values + at, layout.head_dim);
    }
    rows(place.at.latents, layout.latent_dim);
    transposed(place.at.index_keys, layout.index_dim);
  }
}

const KvCache::Place& KvCache::place(int64_t layer) const {
  require(layer >= 0 && layer < num_layers(), "KV cache has no layer " + std::to_string(layer));
  return layers_[static_cast<size_t>(layer)];
}

KvLayerView KvCache::view(int64_t layer) const {
  const Place& at = place(layer);
  require(at.layout.num_kv_heads != 0,
          "KV cache layer " + std::to_string(layer) + " has no keys and values");
  return {blocks_.data(), at.at.keys, at.at.values, kBlockPositions, at.layout.head_dim, type_};
}

RowsView KvCache::latents(int64_t layer) const {
  const Place& at = place(layer);
  require(at.layout.latent_dim != 0, "KV cache layer " + std::to_string(layer) + " has no latents");
  return {blocks_.data(), at.at.latents, kBlockPositions, at.layout.latent_dim, type_};
}

RowsView KvCache::index_keys(int64_t layer) const {
  const Place& at = place(layer);
  require(at.layout.index_dim != 0,
          "KV cache layer " + std::to_string(layer) + " has no index keys");
  return {blocks_.data(), at.at.index_keys, kBlockPositions, at.layout.index_dim, type_};
}

const float* KvCache::state(int64_t layer) const {
  const Place& at = place(layer);
  require(at.layout.state_dim != 0 && state_.size() != 0,
          "KV cache layer " + std::to_string(layer) + " has no state");
  return reinterpret_cast<const float*>(state_.data()) + at.state;
}

float* KvCache::next_state(int64_t layer) {
  const Place& at = place(layer);
  require(at.layout.state_dim != 0 && next_state_.size() != 0,
          "KV cache layer " + std::to_string(layer) + " has no state");
  return next_state_.as<float>() + at.state;
}

}  // namespace coli
