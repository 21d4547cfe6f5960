#include "core/expert_slots.h"

#include <sys/mman.h>

#include <new>
#include <stdexcept>
#include <string>

#include "core/aligned.h"

namespace coli {
namespace {

constexpr size_t kSlotAlignment = 4096;  // what unbuffered reads want of an address
constexpr size_t kHugePage = size_t{2} << 20;

#if defined(MAP_NORESERVE)
constexpr int kMapFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
#else
constexpr int kMapFlags = MAP_PRIVATE | MAP_ANONYMOUS;
#endif

size_t whole_blocks(int64_t num_slots, int64_t slot_bytes) {
  if (num_slots < 1) throw std::invalid_argument("num_slots must be at least 1");
  if (slot_bytes < 1) throw std::invalid_argument("slot_bytes must be at least 1");
  return checked_add(static_cast<size_t>(slot_bytes), kSlotAlignment - 1) / kSlotAlignment *
         kSlotAlignment;
}

}  // namespace

SlotArena::SlotArena(int64_t num_slots, int64_t slot_bytes)
    : num_slots_(num_slots), slot_bytes_(whole_blocks(num_slots, slot_bytes)) {
  const size_t size = checked_mul(static_cast<size_t>(num_slots), slot_bytes_);
  holds_ = std::make_unique<std::atomic<int32_t>[]>(static_cast<size_t>(num_slots));
  has_memory_ = std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(num_slots));
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, kMapFlags, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<uint8_t*>(address);
#if defined(MADV_HUGEPAGE)
  // Slots below a huge page would fill one another's: a slot given back would not be free.
  if (slot_bytes_ >= kHugePage) madvise(base_, size, MADV_HUGEPAGE);
#endif
#if defined(MADV_DONTDUMP)
  madvise(base_, size, MADV_DONTDUMP);  // weights can be read again; a core file should stay small
#endif
}

SlotArena::~SlotArena() { munmap(base_, static_cast<size_t>(num_slots_) * slot_bytes_); }

uint8_t* SlotArena::slot(int64_t slot) const {
  if (slot < 0 || slot >= num_slots_) {
    throw std::out_of_range("slot " + std::to_string(slot) + " is outside 0.." +
                            std::to_string(num_slots_ - 1));
  }
  return base_ + static_cast<size_t>(slot) * slot_bytes_;
}

void SlotArena::release(int64_t slot) {
  uint8_t* const address = this->slot(slot);
  std::atomic<int32_t>& holds = holds_[static_cast<size_t>(slot)];
  int32_t none = 0;
  if (!holds.compare_exchange_strong(none, -1)) {
    throw std::invalid_argument("slot " + std::to_string(slot) + " is being read into");
  }
#if defined(__linux__)
  madvise(address, slot_bytes_, MADV_DONTNEED);
#else
  // Elsewhere the advice may leave pages resident; a fresh mapping in their place does not.
  mmap(address, slot_bytes_, PROT_READ | PROT_WRITE, kMapFlags | MAP_FIXED, -1, 0);
#endif
  has_memory_[static_cast<size_t>(slot)].store(false);
  holds.store(0);
}

void SlotArena::hold(int64_t slot) {
  this->slot(slot);
  std::atomic<int32_t>& holds = holds_[static_cast<size_t>(slot)];
  int32_t seen = holds.load();
  do {
    if (seen < 0) throw std::invalid_argument("the slot is being given back");
  } while (!holds.compare_exchange_weak(seen, seen + 1));
}

void SlotArena::let_go(int64_t slot) { holds_[static_cast<size_t>(slot)].fetch_sub(1); }

}  // namespace coli
