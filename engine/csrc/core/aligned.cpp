#include "core/aligned.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace coli {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kHugeFrom = size_t{1} << 20;
constexpr size_t kCacheLine = 64;

}  // namespace

AlignedBuffer::AlignedBuffer(size_t size) : size_(size) {
  if (size == 0) return;
  const size_t alignment = size >= kHugeFrom ? kHugePage : kCacheLine;
  const size_t rounded = checked_add(size, alignment - 1) / alignment * alignment;
#if defined(__linux__)
  if (size >= kHugeFrom) {
    // Anonymous pages arrive zeroed on first touch, so nothing is written here.
    void* p = std::aligned_alloc(alignment, rounded);
    if (p == nullptr) throw std::bad_alloc();
    madvise(p, rounded, MADV_HUGEPAGE);
    std::memset(p, 0, rounded);
    data_ = static_cast<uint8_t*>(p);
    return;
  }
#endif
  void* p = std::aligned_alloc(alignment, rounded);
  if (p == nullptr) throw std::bad_alloc();
  std::memset(p, 0, rounded);
  data_ = static_cast<uint8_t*>(p);
}

AlignedBuffer::~AlignedBuffer() { release(); }

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void AlignedBuffer::ensure(size_t size) {
  if (size > size_) *this = AlignedBuffer(size);
}

void AlignedBuffer::release() noexcept {
  std::free(data_);
  data_ = nullptr;
}

size_t checked_mul(size_t a, size_t b) {
  size_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) throw std::length_error("size overflow");
  return result;
}

size_t checked_add(size_t a, size_t b) {
  size_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) throw std::length_error("size overflow");
  return result;
}

}  // namespace coli
