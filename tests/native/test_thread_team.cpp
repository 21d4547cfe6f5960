// Members of the team that the system puts aside while others wait for them: a sleeping body stands
// for a thread that another process keeps from running.
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "core/processor.h"
#include "core/thread_team.h"
#include "float_testing.h"

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

int num_allowed_processors() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : -1;
}

bool is_held_to_one_processor() { return num_allowed_processors() == 1; }

// Sleeps until done() is true; false after `limit`.
template <typename Done>
bool sleep_until(milliseconds limit, const Done& done) {
  const auto deadline = Clock::now() + limit;
  while (!done()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

// Runs regions of one item per thread until a thread of the wanted kind was brought to another's
// processor while it slept. The others give it time to come, but a late thread finds its item taken
// by another, so the first region need not be the one.
bool is_hosted(bool caller_sleeps, int threads) {
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> hosted{false};
  for (int tries = 0; tries < 100 && !hosted; ++tries) {
    std::atomic<bool> came{false};
    coli::ThreadTeam::instance().run(threads, 1, [&](int64_t, int64_t) {
      if ((std::this_thread::get_id() == caller) == caller_sleeps) {
        came = true;
        if (sleep_until(milliseconds(50), is_held_to_one_processor)) hosted = true;
      } else {
        sleep_until(milliseconds(50), [&] { return came.load(); });
      }
    });
  }
  return hosted;
}

// Whether every thread may soon run where it might before.
bool all_are_home(int allowed, int threads) {
  for (int tries = 0; tries < 100; ++tries) {
    std::atomic<int> away{0};
    coli::ThreadTeam::instance().run(threads, 1, [&](int64_t, int64_t) {
      if (num_allowed_processors() != allowed) ++away;
    });
    if (away == 0 && num_allowed_processors() == allowed) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

void test_hosting(int threads) {
  coli::ThreadTeam& team = coli::ThreadTeam::instance();
  const std::string name = " of " + std::to_string(threads) + " threads";
  const int allowed = num_allowed_processors();
  team.resize(threads);
  const int64_t stalls = team.num_stalls();
  check(is_hosted(/*caller_sleeps=*/false, threads), "the caller hosts a sleeping worker" + name);
  check(team.num_stalls() > stalls, "waiting for a sleeping worker is a stall" + name);
  check(all_are_home(allowed, threads), "a worker goes home" + name);
  check(is_hosted(/*caller_sleeps=*/true, threads), "a worker hosts the sleeping caller" + name);
  check(all_are_home(allowed, threads), "the caller goes home" + name);
}

void test_regions_are_whole_while_members_sleep(int threads) {
  coli::ThreadTeam::instance().resize(threads);
  Random random(1);
  bool whole = true;
  for (int i = 0; i < 300; ++i) {
    const int64_t count = 1 + random.below(40);
    std::vector<std::atomic<int>> times(static_cast<size_t>(count));
    const int64_t sleepy = random.below(2 * count);
    coli::ThreadTeam::instance().run(count, 2, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        ++times[static_cast<size_t>(item)];
        if (item == sleepy) std::this_thread::sleep_for(milliseconds(1));
      }
    });
    for (const auto& n : times) whole &= n == 1;
  }
  check(whole, "every item once with " + std::to_string(threads) + " threads");
}

void test_time_run() {
  coli::ScheduledThread thread;
  check(thread.time_run() == -1, "nothing is known of no thread");
  check(!thread.pull_here(), "no thread cannot be moved");
  thread.set_current();
  const int64_t first = thread.time_run();
  check(first >= 0, "the time of this thread is known");
  check(sleep_until(milliseconds(5000), [&] { return thread.time_run() > first; }),
        "time passes while it runs");
  const int64_t before = thread.time_run();
  std::this_thread::sleep_for(milliseconds(50));
  check(thread.time_run() - before < 40'000'000, "time stands still while it sleeps");
}

}  // namespace

int main() {
  test_time_run();
  for (const int threads : {2, 3, 5}) {
    test_hosting(threads);
    test_regions_are_whole_while_members_sleep(threads);
  }
  return report();
}
