// Rows of float activations: the currency of the operators.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "core/aligned.h"

namespace coli {

// A (capacity, width) float32 matrix of which the first `rows` rows are in use. Rows follow each
// other without padding, so Python can look at them as one contiguous array.
class Rows {
 public:
  Rows(int64_t capacity, int64_t width)
      : capacity_(check(capacity, "capacity")), width_(check(width, "width")) {
    buffer_ = AlignedBuffer(checked_mul(
        checked_mul(static_cast<size_t>(capacity), static_cast<size_t>(width)), sizeof(float)));
  }

  int64_t capacity() const { return capacity_; }
  int64_t width() const { return width_; }
  int64_t rows() const { return rows_; }
  void set_rows(int64_t rows) {
    if (rows < 0 || rows > capacity_) {
      throw std::invalid_argument("rows must be 0.." + std::to_string(capacity_) + ", not " +
                                  std::to_string(rows));
    }
    rows_ = rows;
  }

  float* data() { return buffer_.as<float>(); }
  const float* data() const { return reinterpret_cast<const float*>(buffer_.data()); }
  float* row(int64_t i) { return data() + i * width_; }
  const float* row(int64_t i) const { return data() + i * width_; }

 private:
  static int64_t check(int64_t value, const char* what) {
    if (value < 1) throw std::invalid_argument(std::string(what) + " must be at least 1");
    return value;
  }

  int64_t capacity_;
  int64_t width_;
  int64_t rows_ = 0;
  AlignedBuffer buffer_;
};

inline void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

}  // namespace coli
