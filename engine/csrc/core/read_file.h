// One file that ranges are read from, around the page cache where that works.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace coli {

// Throws std::system_error when the file cannot be opened or is no regular file.
class ReadFile {
 public:
  // With `direct` a second descriptor goes around the page cache; where the file system refuses
  // that, now or at a first read, all reads are buffered.
  ReadFile(const std::string& path, bool direct);
  ~ReadFile();
  ReadFile(const ReadFile&) = delete;
  ReadFile& operator=(const ReadFile&) = delete;

  bool is_direct() const { return is_direct_.load(std::memory_order_relaxed); }
  void leave_direct() { is_direct_.store(false, std::memory_order_relaxed); }
  int descriptor(bool direct) const { return direct ? direct_ : buffered_; }
  uint64_t device() const { return device_; }  // of the disk: partitions of one share it

 private:
  int buffered_ = -1;
  int direct_ = -1;
  uint64_t device_ = 0;
  std::atomic<bool> is_direct_{false};
};

// What is still to be read of a contiguous piece of a file, whoever does the reading:
//   while (!piece.is_over()) {
//     piece.prepare();
//     piece.take(pread(piece.descriptor(), piece.to(), piece.size(), piece.offset()) or -errno);
//   }
// Short reads and interruptions go on, a refused direct read is repeated through the page cache.
class FilePiece {
 public:
  FilePiece() = default;
  FilePiece(ReadFile* file, uint64_t offset, size_t size, uint8_t* to)
      : file_(file), offset_(offset), left_(size), to_(to), was_direct_(file->is_direct()) {}

  bool is_over() const { return left_ == 0 || error_ != 0; }

  // The next read. next_*() are those of the last prepare().
  void prepare();
  int descriptor() const { return file_->descriptor(next_direct_); }
  uint8_t* to() const { return to_ + done_; }
  size_t size() const { return next_size_; }
  uint64_t offset() const { return offset_ + done_; }
  bool is_direct() const { return next_direct_; }
  void take(int64_t result);  // bytes, or a negative errno

  size_t done() const { return done_; }
  int error() const { return error_; }  // ENODATA: the file ends before the piece does
  bool was_direct() const { return was_direct_; }

 private:
  ReadFile* file_ = nullptr;
  uint64_t offset_ = 0;
  size_t done_ = 0;
  size_t left_ = 0;
  uint8_t* to_ = nullptr;
  size_t next_size_ = 0;
  int error_ = 0;
  bool next_direct_ = false;
  bool was_direct_ = false;
};

}  // namespace coli
