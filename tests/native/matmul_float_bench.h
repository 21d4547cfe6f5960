// Timings of matmul_float, one thread: bytes per second for one row, multiply-adds for many.
#pragma once

#include "core/pod.h"
#include "float_testing.h"

namespace {

using MatmulFloat = void (*)(const coli::FloatMatrix&, const coli::FloatRows&,
                             const coli::MatmulRange&);

struct MatmulFloatVariant {
  const char* name;
  MatmulFloat kernel;
};

// Memory in huge pages where the system grants them, as the engine's arenas are.
class Arena {
 public:
  explicit Arena(size_t size) : size_(size) {
    void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base_ = static_cast<uint8_t*>(base);
#if defined(MADV_HUGEPAGE)
    madvise(base_, size_, MADV_HUGEPAGE);
#endif
    std::memset(base_, 0x3C, size_);  // a small positive number in each kind
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { munmap(base_, size_); }
  const uint8_t* data() const { return base_; }
  size_t size() const { return size_; }

 private:
  size_t size_;
  uint8_t* base_;
};

constexpr int64_t kStretchBytes = 2 << 20;  // timed at once when weights come from memory

inline double plain_read_rate(const Arena& arena) {
  volatile uint64_t sink = 0;
  const int64_t count = static_cast<int64_t>(arena.size()) / kStretchBytes;
  const double seconds = fast_call(count, [&](int64_t stretch) {
    const uint8_t* at = arena.data() + stretch * kStretchBytes;
    uint64_t sums[32] = {};
    for (int64_t i = 0; i < kStretchBytes; i += 256) {
      for (int64_t j = 0; j < 32; ++j) {
        uint64_t word = 0;
        std::memcpy(&word, at + i + j * 8, 8);
        sums[j] += word;
      }
    }
    for (const uint64_t sum : sums) sink = sink + sum;
  });
  return static_cast<double>(kStretchBytes) / seconds / 1e9;
}

inline int64_t weight_bytes(coli::FloatKind kind) {
  if (kind == coli::FloatKind::kF32) return 4;
  return kind == coli::FloatKind::kE4m3 ? 1 : 2;
}

struct BenchShape {
  int64_t num_outputs;  // a multiple of 16
  int64_t num_inputs;
  int64_t num_rows;
  bool from_memory;  // a new matrix for every call, so that weights come from memory
};

inline void bench_shape(const MatmulFloatVariant& variant, coli::FloatKind kind,
                        const BenchShape& shape, const Arena& arena) {
  const int64_t bytes = shape.num_outputs * shape.num_inputs * weight_bytes(kind);
  const int64_t num_copies = shape.from_memory ? static_cast<int64_t>(arena.size()) / bytes : 1;
  const int64_t per_call =
      shape.from_memory ? std::max<int64_t>(1, kStretchBytes / bytes / shape.num_rows) : 1;
  std::vector<float> x(static_cast<size_t>(shape.num_rows * shape.num_inputs), 1.0F);
  std::vector<float> y(static_cast<size_t>(shape.num_rows * shape.num_outputs));
  const int64_t num_tiles = shape.num_outputs / 16;
  constexpr int64_t kGroup = 128;
  const int64_t num_groups = (shape.num_inputs + kGroup - 1) / kGroup;
  const std::vector<float> scales(static_cast<size_t>(num_groups * shape.num_outputs), 1.0F);
  const coli::MatmulRange range = {0,        num_tiles,         0, shape.num_rows, nullptr, nullptr,
                                   y.data(), shape.num_outputs, 0};
  const double seconds =
      fast_call(num_copies / per_call,
                [&](int64_t call) {
                  for (int64_t i = call * per_call; i < (call + 1) * per_call; ++i) {
                    const coli::FloatMatrix w = {arena.data() + i * bytes,
                                                 shape.num_outputs,
                                                 shape.num_inputs,
                                                 num_tiles,
                                                 kind,
                                                 kGroup,
                                                 num_groups,
                                                 scales.data()};
                    variant.kernel(w, coli::FloatRows{x.data(), shape.num_inputs}, range);
                  }
                }) /
      static_cast<double>(per_call);
  const double flops = 2.0 * static_cast<double>(bytes / weight_bytes(kind) * shape.num_rows);
  const char* names[] = {"f32", "f16", "bf16", "e4m3"};
  std::printf("%-7s %-4s N=%-5ld K=%-4ld rows=%-3ld %-6s %9.2f us %6.1f GB/s %6.1f GFLOP/s\n",
              variant.name, names[static_cast<int>(kind)], static_cast<long>(shape.num_outputs),
              static_cast<long>(shape.num_inputs), static_cast<long>(shape.num_rows),
              shape.from_memory ? "memory" : "cache", seconds * 1e6,
              static_cast<double>(bytes) / seconds / 1e9, flops / seconds / 1e9);
}

inline void run_bench(const std::vector<MatmulFloatVariant>& variants, const char* only) {
  using coli::FloatKind;
  const Arena arena(size_t{256} << 20);
  std::printf("plain read %.1f GB/s\n", plain_read_rate(arena));
  const BenchShape shapes[] = {
      {576, 576, 1, true},   {1536, 576, 1, true}, {576, 1536, 1, true},  {4096, 4096, 1, true},
      {576, 32, 1, true},    {64, 576, 1, true},   {576, 576, 1, false},  {576, 32, 1, false},
      {1536, 576, 2, true},  {1536, 576, 4, true}, {1536, 576, 8, true},  {1536, 576, 16, true},
      {576, 32, 8, false},   {576, 32, 64, false}, {1536, 576, 64, true}, {576, 1536, 64, true},
      {512, 4096, 64, true},
  };
  for (const MatmulFloatVariant& variant : variants) {
    if (!cpu_runs(variant.name)) continue;
    if (only != nullptr && std::strcmp(only, variant.name) != 0) continue;
    for (const FloatKind kind :
         {FloatKind::kF32, FloatKind::kF16, FloatKind::kBf16, FloatKind::kE4m3}) {
      for (const BenchShape& shape : shapes) bench_shape(variant, kind, shape, arena);
    }
  }
}

}  // namespace
