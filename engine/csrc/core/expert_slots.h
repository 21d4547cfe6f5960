// Memory that expert records are read into: slots of one size, given back one by one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace coli {

// Addresses of `num_slots` slots of `slot_bytes` bytes each (rounded up to 4 KiB, where every slot
// begins). Memory comes when a slot is first written to, huge pages being advised, and goes back to
// the system with release(): what a slot takes is then no longer resident. Slots keep their
// addresses. Thread-safe.
class SlotArena {
 public:
  // Throws std::invalid_argument, std::length_error, std::bad_alloc.
  SlotArena(int64_t num_slots, int64_t slot_bytes);
  ~SlotArena();
  SlotArena(const SlotArena&) = delete;
  SlotArena& operator=(const SlotArena&) = delete;

  int64_t num_slots() const { return num_slots_; }
  size_t slot_bytes() const { return slot_bytes_; }

  // Throws std::out_of_range when there is no such slot.
  uint8_t* slot(int64_t slot) const;

  // Gives a slot's memory back; it then reads as zeros. Throws std::invalid_argument while a read
  // into it is open, std::out_of_range when there is no such slot.
  void release(int64_t slot);

  // Reads that are open hold their slot: release() refuses it meanwhile.
  void hold(int64_t slot);
  void let_go(int64_t slot);

  // Whether the system has given a slot its memory. Until then who writes to it waits for that, too,
  // and long where huge pages must be made first.
  bool has_memory(int64_t slot) const { return has_memory_[static_cast<size_t>(slot)].load(); }
  void note_memory(int64_t slot) { has_memory_[static_cast<size_t>(slot)].store(true); }

 private:
  int64_t num_slots_;
  size_t slot_bytes_;
  uint8_t* base_ = nullptr;
  std::unique_ptr<std::atomic<int32_t>[]> holds_;  // -1 while the slot is being given back
  std::unique_ptr<std::atomic<bool>[]> has_memory_;
};

}  // namespace coli
