#include "core/parking.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#else
#include <condition_variable>
#include <mutex>
#endif

namespace coli {

#if defined(__linux__)

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex word is 32 bits");

void park(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
          nullptr, 0);
}

void park_for(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::microseconds limit) {
  constexpr int64_t kMicrosPerSecond = 1'000'000;
  const timespec timeout{static_cast<time_t>(limit.count() / kMicrosPerSecond),
                         static_cast<long>(limit.count() % kMicrosPerSecond) * 1000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, &timeout,
          nullptr, 0);
}

void unpark_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
          nullptr, 0);
}

#else

namespace {
std::mutex parking_mutex;
std::condition_variable parking_condition;
}  // namespace

void park(std::atomic<uint32_t>& word, uint32_t expected) {
  std::unique_lock<std::mutex> lock(parking_mutex);
  parking_condition.wait(lock, [&] { return word.load() != expected; });
}

void park_for(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::microseconds limit) {
  std::unique_lock<std::mutex> lock(parking_mutex);
  parking_condition.wait_for(lock, limit, [&] { return word.load() != expected; });
}

void unpark_all(std::atomic<uint32_t>&) {
  const std::lock_guard<std::mutex> lock(parking_mutex);
  parking_condition.notify_all();
}

#endif

}  // namespace coli
