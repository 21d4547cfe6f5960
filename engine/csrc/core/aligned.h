// Memory for weights and scratch rows: cache-line aligned, huge pages advised where they pay.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coli {

// Owns `size` zero-filled bytes aligned to a cache line (to 2 MiB from 1 MiB upwards, so that the
// kernel can back them with huge pages: reading weights through 4 KiB pages costs a third of the
// bandwidth). Moves, never copies.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size);  // throws std::bad_alloc
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }

  // Grows to at least `size` bytes; what was there is lost.
  void ensure(size_t size);

 private:
  void release() noexcept;

  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// a * b, a + b; throw std::length_error when the result does not fit: sizes come from files.
size_t checked_mul(size_t a, size_t b);
size_t checked_add(size_t a, size_t b);

}  // namespace coli
