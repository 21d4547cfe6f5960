#include "core/read_engine.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <utility>

#if defined(__linux__)
#include <sys/eventfd.h>
#endif

namespace coli {
namespace {

constexpr int64_t kMaxReadBytes = int64_t{1} << 40;

void require_that(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

int make_wake() {
#if defined(__linux__)
  return eventfd(0, EFD_CLOEXEC);
#else
  return -1;
#endif
}

// Signals of the process go to other threads: a handler here would interrupt nobody who waits.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

int64_t read_now(const FilePiece& piece) {
  const auto got =
      ::pread(piece.descriptor(), piece.to(), piece.size(), static_cast<off_t>(piece.offset()));
  return got < 0 ? -int64_t{errno} : int64_t{got};
}

}  // namespace

ReadEngine::ReadEngine(ReadMode mode, int depth, int num_threads)
    : depth_(depth), num_threads_(num_threads) {
  require_that(depth >= 1 && depth <= 1024, "depth must be 1..1024");
  require_that(num_threads >= 1 && num_threads <= 256, "num_threads must be 1..256");
  if (mode == ReadMode::kThreads) return;
  uses_uring_ = Uring::create(static_cast<unsigned>(depth) + 1, &mode_reason_) != nullptr;
  if (!uses_uring_ && mode == ReadMode::kUring) throw std::runtime_error(mode_reason_);
}

ReadEngine::~ReadEngine() { close(); }

// ---- files ----------------------------------------------------------------------------------

int64_t ReadEngine::open(const std::string& path, bool direct) {
  auto file = std::make_shared<ReadFile>(path, direct);
  const std::lock_guard<std::mutex> lock(mutex_);
  require_that(!is_closing_, "the read engine is closed");
  const size_t device = device_of(file->device());
  files_.push_back({std::move(file), device});
  return static_cast<int64_t>(files_.size()) - 1;
}

size_t ReadEngine::device_of(uint64_t id) {
  const auto known = device_numbers_.find(id);
  if (known != device_numbers_.end()) return known->second;
  devices_.push_back(std::make_unique<Device>(depth()));
  try {
    start(*devices_.back());
  } catch (...) {
    devices_.pop_back();
    throw;
  }
  return device_numbers_[id] = devices_.size() - 1;
}

void ReadEngine::start(Device& device) {
  const SignalsBlocked blocked;
  if (uses_uring_) {
    std::string reason;
    device.ring = Uring::create(static_cast<unsigned>(depth_) + 1, &reason);
    device.wake = device.ring == nullptr ? -1 : make_wake();
    if (device.wake >= 0) {
      device.threads.emplace_back([this, &device] { serve_ring(device); });
      return;
    }
    device.ring = nullptr;  // no memory left for another ring: threads will do
  }
  const int count = std::min(num_threads_, device.queue.depth());
  for (int i = 0; i < count; ++i) device.threads.emplace_back([this, &device] { work(device); });
}

const ReadEngine::OpenFile& ReadEngine::file_of(int64_t file) const {
  if (file < 0 || file >= static_cast<int64_t>(files_.size()) ||
      files_[static_cast<size_t>(file)].file == nullptr) {
    throw std::out_of_range("file " + std::to_string(file) + " is not open");
  }
  return files_[static_cast<size_t>(file)];
}

void ReadEngine::close_file(int64_t file) {
  const std::lock_guard<std::mutex> lock(mutex_);
  file_of(file);
  files_[static_cast<size_t>(file)].file = nullptr;
}

bool ReadEngine::is_direct(int64_t file) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return file_of(file).file->is_direct();
}

int64_t ReadEngine::device(int64_t file) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int64_t>(file_of(file).device);
}

// ---- requests -------------------------------------------------------------------------------

void ReadEngine::submit(int64_t tag, const ReadSource& source, const ReadTarget& target,
                        ReadPriority priority) {
  require_that(target.arena != nullptr, "a read needs an arena");
  require_that(!source.files.empty(), "a read needs a file");
  require_that(source.offset >= 0 && source.offset < kMaxReadBytes * 1024, "offset out of range");
  require_that(source.size >= 1 && source.size <= kMaxReadBytes, "nbytes must be at least 1");
  const auto room = static_cast<int64_t>(target.arena->slot_bytes());
  require_that(target.offset >= 0 && target.offset <= room && source.size <= room - target.offset,
               std::to_string(source.size) + " bytes at " + std::to_string(target.offset) +
                   " do not fit a slot of " + std::to_string(room));
  auto request = std::make_shared<ReadRequest>();
  request->tag = tag;
  request->priority = priority;
  request->arena = target.arena;
  request->slot = target.slot;
  request->to = target.arena->slot(target.slot) + target.offset;
  request->offset = static_cast<uint64_t>(source.offset);
  request->size = static_cast<size_t>(source.size);
  request->waiting = request->num_parts();
  request->file = source.files.front();

  const std::lock_guard<std::mutex> lock(mutex_);
  require_that(!is_closing_, "the read engine is closed");
  require_that(open_.count(tag) == 0, "tag " + std::to_string(tag) + " is in use");
  for (const int64_t file : source.files) file_of(file);
  target.arena->hold(target.slot);
  open_.emplace(tag, request);
  const size_t step = std::min(source.files.size(), request->num_parts());
  for (size_t i = 0; i < step; ++i) {
    const OpenFile& from = file_of(source.files[i]);
    Device& device = *devices_[from.device];
    device.queue.push({request, from.file, source.files[i], i, step});
    wake(device);
  }
}

bool ReadEngine::promote(int64_t tag, ReadPriority priority) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = open_.find(tag);
  if (found == open_.end()) return false;
  ReadRequest& request = *found->second;
  if (priority >= request.priority) return true;
  for (const auto& device : devices_) {
    device->queue.move(request, request.priority, priority);
    wake(*device);
  }
  request.priority = priority;
  return true;
}

bool ReadEngine::cancel(int64_t tag) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = open_.find(tag);
  if (found == open_.end() || found->second->has_begun) return false;
  const std::shared_ptr<ReadRequest> request = found->second;
  withdraw(*request);
  request->arena->let_go(request->slot);
  open_.erase(found);
  if (open_.empty()) completed_.notify_all();
  return true;
}

void ReadEngine::withdraw(const ReadRequest& request) {
  if (request.waiting == 0) return;
  for (const auto& device : devices_) device->queue.withdraw(request);
}

std::vector<ReadCompletion> ReadEngine::poll() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(completions_, {});
}

std::vector<ReadCompletion> ReadEngine::wait(std::chrono::nanoseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  completed_.wait_for(lock, timeout, [this] { return !completions_.empty() || open_.empty(); });
  return std::exchange(completions_, {});
}

int64_t ReadEngine::num_open() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int64_t>(open_.size());
}

int64_t ReadEngine::num_queued() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::count_if(open_.begin(), open_.end(),
                       [](const auto& entry) { return !entry.second->has_begun; });
}

int64_t ReadEngine::bytes_read() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_read_;
}

void ReadEngine::close() {
  const std::lock_guard<std::mutex> only(closing_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_closing_) return;
    is_closing_ = true;
    std::vector<std::shared_ptr<ReadRequest>> requests;
    for (const auto& [tag, request] : open_) requests.push_back(request);
    for (const auto& request : requests) {
      if (request->waiting == 0) continue;
      withdraw(*request);
      request->error = ECANCELED;
      if (request->under_way == 0) complete(request);
    }
    for (const auto& device : devices_) wake(*device);
  }
  for (const auto& device : devices_) {
    for (std::thread& thread : device->threads) thread.join();
    device->threads.clear();
    device->ring = nullptr;
    if (device->wake >= 0) ::close(std::exchange(device->wake, -1));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  for (OpenFile& file : files_) file.file = nullptr;
}

// ---- devices --------------------------------------------------------------------------------

void ReadEngine::wake(Device& device) {
  if (device.wake < 0) {
    device.changed.notify_all();
    return;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(device.wake, &one, sizeof one);
}

void ReadEngine::work(Device& device) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    device.changed.wait(lock, [&] { return is_closing_ || device.queue.can_take(); });
    if (!device.queue.can_take()) return;
    ReadPart part = device.queue.take();
    lock.unlock();
    while (!part.piece.is_over()) {
      part.piece.prepare();
      part.piece.take(read_now(part.piece));
    }
    lock.lock();
    finish(device, part);
  }
}

void ReadEngine::serve_ring(Device& device) {
  Uring& ring = *device.ring;
  std::vector<ReadPart> parts(static_cast<size_t>(depth_));
  std::vector<size_t> idle(parts.size());
  for (size_t i = 0; i < idle.size(); ++i) idle[i] = i;
  uint64_t wake_count = 0;
  bool is_listening = false;

  const auto send = [&](size_t i) {
    FilePiece& piece = parts[i].piece;
    piece.prepare();
    // What makes the caller wait goes to a worker of the kernel's: a copy from the page cache, and
    // memory that the system has yet to find. The ring has room: no part has two reads in it.
    const ReadRequest& request = *parts[i].request;
    const bool in_worker = !piece.is_direct() || !request.arena->has_memory(request.slot);
    ring.prepare_read(piece.descriptor(), piece.to(), piece.size(), piece.offset(), i + 1,
                      in_worker);
  };
  for (;;) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      while (!idle.empty() && device.queue.can_take()) {
        parts[idle.back()] = device.queue.take();
        send(idle.back());
        idle.pop_back();
      }
      const bool is_done = is_closing_ && idle.size() == parts.size();
      if (is_done && !is_listening) return;
      if (!is_listening && !is_closing_) {
        is_listening = ring.prepare_read(device.wake, reinterpret_cast<uint8_t*>(&wake_count),
                                         sizeof wake_count, 0, 0, false);
      }
    }
    const int error = ring.submit_and_wait();
    if (error != 0 && error != EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    uint64_t data = 0;
    int64_t result = 0;
    while (ring.next_completion(&data, &result)) {
      if (data == 0) {
        is_listening = false;
        continue;
      }
      const size_t i = static_cast<size_t>(data) - 1;
      parts[i].piece.take(result);
      if (!parts[i].piece.is_over()) {
        send(i);
        continue;
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      finish(device, parts[i]);
      parts[i] = {};
      idle.push_back(i);
    }
  }
}

void ReadEngine::finish(Device& device, ReadPart& part) {
  ReadRequest& request = *part.request;
  device.queue.finished();
  --request.under_way;
  request.bytes += part.piece.done();
  request.was_direct &= part.piece.was_direct();
  bytes_read_ += static_cast<int64_t>(part.piece.done());
  if (part.piece.error() != 0 && request.error == 0) {
    request.error = part.piece.error();
    request.file = part.file_id;
    withdraw(request);
  }
  if (request.under_way == 0 && request.waiting == 0) complete(part.request);
}

void ReadEngine::complete(const std::shared_ptr<ReadRequest>& request) {
  double seconds = 0;
  if (request->has_begun) {
    seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - request->begin).count();
  }
  if (request->error == 0) request->arena->note_memory(request->slot);
  request->arena->let_go(request->slot);
  completions_.push_back({request->tag, request->error, static_cast<int64_t>(request->bytes),
                          seconds, request->was_direct && request->has_begun, request->file});
  open_.erase(request->tag);
  completed_.notify_all();
}

}  // namespace coli
