#include "core/processor.h"

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#endif

namespace coli {

#if defined(__linux__)

namespace {

static_assert(sizeof(cpu_set_t) == 1024 / 8, "allowed processors are kept as 1024 bits");

bool get_allowed(int32_t id, cpu_set_t* allowed) {
  return sched_getaffinity(id, sizeof *allowed, allowed) == 0;
}

bool set_allowed(int32_t id, const cpu_set_t& allowed) {
  return sched_setaffinity(id, sizeof allowed, &allowed) == 0;
}

// Off the caller's processor by forbidding it for a moment.
void send_elsewhere(int32_t id, const cpu_set_t& allowed) {
  cpu_set_t others = allowed;
  const int here = sched_getcpu();
  if (here < 0 || here >= CPU_SETSIZE) return;
  CPU_CLR(here, &others);
  if (CPU_COUNT(&others) != 0) set_allowed(id, others);
}

}  // namespace

int current_processor() { return sched_getcpu(); }

void ScheduledThread::set_current() {
  clockid_t clock = 0;
  const bool known = pthread_getcpuclockid(pthread_self(), &clock) == 0;
  clock_.store(clock, std::memory_order_relaxed);
  id_.store(known ? static_cast<int32_t>(syscall(SYS_gettid)) : 0, std::memory_order_relaxed);
}

int64_t ScheduledThread::time_run() const {
  timespec time{};
  if (id_.load(std::memory_order_relaxed) == 0) return -1;
  if (clock_gettime(clock_.load(std::memory_order_relaxed), &time) != 0) return -1;
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

bool ScheduledThread::pull_here() {
  const int32_t id = id_.load(std::memory_order_relaxed);
  cpu_set_t allowed;
  if (id == 0 || !get_allowed(id, &allowed)) return false;
  const int here = sched_getcpu();
  if (here < 0 || here >= CPU_SETSIZE || !CPU_ISSET(here, &allowed)) return false;
  std::memcpy(allowed_, &allowed, sizeof allowed);
  CPU_ZERO(&allowed);
  CPU_SET(here, &allowed);
  return set_allowed(id, allowed);
}

void ScheduledThread::release(bool elsewhere) {
  const int32_t id = id_.load(std::memory_order_relaxed);
  cpu_set_t allowed;
  std::memcpy(&allowed, allowed_, sizeof allowed);
  if (elsewhere) send_elsewhere(id, allowed);
  set_allowed(id, allowed);
}

void leave_processor() {
  cpu_set_t allowed;
  if (!get_allowed(0, &allowed) || CPU_COUNT(&allowed) < 2) return;
  send_elsewhere(0, allowed);
  set_allowed(0, allowed);
}

#else

int current_processor() { return -1; }
void ScheduledThread::set_current() {}
int64_t ScheduledThread::time_run() const { return -1; }
bool ScheduledThread::pull_here() { return false; }
void ScheduledThread::release(bool) {}
void leave_processor() {}

#endif

}  // namespace coli
