// Timings of matmul_int, one thread: bytes per second for one row, multiply-adds for many.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

#include "matmul_int_cases.h"

namespace {

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Time this thread computed, which other work on the machine does not lengthen.
inline double thread_s() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Memory in huge pages where the system grants them, as the engine's arenas are.
class Arena {
 public:
  explicit Arena(int64_t bytes) : size_(static_cast<size_t>(bytes)) {
    base_ = static_cast<uint8_t*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
#if defined(MADV_HUGEPAGE)
    madvise(base_, size_, MADV_HUGEPAGE);
#endif
    Random random(9);
    for (size_t i = 0; i + 8 <= size_; i += 8) {
      const uint64_t bits = random.bits();
      std::memcpy(base_ + i, &bits, 8);
    }
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { munmap(base_, size_); }
  uint8_t* data() { return base_; }
  int64_t size() const { return static_cast<int64_t>(size_); }

 private:
  size_t size_;
  uint8_t* base_;
};

struct Shape {
  int64_t tiles;
  int64_t num_inputs;
  int32_t bits;
};

constexpr int32_t kBenchGroup = 32;

inline int64_t matrix_bytes(const Shape& s) {
  const int64_t bytes = s.tiles * 16 * (s.num_inputs * s.bits / 8 + s.num_inputs / kBenchGroup * 2);
  return (bytes + 63) / 64 * 64;
}

inline IntMatrix place_matrix(const Shape& s, uint8_t* at) {
  const int64_t groups = s.num_inputs / kBenchGroup;
  uint8_t* scales = at + s.tiles * 16 * s.num_inputs * s.bits / 8;
  for (int64_t i = 0; i < s.tiles * 16 * groups; ++i) {
    const uint16_t half = 0x1400;
    std::memcpy(scales + 2 * i, &half, 2);
  }
  return {at,           scales, nullptr,     s.tiles * 16, s.num_inputs,          s.tiles,
          s.num_inputs, groups, kBenchGroup, s.bits,       s.bits == 4 ? 8 : 128, 1};
}

inline Quantized random_rows(int64_t rows, int64_t inputs, Numerics numerics,
                             std::vector<float>& x) {
  Random random(5);
  x.resize(static_cast<size_t>(rows * inputs));
  for (float& value : x) value = random.uniform();
  return Quantized(rows, inputs, numerics);
}

// Time of a stretch of memory that the caches have forgotten, taken often: other work on the
// machine slows most samples, so the rate is that of the fastest tenth.
class Samples {
 public:
  void add(int64_t bytes, double seconds) {
    rates_.push_back(static_cast<double>(bytes) / seconds / 1e9);
  }
  double fastest_tenth() {
    std::sort(rates_.begin(), rates_.end());
    return rates_[rates_.size() * 9 / 10];
  }

 private:
  std::vector<double> rates_;
};

constexpr int64_t kStretchBytes = 4 << 20;
constexpr int kStretchRepeats = 8;

inline uint64_t read_stretch(const uint8_t* at) {
  uint64_t sums[32] = {};
  for (int64_t i = 0; i < kStretchBytes; i += 256) {
    for (int64_t j = 0; j < 32; ++j) {
      uint64_t word = 0;
      std::memcpy(&word, at + i + j * 8, 8);
      sums[j] += word;
    }
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

inline double read_rate(Arena& arena) {
  volatile uint64_t sink = 0;
  Samples samples;
  for (int repeat = 0; repeat < kStretchRepeats; ++repeat) {
    for (int64_t at = 0; at + kStretchBytes <= arena.size(); at += kStretchBytes) {
      const double start = now_s();
      sink = sink + read_stretch(arena.data() + at);
      samples.add(kStretchBytes, now_s() - start);
    }
  }
  return samples.fastest_tenth();
}

// One row against matrices that follow each other through the arena, one call per matrix.
inline double one_row_rate(const Variant& variant, const Shape& shape, Numerics numerics,
                           Arena& arena) {
  std::vector<IntMatrix> matrices;
  const int64_t bytes = matrix_bytes(shape);
  for (int64_t at = 0; at + bytes <= arena.size(); at += bytes) {
    matrices.push_back(place_matrix(shape, arena.data() + at));
  }
  std::vector<float> x;
  Quantized rows = random_rows(1, shape.num_inputs, numerics, x);
  if (numerics != Numerics::kFloat) rows.quantize(variant, x.data(), 0, shape.num_inputs);
  std::vector<float> y(static_cast<size_t>(shape.tiles * 16));
  Samples samples;
  const auto stretch = static_cast<size_t>(std::max<int64_t>(1, kStretchBytes / bytes));
  for (int repeat = 0; repeat < kStretchRepeats; ++repeat) {
    for (size_t first = 0; first + stretch <= matrices.size(); first += stretch) {
      const double start = now_s();
      for (size_t i = first; i < first + stretch; ++i) {
        const IntMatrix& w = matrices[i];
        const MatmulRange range = {0, shape.tiles, 0, 1, nullptr, nullptr, y.data(), 0, 0};
        if (numerics == Numerics::kFloat) {
          variant.matmul_int_float(w, {x.data(), shape.num_inputs}, range);
        } else {
          variant.matmul_int(w, rows.view(), range);
        }
      }
      samples.add(bytes * static_cast<int64_t>(stretch), now_s() - start);
    }
  }
  return samples.fastest_tenth();
}

inline double many_rows_rate(const Variant& variant, const Shape& shape, int64_t num_rows,
                             Numerics numerics, Arena& arena) {
  const IntMatrix w = place_matrix(shape, arena.data());
  std::vector<float> x;
  Quantized rows = random_rows(num_rows, shape.num_inputs, numerics, x);
  for (int64_t r = 0; r < num_rows && numerics != Numerics::kFloat; ++r) {
    rows.quantize(variant, x.data() + r * shape.num_inputs, r, shape.num_inputs);
  }
  const int64_t ldy = shape.tiles * 16;
  std::vector<float> y(static_cast<size_t>(num_rows * ldy));
  const MatmulRange range = {0, shape.tiles, 0, num_rows, nullptr, nullptr, y.data(), ldy, 0};
  double best = 1e9;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const double start = thread_s();
    if (numerics == Numerics::kFloat) {
      variant.matmul_int_float(w, {x.data(), shape.num_inputs}, range);
    } else {
      variant.matmul_int(w, rows.view(), range);
    }
    best = std::min(best, thread_s() - start);
    if (repeat > 2 && best > 0.2) break;
  }
  return static_cast<double>(num_rows * ldy * shape.num_inputs) / best / 1e9;
}

inline void bench_quantize(const Variant& variant) {
  std::vector<float> x;
  Quantized rows = random_rows(1, 1536, Numerics::kDefault, x);
  double best = 1e9;
  for (int repeat = 0; repeat < 50; ++repeat) {
    const double start = now_s();
    for (int i = 0; i < 100; ++i) rows.quantize(variant, x.data(), 0, 1536);
    best = std::min(best, now_s() - start);
  }
  std::printf("%-7s quantize_row K=1536 %.2f us\n", variant.name, best / 100 * 1e6);
}

inline void run_bench(const std::vector<Variant>& variants, const char* only) {
  Arena arena(int64_t{256} << 20);
  std::printf("plain read %.1f GB/s\n", read_rate(arena));
  for (const Variant& variant : variants) {
    if (only != nullptr && std::strcmp(only, variant.name) != 0) continue;
    if (only == nullptr && std::strcmp("scalar", variant.name) == 0) continue;
    bench_quantize(variant);
    const char* names[] = {"default", "fast", "float"};
    for (const Numerics numerics : {Numerics::kDefault, Numerics::kFast, Numerics::kFloat}) {
      for (const int32_t bits : {4, 8}) {
        for (const int64_t inputs : {576, 1536}) {
          std::printf("%-7s %-7s %d bits K=%-4ld one row:", variant.name,
                      names[static_cast<int>(numerics)], bits, static_cast<long>(inputs));
          for (const int64_t tiles : {12, 36, 60}) {
            const double rate = one_row_rate(variant, {tiles, inputs, bits}, numerics, arena);
            std::printf(" %.1f", rate);
          }
          std::printf(" GB/s (12, 36, 60 tiles); rows 4, 8, 64, 512:");
          for (const int64_t num_rows : {4, 8, 64, 512}) {
            std::printf(" %.1f",
                        many_rows_rate(variant, {60, inputs, bits}, num_rows, numerics, arena));
          }
          std::printf(" G MAC/s\n");
          std::fflush(stdout);
        }
      }
    }
  }
}

}  // namespace
