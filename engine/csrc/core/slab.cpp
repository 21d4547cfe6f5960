#include "core/slab.h"

#include <mutex>
#include <utility>

namespace coli {
namespace {

constexpr size_t kSlabBytes = size_t{16} << 20;
constexpr size_t kAlignment = 64;

std::mutex slab_mutex;
std::shared_ptr<AlignedBuffer> current;  // the slab that still has room
size_t used = 0;

}  // namespace

SlabBlock::SlabBlock(std::shared_ptr<const void> owner, uint8_t* data, size_t size)
    : slab_(std::move(owner)), data_(data), size_(size) {}

SlabBlock::SlabBlock(size_t size) : size_(size) {
  const size_t rounded = checked_add(size, kAlignment - 1) / kAlignment * kAlignment;
  if (rounded > kSlabBytes / 4) {
    const auto slab = std::make_shared<AlignedBuffer>(rounded);
    data_ = slab->data();
    slab_ = slab;
    return;
  }
  const std::lock_guard<std::mutex> lock(slab_mutex);
  if (current == nullptr || used + rounded > kSlabBytes) {
    current = std::make_shared<AlignedBuffer>(kSlabBytes);
    used = 0;
  }
  slab_ = current;
  data_ = current->data() + used;
  used += rounded;
}

}  // namespace coli
