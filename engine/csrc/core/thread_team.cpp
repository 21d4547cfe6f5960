#include "core/thread_team.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "core/parking.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace coli {
namespace {

constexpr int kMaxThreads = 256;
// A worker stays awake this long between regions: longer than the gap between two operators of a
// decode step, shorter than anything a person or a scheduler would notice.
constexpr auto kWorkerSpin = std::chrono::microseconds(60);
// A grain takes a few microseconds; one that is not back after this may belong to a thread that the
// system has put aside. So it is looked at whether that thread runs, for a little longer than it
// takes to look.
constexpr auto kPatience = std::chrono::microseconds(25);
constexpr auto kLook = std::chrono::microseconds(6);
constexpr int64_t kLookNanos = std::chrono::nanoseconds(kLook).count();
// A sleeping caller looks again this often.
constexpr auto kLookInterval = std::chrono::microseconds(200);
constexpr int kSpinsPerClockRead = 32;
constexpr uint64_t kClosed = 0xffffffff;  // as next item: nothing left to take

inline void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

// Spins until done() or `limit` has passed; returns done().
template <typename Done>
bool spin_until(std::chrono::microseconds limit, const Done& done) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (true) {
    for (int i = 0; i < kSpinsPerClockRead; ++i) {
      if (done()) return true;
      pause_cpu();
    }
    if (std::chrono::steady_clock::now() >= deadline) return done();
  }
}

uint64_t claim_word(uint32_t region, uint32_t next) {
  return (static_cast<uint64_t>(region) << 32) | next;
}

}  // namespace

ThreadTeam& ThreadTeam::instance() {
  static ThreadTeam team;
  return team;
}

ThreadTeam::ThreadTeam() : shares_(new Share[kMaxThreads]), members_(new TeamMember[kMaxThreads]) {}

ThreadTeam::~ThreadTeam() { stop_workers(); }

void ThreadTeam::stop_workers() {
  stopping_.store(true);
  region_.fetch_add(1);
  unpark_all(region_);
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
  stopping_.store(false);
}

void ThreadTeam::resize(int num_threads) {
  const std::lock_guard<std::mutex> lock(entry_);
  num_threads = std::clamp(num_threads, 1, kMaxThreads);
  if (num_threads == num_threads_) return;
  stop_workers();
  num_threads_ = num_threads;
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this, i] { worker_loop(i); });
}

void ThreadTeam::run_erased(int64_t count, int64_t grain, Function function, const void* context) {
  if (count <= 0) return;
  if (num_threads_ == 1 || count <= grain) {
    function(context, 0, count);
    return;
  }
  const std::lock_guard<std::mutex> lock(entry_);
  // Item numbers are 32 bits wide beside the region's number; nothing here comes near that.
  const auto items = static_cast<uint32_t>(count);
  const auto shares = static_cast<uint32_t>(num_threads_);
  note_caller();
  num_shares_.store(num_threads_, std::memory_order_relaxed);
  open_items_.store(items, std::memory_order_relaxed);
  const uint32_t region = region_.load(std::memory_order_relaxed) + 1;
  for (uint32_t i = 0; i < shares; ++i) {
    const auto begin = static_cast<uint32_t>(static_cast<uint64_t>(items) * i / shares);
    const auto end = static_cast<uint32_t>(static_cast<uint64_t>(items) * (i + 1) / shares);
    Share& share = shares_[i];
    // Nobody may take anything while the fields change: a late thread that reads a new field has
    // then also seen the closed word, and its swap of the old one fails.
    share.word.store(share.word.load(std::memory_order_relaxed) | kClosed,
                     std::memory_order_relaxed);
    share.end.store(end, std::memory_order_release);
    share.grain.store(static_cast<uint32_t>(grain), std::memory_order_release);
    share.function.store(function, std::memory_order_release);
    share.context.store(context, std::memory_order_release);
    share.word.store(claim_word(region, begin), std::memory_order_release);
  }
  region_.store(region, std::memory_order_seq_cst);
  wake_workers();
  work(region, 0, num_threads_);
  wait_for_grains();
}

void ThreadTeam::note_caller() {
  // Not std::thread::id: the system gives that of a thread that has ended to the next one.
  static std::atomic<uint64_t> num_callers{0};
  thread_local const uint64_t caller = ++num_callers;
  if (caller_ != caller) {
    caller_ = caller;
    members_[0].enter();
  }
  const int processor = current_processor();
  if (caller_processor_.load(std::memory_order_relaxed) != processor) {
    caller_processor_.store(processor, std::memory_order_relaxed);
  }
}

void ThreadTeam::wake_workers() {
  if (sleepers_.load(std::memory_order_seq_cst) != 0) unpark_all(region_);
}

void ThreadTeam::work(uint32_t region, int self, int num_shares) {
  TeamMember& member = members_[self];
  for (int i = 0; i < num_shares; ++i) {
    Share& share = shares_[(self + i) % num_shares];
    uint64_t word = share.word.load(std::memory_order_acquire);
    while (true) {
      const uint32_t end = share.end.load(std::memory_order_acquire);
      const Function function = share.function.load(std::memory_order_acquire);
      const void* context = share.context.load(std::memory_order_acquire);
      const uint32_t grain = share.grain.load(std::memory_order_acquire);
      const auto next = static_cast<uint32_t>(word);
      // The loads above are only trusted when the swap succeeds: it proves that the share was
      // open all the while, and its fields do not change while an item of it is unfinished.
      if (static_cast<uint32_t>(word >> 32) != region || next >= end) break;
      const uint32_t stop = std::min(end, next + std::max(grain, (end - next) / 2));
      if (!share.word.compare_exchange_weak(word, claim_word(region, stop),
                                            std::memory_order_acq_rel, std::memory_order_acquire)) {
        continue;
      }
      member.begin_items();
      function(context, next, stop);
      const uint32_t done_items = stop - next;
      const bool last = open_items_.fetch_sub(done_items, std::memory_order_seq_cst) == done_items;
      const bool guest = member.end_items();
      if (self != 0 && (last || guest) && caller_sleeps_.load(std::memory_order_seq_cst) != 0) {
        unpark_all(open_items_);
      }
      if (guest) member.end_visit(/*elsewhere=*/self != 0);
      word = share.word.load(std::memory_order_acquire);
    }
  }
}

// Finds a member in [begin, end) that holds items and does not run, and brings it here.
TeamMember* ThreadTeam::host_one_of(int begin, int end) {
  std::array<int64_t, kMaxThreads> before;
  const auto time_run = [&](int i) {
    return members_[i].holds_items() ? members_[i].time_run() : -1;
  };
  for (int i = begin; i < end; ++i) before[static_cast<size_t>(i)] = time_run(i);
  const auto done = [this] { return open_items_.load(std::memory_order_seq_cst) == 0; };
  if (spin_until(kLook, done)) return nullptr;
  for (int i = begin; i < end; ++i) {
    const int64_t first = before[static_cast<size_t>(i)];
    const int64_t now = first < 0 ? -1 : time_run(i);
    if (now >= 0 && now - first < kLookNanos / 4 && members_[i].invite()) return &members_[i];
  }
  return nullptr;
}

void ThreadTeam::wait_for_grains() {
  const auto done = [this] { return open_items_.load(std::memory_order_seq_cst) == 0; };
  if (done() || spin_until(kPatience, done)) return;
  ++num_stalls_;
  caller_sleeps_.store(1, std::memory_order_seq_cst);
  TeamMember* guest = nullptr;
  uint32_t open = 0;
  while ((open = open_items_.load(std::memory_order_seq_cst)) != 0) {
    if (guest == nullptr) guest = host_one_of(1, num_threads_);
    park_for(open_items_, open, kLookInterval);
    // A guest that is done is usually pushed aside by the wake-up before it has left.
    if (guest != nullptr && !guest->holds_items()) {
      guest->end_visit(/*elsewhere=*/true);
      guest = nullptr;
    }
  }
  caller_sleeps_.store(0, std::memory_order_relaxed);
}

void ThreadTeam::worker_loop(int self) {
  members_[self].enter();
  uint32_t seen = region_.load(std::memory_order_acquire);
  while (!stopping_.load(std::memory_order_acquire)) {
    const auto changed = [&] { return region_.load(std::memory_order_seq_cst) != seen; };
    bool is_new = spin_until(kPatience, changed);
    if (!is_new && open_items_.load(std::memory_order_seq_cst) != 0 && host_one_of(0, 1)) {
      leave_processor();
    }
    is_new = is_new || spin_until(kWorkerSpin - kPatience, changed);
    if (!is_new) {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      while (!changed()) park(region_, seen);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }
    // Where no processor is free the system likes to wake a thread on the one that woke it.
    if (current_processor() == caller_processor_.load(std::memory_order_relaxed)) {
      leave_processor();
    }
    seen = region_.load(std::memory_order_acquire);
    work(seen, self, num_shares_.load(std::memory_order_relaxed));
  }
}

}  // namespace coli
