#include "ops/indexer/choose.h"

#include <cstring>

namespace coli {
namespace {

// Integers ordered like the scores, with NaN first; both zeros are one. No branches: scores are as
// good as random.
inline uint32_t ordered(float score) {
  const float sum = score + 0.0F;  // -0 becomes +0
  uint32_t bits;
  std::memcpy(&bits, &sum, sizeof bits);
  const uint32_t key = bits ^ (0x80000000U | (0U - (bits >> 31)));
  return score == score ? key : 0U;
}

// The part of a key that one pass looks at.
struct Digit {
  int shift;
  int bits;
};

constexpr Digit kDigits[] = {{21, 11}, {10, 11}, {0, 10}};
constexpr int kMostBins = 1 << 11;

}  // namespace

void choose_largest(const float* scores, int64_t n, int64_t count, int32_t* indices) {
  // Digit by digit, the count-th largest key: `rest` of those equal to it so far are wanted.
  uint32_t last = 0;
  uint32_t fixed = 0;  // mask of the digits that are known
  int64_t rest = count;
  for (const Digit& digit : kDigits) {
    int32_t bins[kMostBins] = {};
    const uint32_t mask = (1U << digit.bits) - 1U;
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t key = ordered(scores[i]);
      if ((key & fixed) == last) ++bins[(key >> digit.shift) & mask];
    }
    uint32_t bin = mask;
    for (; bin > 0 && bins[bin] < rest; --bin) rest -= bins[bin];
    last |= bin << digit.shift;
    fixed |= mask << digit.shift;
  }
  int64_t taken = 0;
  for (int64_t i = 0; taken < count; ++i) {
    const uint32_t key = ordered(scores[i]);
    const int64_t ties = static_cast<int64_t>(key == last) & static_cast<int64_t>(rest > 0);
    indices[taken] = static_cast<int32_t>(i);
    taken += static_cast<int64_t>(key > last) | ties;
    rest -= ties;
  }
}

}  // namespace coli
