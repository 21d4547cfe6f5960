#include "core/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#if defined(__linux__)
#include <sys/sysmacros.h>

#include <cstdio>
#endif

namespace coli {
namespace {

constexpr uint64_t kBlock = 4096;             // alignment of unbuffered reads
constexpr size_t kMaxRead = size_t{1} << 30;  // one call moves at most 2 GiB, less elsewhere
constexpr size_t kWholeBlocks = ~size_t{kBlock - 1};

[[noreturn]] void fail(int error, const std::string& path) {
  throw std::system_error(error, std::generic_category(), path);
}

int open_buffered(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail(errno, path);
  return descriptor;
}

// A descriptor around the page cache; -1 where there is none.
int open_direct(const std::string& path) {
#if defined(O_DIRECT)
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
#elif defined(F_NOCACHE)
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor >= 0) fcntl(descriptor, F_NOCACHE, 1);
  return descriptor;
#else
  return -1;
#endif
}

uint64_t disk_of(dev_t device) {
#if defined(__linux__)
  char path[96];
  std::snprintf(path, sizeof path, "/sys/dev/block/%u:%u/partition", major(device), minor(device));
  if (::access(path, F_OK) == 0) {
    std::snprintf(path, sizeof path, "/sys/dev/block/%u:%u/../dev", major(device), minor(device));
    unsigned disk_major = 0;
    unsigned disk_minor = 0;
    if (std::FILE* file = std::fopen(path, "re")) {
      const int fields = std::fscanf(file, "%u:%u", &disk_major, &disk_minor);
      std::fclose(file);
      if (fields == 2) return makedev(disk_major, disk_minor);
    }
  }
#endif
  return static_cast<uint64_t>(device);
}

bool says_not_direct(int64_t error) {
  return error == EINVAL || error == EOPNOTSUPP || error == ENOTSUP;
}

}  // namespace

ReadFile::ReadFile(const std::string& path, bool direct) : buffered_(open_buffered(path)) {
  struct stat status{};
  int error = ::fstat(buffered_, &status) != 0 ? errno : 0;
  if (error == 0 && S_ISDIR(status.st_mode)) error = EISDIR;
  if (error == 0 && !S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode)) error = ESPIPE;
  if (error != 0) {
    ::close(buffered_);
    fail(error, path);
  }
  device_ = disk_of(status.st_dev);
  if (direct) direct_ = open_direct(path);
  is_direct_.store(direct_ >= 0, std::memory_order_relaxed);
}

ReadFile::~ReadFile() {
  ::close(buffered_);
  if (direct_ >= 0) ::close(direct_);
}

void FilePiece::prepare() {
  next_size_ = std::min(left_, kMaxRead);
  const bool is_aligned = offset() % kBlock == 0 && reinterpret_cast<uintptr_t>(to()) % kBlock == 0;
  next_direct_ = is_aligned && next_size_ >= kBlock && file_->is_direct();
  if (next_direct_) {
    next_size_ &= kWholeBlocks;
  } else if (next_size_ >= kBlock || !is_aligned) {
    was_direct_ = false;  // less than a block is the end of an aligned piece
  }
}

void FilePiece::take(int64_t result) {
  if (result > 0) {
    done_ += static_cast<size_t>(result);
    left_ -= static_cast<size_t>(result);
  } else if (result == 0) {
    error_ = ENODATA;
  } else if (next_direct_ && says_not_direct(-result)) {
    file_->leave_direct();
  } else if (result != -EINTR && result != -EAGAIN) {
    error_ = static_cast<int>(-result);
  }
}

}  // namespace coli
