// Reads of expert records from any number of disks at once, in order of how much they are waited
// for.
//
// One queue per device, served by a ring of the kernel's (io_uring) or by threads. Everything is
// cut into parts, so a read that is waited for overtakes all that is not, at the cost of the parts
// under way. Nothing here knows models or files' contents.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/read_queue.h"
#include "core/uring.h"

namespace coli {

enum class ReadMode : int32_t { kAuto, kUring, kThreads };

// A read that is over. Without an error all of its bytes are in the slot.
struct ReadCompletion {
  int64_t tag;
  int error;         // 0 or an errno; ENODATA: the file ends before, ECANCELED: the engine closed
  int64_t bytes;     // that arrived
  double service_s;  // from the first part handed to the device to the last one back
  bool direct;       // around the page cache
  int64_t file;      // the one that failed, else the first
};

struct ReadTarget {
  std::shared_ptr<SlotArena> arena;
  int64_t slot;
  int64_t offset;  // in the slot
};

struct ReadSource {
  std::vector<int64_t> files;  // the parts come from all of them in turn
  int64_t offset;
  int64_t size;
};

// Thread-safe.
class ReadEngine {
 public:
  // `depth` parts (1..1024) under way per device with io_uring; `num_threads` (1..256) threads per
  // device without. Throws std::invalid_argument, and std::runtime_error when io_uring is demanded
  // but not there.
  ReadEngine(ReadMode mode, int depth, int num_threads);
  ~ReadEngine();
  ReadEngine(const ReadEngine&) = delete;
  ReadEngine& operator=(const ReadEngine&) = delete;

  bool uses_uring() const { return uses_uring_; }
  const std::string& mode_reason() const { return mode_reason_; }  // why not io_uring; or empty
  int depth() const { return uses_uring_ ? depth_ : num_threads_; }

  // Files by number. Throw std::system_error, std::out_of_range.
  int64_t open(const std::string& path, bool direct);
  void close_file(int64_t file);  // descriptors stay until its last read is over
  bool is_direct(int64_t file);
  int64_t device(int64_t file);  // number of its queue

  // `tag` names the read until its completion was taken. Throws std::invalid_argument,
  // std::out_of_range.
  void submit(int64_t tag, const ReadSource& source, const ReadTarget& target,
              ReadPriority priority);
  // Raises the priority of an open read, and lowers none. False when no such read is open.
  bool promote(int64_t tag, ReadPriority priority);
  // True when the read had not begun: it is gone, without a completion.
  bool cancel(int64_t tag);

  std::vector<ReadCompletion> poll();
  // Waits for a completion; empty when the time is over, or at once when no read is open.
  std::vector<ReadCompletion> wait(std::chrono::nanoseconds timeout);

  int64_t num_open();
  int64_t num_queued();  // of them, those that have not begun
  int64_t bytes_read();

  // Ends all reads: what has not begun is cancelled, what has begun is waited for. Idempotent.
  void close();

 private:
  struct OpenFile {
    std::shared_ptr<ReadFile> file;
    size_t device;
  };
  struct Device {
    explicit Device(int depth) : queue(depth) {}
    ReadQueue queue;
    std::condition_variable changed;
    std::vector<std::thread> threads;
    std::unique_ptr<Uring> ring;
    int wake = -1;  // an eventfd that the ring reads, to hear of new work
  };

  const OpenFile& file_of(int64_t file) const;
  size_t device_of(uint64_t id);
  void start(Device& device);
  void wake(Device& device);
  void work(Device& device);
  void serve_ring(Device& device);
  void withdraw(const ReadRequest& request);
  void finish(Device& device, ReadPart& part);
  void complete(const std::shared_ptr<ReadRequest>& request);

  int depth_;
  int num_threads_;
  bool uses_uring_ = false;
  std::string mode_reason_;

  std::mutex mutex_;  // guards all that follows
  std::condition_variable completed_;
  std::vector<OpenFile> files_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unordered_map<uint64_t, size_t> device_numbers_;
  std::unordered_map<int64_t, std::shared_ptr<ReadRequest>> open_;
  std::vector<ReadCompletion> completions_;
  int64_t bytes_read_ = 0;
  bool is_closing_ = false;
  std::mutex closing_;  // one close() at a time
};

}  // namespace coli
