// One io_uring, through the system calls alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct io_uring_params;  // the kernel's

namespace coli {

// Submission and completion rings for reads. One thread at a time may use one. Where the system
// has no io_uring, or a policy forbids it, create() says so.
class Uring {
 public:
  // A ring for at least `entries` reads under way; null with the reason where there is none.
  static std::unique_ptr<Uring> create(unsigned entries, std::string* reason);
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  // Adds a read. False when the ring is full. With `in_worker` the kernel does not try it in the
  // submitting thread first: copying from the page cache there would hold up everything else.
  bool prepare_read(int descriptor, uint8_t* to, size_t size, uint64_t offset, uint64_t data,
                    bool in_worker);
  // Hands over what was added and waits for at least one completion. 0 or an errno.
  int submit_and_wait();
  // The next completion, if there is one.
  bool next_completion(uint64_t* data, int64_t* result);

 private:
  Uring() = default;
  bool map(const io_uring_params& params);

  int ring_ = -1;
  uint8_t* rings_ = nullptr;
  size_t rings_size_ = 0;
  uint8_t* entries_ = nullptr;
  size_t entries_size_ = 0;
  unsigned num_entries_ = 0;
  unsigned to_submit_ = 0;

  unsigned* sq_head_ = nullptr;
  unsigned* sq_tail_ = nullptr;
  unsigned* sq_array_ = nullptr;
  unsigned sq_mask_ = 0;
  unsigned* cq_head_ = nullptr;
  unsigned* cq_tail_ = nullptr;
  unsigned cq_mask_ = 0;
  const uint8_t* completions_ = nullptr;
};

}  // namespace coli
