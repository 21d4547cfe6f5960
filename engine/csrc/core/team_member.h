// One thread of the team as the others see it: whether they must wait for it, and how they help.
//
// The system may put a thread aside while it holds items of a region, for milliseconds, when
// another process wants its processor. A thread that has nothing else to do then hosts it: brings
// it to its own processor and makes room. A guest goes home when its items are done.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/processor.h"

namespace coli {

class alignas(128) TeamMember {
 public:
  // The calling thread is this member from now on.
  void enter() { thread_.set_current(); }

  // By the member: between these calls it holds items. The second returns true when it is a guest.
  void begin_items() { holds_items_.store(true, std::memory_order_relaxed); }
  bool end_items() {
    holds_items_.store(false, std::memory_order_seq_cst);
    return visit_.load(std::memory_order_seq_cst) != kHome;
  }

  bool holds_items() const { return holds_items_.load(std::memory_order_seq_cst); }
  // Nanoseconds for which it has run so far; -1 when unknown.
  int64_t time_run() const { return thread_.time_run(); }

  // Brings it to the calling thread's processor if it holds items. True when it is there now.
  bool invite();
  // Ends a visit, by guest or host. With `elsewhere` the guest leaves the caller's processor, too.
  void end_visit(bool elsewhere);

 private:
  enum Visit : uint32_t { kHome, kMoving, kGuest };

  std::atomic<bool> holds_items_{false};
  std::atomic<Visit> visit_{kHome};
  ScheduledThread thread_;  // where it may run changes only while kMoving
};

}  // namespace coli
