// Threads as the system schedules them: how long one has run, and on which processor it may.
//
// Only speed depends on this. Where the system has no such calls or refuses them, they do nothing
// and say so.
#pragma once

#include <atomic>
#include <cstdint>

namespace coli {

// Number of the processor that runs the calling thread; -1 when unknown.
int current_processor();

class ScheduledThread {
 public:
  // Becomes the calling thread. Other threads may use the old value or the new in the meantime.
  void set_current();

  // Nanoseconds for which it has run so far; -1 when unknown.
  int64_t time_run() const;

  // The following change where it may run, and are for one thread at a time.

  // Moves it to the caller's processor and keeps it there until release(). It should be waiting to
  // run: moving a running thread takes long. False when nothing was changed.
  bool pull_here();
  // Undoes pull_here(). With `elsewhere` it also leaves the caller's processor, if it may.
  void release(bool elsewhere);

 private:
  static constexpr int kMaxProcessors = 1024;

  std::atomic<int32_t> id_{0};  // 0: unknown
  std::atomic<int32_t> clock_{0};
  uint64_t allowed_[kMaxProcessors / 64] = {};  // before pull_here()
};

// Moves the calling thread to another processor, if it may use one.
void leave_processor();

}  // namespace coli
