// What the tests of float kernels share: random values, memory with guards, counted checks, timing.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

int g_passed = 0;
int g_failed = 0;

inline void check(bool ok, const std::string& what) {
  ok ? ++g_passed : ++g_failed;
  if (!ok && g_failed <= 20) std::printf("FAILED: %s\n", what.c_str());
}

inline int report() {
  std::printf("%d passed, %d failed\n", g_passed, g_failed);
  return g_failed == 0 ? 0 : 1;
}

// Whether this processor runs a variant; on Arm every test host has the NEON baseline.
inline bool cpu_runs(const char* isa) {
#if defined(__x86_64__)
  if (std::strcmp(isa, "avx2") == 0) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  }
  if (std::strcmp(isa, "avx512") == 0) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  }
#endif
  return isa != nullptr;
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}

  uint32_t bits() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    uint64_t mixed = state_ ^ (state_ >> 29);
    mixed *= 0xBF58476D1CE4E5B9U;
    return static_cast<uint32_t>(mixed >> 32);
  }

  int64_t below(int64_t limit) {
    return static_cast<int64_t>(bits() % static_cast<uint32_t>(limit));
  }

  // In [-scale, scale), now and then a zero of either sign or a subnormal.
  float value(float scale) {
    const uint32_t pick = bits();
    if (pick % 64 == 0) return 0.0F;
    if (pick % 64 == 1) return -0.0F;
    if (pick % 64 == 2) return 1e-41F;
    return (static_cast<float>(bits() >> 8) * 0x1p-23F - 1.0F) * scale;
  }

 private:
  uint64_t state_;
};

// Equal bits; which NaN an invalid operation yields differs between processor families.
inline bool same_bits(const float* a, const float* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(a + i, b + i, sizeof(float)) != 0) return false;
  }
  return true;
}

// `count` values that end where an unreadable page begins, preceded by a filled stretch: a read or
// write past the end stops the test, a write before the start shows in is_intact().
template <typename T>
class Guarded {
 public:
  explicit Guarded(int64_t count) : count_(count) {
    page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    size_ = (bytes + kFront + page_ - 1) / page_ * page_;
    void* base =
        mmap(nullptr, size_ + page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base_ = static_cast<uint8_t*>(base);
    mprotect(base_ + size_, page_, PROT_NONE);
    std::memset(base_, kFill, size_ - bytes);
    data_ = reinterpret_cast<T*>(base_ + size_ - bytes);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(base_, size_ + page_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t count() const { return count_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }

  bool is_intact() const {
    const auto* first = reinterpret_cast<const uint8_t*>(data_) - kFront;
    return std::all_of(first, first + kFront, [](uint8_t b) { return b == kFill; });
  }

 private:
  static constexpr size_t kFront = 256;
  static constexpr uint8_t kFill = 0xA5;
  int64_t count_;
  size_t page_ = 0;
  size_t size_ = 0;
  uint8_t* base_ = nullptr;
  T* data_ = nullptr;
};

inline double now_s() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// Seconds of call(i) for i = 0, 1, ... count - 1, again and again for `budget_s`: other work on the
// machine slows most calls, so the time is that of the fastest twentieth.
template <typename Call>
double fast_call(int64_t count, const Call& call, double budget_s = 0.5) {
  std::vector<double> samples;
  double spent = 0.0;
  while (spent < budget_s || samples.size() < 20) {
    for (int64_t i = 0; i < count; ++i) {
      const double start = now_s();
      call(i);
      samples.push_back(now_s() - start);
      spent += samples.back();
    }
  }
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 20];
}

}  // namespace
