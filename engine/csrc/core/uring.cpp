#include "core/uring.h"

#include <cerrno>
#include <cstring>

#if defined(__linux__) && defined(__has_include)
#if __has_include(<linux/io_uring.h>)
#define COLI_HAVE_URING 1
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>
#endif
#endif

namespace coli {

#if defined(COLI_HAVE_URING) && defined(__NR_io_uring_setup)

namespace {

int ring_setup(unsigned entries, io_uring_params* params) {
  return static_cast<int>(syscall(__NR_io_uring_setup, entries, params));
}

// Reads came with a later kernel than rings; a kernel too old for the question lacks them.
bool knows_reads(int ring) {
  constexpr unsigned kNumOps = 64;
  std::vector<uint8_t> room(sizeof(io_uring_probe) + kNumOps * sizeof(io_uring_probe_op));
  auto* const probe = reinterpret_cast<io_uring_probe*>(room.data());
  if (syscall(__NR_io_uring_register, ring, IORING_REGISTER_PROBE, probe, kNumOps) < 0)
    return false;
  return probe->last_op >= IORING_OP_READ &&
         (probe->ops[IORING_OP_READ].flags & IO_URING_OP_SUPPORTED) != 0;
}

unsigned* word(uint8_t* base, unsigned offset) {
  return reinterpret_cast<unsigned*>(base + offset);
}

}  // namespace

std::unique_ptr<Uring> Uring::create(unsigned entries, std::string* reason) {
  io_uring_params params{};
  std::unique_ptr<Uring> uring(new Uring());
  uring->ring_ = ring_setup(entries, &params);
  if (uring->ring_ < 0) {
    *reason = std::string("io_uring is not available: ") + std::strerror(errno);
    return nullptr;
  }
  if ((params.features & IORING_FEAT_SINGLE_MMAP) == 0 ||
      (params.features & IORING_FEAT_NODROP) == 0 || !knows_reads(uring->ring_)) {
    *reason = "io_uring of this kernel is too old";
    return nullptr;
  }
  if (!uring->map(params)) {
    *reason = std::string("io_uring is not available: ") + std::strerror(errno);
    return nullptr;
  }
  return uring;
}

bool Uring::map(const io_uring_params& params) {
  const size_t sq_size = params.sq_off.array + params.sq_entries * sizeof(unsigned);
  const size_t cq_size = params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe);
  const size_t size = sq_size > cq_size ? sq_size : cq_size;
  void* rings = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_,
                     IORING_OFF_SQ_RING);
  if (rings == MAP_FAILED) return false;
  rings_ = static_cast<uint8_t*>(rings);
  rings_size_ = size;
  const size_t entries_size = params.sq_entries * sizeof(io_uring_sqe);
  void* entries = mmap(nullptr, entries_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                       ring_, IORING_OFF_SQES);
  if (entries == MAP_FAILED) return false;
  entries_ = static_cast<uint8_t*>(entries);
  entries_size_ = entries_size;
  num_entries_ = params.sq_entries;
  sq_head_ = word(rings_, params.sq_off.head);
  sq_tail_ = word(rings_, params.sq_off.tail);
  sq_mask_ = *word(rings_, params.sq_off.ring_mask);
  sq_array_ = word(rings_, params.sq_off.array);
  cq_head_ = word(rings_, params.cq_off.head);
  cq_tail_ = word(rings_, params.cq_off.tail);
  cq_mask_ = *word(rings_, params.cq_off.ring_mask);
  completions_ = rings_ + params.cq_off.cqes;
  return true;
}

Uring::~Uring() {
  if (entries_ != nullptr) munmap(entries_, entries_size_);
  if (rings_ != nullptr) munmap(rings_, rings_size_);
  if (ring_ >= 0) ::close(ring_);
}

bool Uring::prepare_read(int descriptor, uint8_t* to, size_t size, uint64_t offset, uint64_t data,
                         bool in_worker) {
  const unsigned tail = *sq_tail_;  // only this side writes it
  if (tail - __atomic_load_n(sq_head_, __ATOMIC_ACQUIRE) >= num_entries_) return false;
  const unsigned index = tail & sq_mask_;
  auto* const entry = reinterpret_cast<io_uring_sqe*>(entries_) + index;
  std::memset(entry, 0, sizeof *entry);
  entry->opcode = IORING_OP_READ;
  entry->flags = in_worker ? IOSQE_ASYNC : uint8_t{0};
  entry->fd = descriptor;
  entry->addr = reinterpret_cast<uint64_t>(to);
  entry->len = static_cast<uint32_t>(size);
  entry->off = offset;
  entry->user_data = data;
  sq_array_[index] = index;
  __atomic_store_n(sq_tail_, tail + 1, __ATOMIC_RELEASE);
  ++to_submit_;
  return true;
}

int Uring::submit_and_wait() {
  const auto submitted = syscall(__NR_io_uring_enter, ring_, to_submit_, 1U, IORING_ENTER_GETEVENTS,
                                 nullptr, size_t{0});
  if (submitted < 0) return errno;
  to_submit_ -= static_cast<unsigned>(submitted);
  return 0;
}

bool Uring::next_completion(uint64_t* data, int64_t* result) {
  const unsigned head = *cq_head_;  // only this side writes it
  if (head == __atomic_load_n(cq_tail_, __ATOMIC_ACQUIRE)) return false;
  const auto* const event = reinterpret_cast<const io_uring_cqe*>(completions_) + (head & cq_mask_);
  *data = event->user_data;
  *result = event->res;
  __atomic_store_n(cq_head_, head + 1, __ATOMIC_RELEASE);
  return true;
}

#else

std::unique_ptr<Uring> Uring::create(unsigned, std::string* reason) {
  *reason = "io_uring is a feature of Linux";
  return nullptr;
}
Uring::~Uring() = default;
bool Uring::prepare_read(int, uint8_t*, size_t, uint64_t, uint64_t, bool) { return false; }
int Uring::submit_and_wait() { return ENOSYS; }
bool Uring::next_completion(uint64_t*, int64_t*) { return false; }

#endif

}  // namespace coli
