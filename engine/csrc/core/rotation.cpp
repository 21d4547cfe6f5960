#include "core/rotation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

namespace coli {
namespace {

constexpr int64_t kMaxBlock = 32768;
constexpr uint64_t kSeed = 417;
constexpr uint64_t kMultiplier = 2685821657736338717ULL;

// The top bytes of a xorshift64* sequence; bit i % 8 of byte i / 8 makes value i negative.
void draw_signs(int64_t length, float* signs) {
  uint64_t state = kSeed + static_cast<uint64_t>(length);
  uint64_t byte = 0;
  for (int64_t i = 0; i < length; ++i) {
    if (i % 8 == 0) {
      state ^= state >> 12;
      state ^= state << 25;
      state ^= state >> 27;
      byte = (state * kMultiplier) >> 56;
    }
    signs[i] = ((byte >> (i % 8)) & 1) != 0 ? -1.0F : 1.0F;
  }
}

// Neighbours first, halves last. A step is the sum and the difference of each pair.
void transform(float* x, int64_t length) {
  for (int64_t step = 1; step < length; step *= 2) {
    for (int64_t begin = 0; begin < length; begin += 2 * step) {
      float* first = x + begin;
      float* second = first + step;
      for (int64_t i = 0; i < step; ++i) {
        const float sum = first[i] + second[i];
        second[i] = first[i] - second[i];
        first[i] = sum;
      }
    }
  }
}

}  // namespace

Rotation::Rotation(int64_t num_values) : signs_(static_cast<size_t>(num_values)) {
  for (int64_t begin = 0; begin < num_values;) {
    const int64_t rest = num_values - begin;
    const int64_t length = std::min(rest & -rest, kMaxBlock);
    blocks_.push_back(
        {begin, length, static_cast<float>(1.0 / std::sqrt(static_cast<double>(length)))});
    draw_signs(length, signs_.data() + begin);
    begin += length;
  }
}

std::shared_ptr<const Rotation> Rotation::of(int64_t num_values) {
  static std::mutex mutex;
  static std::map<int64_t, std::shared_ptr<const Rotation>> known;
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<const Rotation>& rotation = known[num_values];
  if (rotation == nullptr) rotation = std::make_shared<const Rotation>(num_values);
  return rotation;
}

void Rotation::apply(const float* x, float* out) const {
  for (const Block& block : blocks_) {
    float* to = out + block.begin;
    for (int64_t i = 0; i < block.length; ++i) {
      to[i] = x[block.begin + i] * signs_[static_cast<size_t>(block.begin + i)];
    }
    transform(to, block.length);
    for (int64_t i = 0; i < block.length; ++i) to[i] *= block.factor;
  }
}

void Rotation::undo(float* x) const {
  for (const Block& block : blocks_) {
    float* values = x + block.begin;
    transform(values, block.length);
    for (int64_t i = 0; i < block.length; ++i) values[i] *= block.factor;
    for (int64_t i = 0; i < block.length; ++i) {
      values[i] *= signs_[static_cast<size_t>(block.begin + i)];
    }
  }
}

}  // namespace coli
