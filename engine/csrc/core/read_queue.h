// What one device is to read next: demand first, and never so much of the rest that demand waits.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "core/expert_slots.h"
#include "core/read_file.h"

namespace coli {

enum class ReadPriority : int32_t { kDemand = 0, kNextBlock = 1, kSpeculative = 2 };
constexpr size_t kNumPriorities = 3;

// Parts in which a read is handed out. Long enough for full speed, short enough that a demand read
// does not wait for the whole of a speculative one.
constexpr size_t kReadPart = size_t{1} << 20;

// One read: `size` bytes from `offset` on into a slot, in parts that are under way together.
struct ReadRequest {
  int64_t tag = 0;
  ReadPriority priority = ReadPriority::kDemand;
  std::shared_ptr<SlotArena> arena;
  int64_t slot = 0;
  uint8_t* to = nullptr;
  uint64_t offset = 0;
  size_t size = 0;

  size_t num_parts() const { return (size + kReadPart - 1) / kReadPart; }

  // What has come of it so far.
  bool has_begun = false;
  std::chrono::steady_clock::time_point begin;
  size_t waiting = 0;    // parts that no device has taken yet
  size_t under_way = 0;  // parts that are being read
  size_t bytes = 0;
  int error = 0;
  int64_t file = 0;  // the one that failed
  bool was_direct = true;
};

// The parts of a request that come from one file: first, first + step, and so on.
struct ReadLeg {
  std::shared_ptr<ReadRequest> request;
  std::shared_ptr<ReadFile> file;
  int64_t file_id = 0;
  size_t next = 0;
  size_t step = 1;

  bool is_over() const { return next >= request->num_parts(); }
};

// One part that is being read.
struct ReadPart {
  std::shared_ptr<ReadRequest> request;
  std::shared_ptr<ReadFile> file;
  int64_t file_id = 0;
  FilePiece piece;
};

// The queue of one device. Not thread-safe: the engine's lock guards it.
class ReadQueue {
 public:
  // At most `depth` parts are under way. Those of the next block join only while fewer than half of
  // that are, speculative ones while fewer than a quarter are.
  explicit ReadQueue(int depth);

  int depth() const { return limits_[0]; }
  int num_under_way() const { return under_way_; }
  bool is_empty() const;

  void push(ReadLeg leg);
  bool can_take() const;
  ReadPart take();  // after can_take(); the part is under way until finished()
  void finished() { --under_way_; }

  void withdraw(const ReadRequest& request);
  void move(const ReadRequest& request, ReadPriority from, ReadPriority to);

 private:
  const std::deque<ReadLeg>* first_allowed() const;

  std::array<int, kNumPriorities> limits_;
  std::array<std::deque<ReadLeg>, kNumPriorities> legs_;
  int under_way_ = 0;
};

}  // namespace coli
