// Small immutable blocks side by side in huge pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/aligned.h"

namespace coli {

// A cache-line aligned, zero-filled range inside a larger allocation that lives as long as any
// block of it. Matrices of a model are read one after the other at every step: alone in 4 KiB
// pages each would begin with a page walk and end a stream.
class SlabBlock {
 public:
  SlabBlock() = default;
  explicit SlabBlock(size_t size);  // throws std::bad_alloc; thread-safe
  // A view of bytes that are elsewhere and live as long as `owner`.
  SlabBlock(std::shared_ptr<const void> owner, uint8_t* data, size_t size);

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::shared_ptr<const void> slab_;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace coli
