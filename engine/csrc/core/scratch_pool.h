// Scratch memory for the bodies of parallel regions, which may not allocate.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "core/aligned.h"

namespace coli {

// Pieces of equal size, one for every thread that may run a body at the same time.
class ScratchPool {
 public:
  // A piece that is held until the lease ends; what is in it is left from someone else.
  class Lease {
   public:
    Lease(float* data, std::atomic<bool>* taken) : data_(data), taken_(taken) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { taken_->store(false, std::memory_order_release); }
    float* data() const { return data_; }

   private:
    float* data_;
    std::atomic<bool>* taken_;
  };

  // Makes `pieces` pieces of at least `floats` floats. Throws std::bad_alloc. Not in a region.
  void ensure(int pieces, size_t floats) {
    if (pieces > static_cast<int>(pieces_.size())) {
      pieces_.resize(static_cast<size_t>(pieces));
      taken_ = std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(pieces));
    }
    for (AlignedBuffer& piece : pieces_) piece.ensure(checked_mul(floats, sizeof(float)));
  }

  // A piece nobody holds. There is one as long as no more threads ask than pieces were made.
  Lease take() {
    for (size_t i = 0;; i = i + 1 == pieces_.size() ? 0 : i + 1) {
      if (!taken_[i].exchange(true, std::memory_order_acquire)) {
        return Lease(pieces_[i].as<float>(), &taken_[i]);
      }
    }
  }

 private:
  std::vector<AlignedBuffer> pieces_;
  std::unique_ptr<std::atomic<bool>[]> taken_;
};

}  // namespace coli
