// One team of threads for the whole engine: short parallel regions, no spinning without bound.
//
// A region is a range of items. Every thread owns a share of it and takes from its own share first,
// from the others' afterwards, so a thread that the system does not run costs nothing but what it
// holds, where a barrier that waits for every thread loses half of the speed when another process
// takes a core. A thread takes half of what a share still has, down to `grain`: long ranges stream
// well, short ones end together. What a thread holds that has been put aside is not waited for
// either: a thread that is done lends it its processor.
//
// Claims are compare-and-swap on a word that holds the region's number beside the next item, so a
// late thread can never run one region's body on another region's items.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/team_member.h"

namespace coli {

class ThreadTeam {
 public:
  static ThreadTeam& instance();

  // Total threads, the caller included; clamped to 1..256. Ends and starts workers.
  void resize(int num_threads);
  int size() const { return num_threads_; }

  // Calls body(begin, end) for disjoint ranges that cover [0, count), on any thread of the team,
  // and returns when all are done. `grain` is the shortest range worth handing over; no more than
  // that is handed to the caller alone. Bodies must not throw.
  template <typename Body>
  void run(int64_t count, int64_t grain, const Body& body) {
    run_erased(
        count, grain,
        [](const void* context, int64_t begin, int64_t end) {
          (*static_cast<const Body*>(context))(begin, end);
        },
        &body);
  }

  // For a test: how many times the caller had to sleep for a grain that another thread held.
  int64_t num_stalls() const { return num_stalls_; }

  ~ThreadTeam();

 private:
  using Function = void (*)(const void* context, int64_t begin, int64_t end);
  // Everything a thread needs to join a region, in one cache line (two, where they come in pairs).
  // Workers wait on `region_` and not here: a line that others read in a loop goes back and forth
  // at every store, and a region begins with several.
  struct alignas(128) Share {
    std::atomic<uint64_t> word{0};  // region number << 32 | next item
    std::atomic<uint32_t> end{0};
    std::atomic<uint32_t> grain{1};
    std::atomic<Function> function{nullptr};
    std::atomic<const void*> context{nullptr};
  };

  ThreadTeam();
  void run_erased(int64_t count, int64_t grain, Function function, const void* context);
  void work(uint32_t region, int self, int num_shares);
  void worker_loop(int self);
  void note_caller();
  void wait_for_grains();
  TeamMember* host_one_of(int begin, int end);
  void wake_workers();
  void stop_workers();

  int num_threads_ = 1;
  std::vector<std::thread> workers_;
  std::unique_ptr<Share[]> shares_;
  std::unique_ptr<TeamMember[]> members_;  // the caller is the first
  uint64_t caller_ = 0;
  std::mutex entry_;  // one region at a time, whichever thread asks

  alignas(128) std::atomic<uint32_t> region_{0};  // written once per region
  std::atomic<int> caller_processor_{-1};         // as it was at the beginning of a region
  alignas(128) std::atomic<uint32_t> open_items_{0};
  alignas(128) std::atomic<int> num_shares_{1};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> caller_sleeps_{0};
  std::atomic<bool> stopping_{false};
  int64_t num_stalls_ = 0;
};

}  // namespace coli
