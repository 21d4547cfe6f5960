// Buffers, random weights and the variant list shared by the checks and timings of matmul_int.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <sys/syscall.h>

#include "amx_emulator.h"
#endif
#include "ops/matmul_int/matmul_int.h"

namespace {

using coli::FloatRows;
using coli::IntMatrix;
using coli::MatmulRange;
using coli::Numerics;
using coli::QuantRows;

struct Variant {
  const char* name;
  decltype(&coli::quantize_row_scalar) quantize_row;
  decltype(&coli::matmul_int_scalar) matmul_int;
  decltype(&coli::matmul_int_float_scalar) matmul_int_float;
};

#define COLI_VARIANT(isa) \
  Variant { #isa, coli::quantize_row_##isa, coli::matmul_int_##isa, coli::matmul_int_float_##isa }

#if defined(__x86_64__)
// Asks the system for the tile registers, or emulates them on a processor without.
inline void prepare_amx() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) emulate_amx();
}
#endif

// Variants this machine can run, the scalar one first.
inline std::vector<Variant> available_variants() {
  std::vector<Variant> variants = {COLI_VARIANT(scalar)};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    variants.push_back(COLI_VARIANT(avx2));
  }
  if (__builtin_cpu_supports("avx512vnni")) {
    variants.push_back(COLI_VARIANT(avx512));
    prepare_amx();
    variants.push_back(COLI_VARIANT(amx));
  }
#elif defined(__aarch64__)
  variants.push_back(COLI_VARIANT(neon));
  variants.push_back(COLI_VARIANT(i8mm));
#endif
  return variants;
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits() {  // splitmix64
    uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
  float uniform() { return static_cast<float>(bits() >> 40) * 0x1p-23F - 1.0F; }

 private:
  uint64_t state_;
};

// Elements that end right before an unreadable page, so that reading past them faults.
template <typename T>
class Guarded {
 public:
  explicit Guarded(int64_t count) : count_(count) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    size_ = static_cast<size_t>((bytes / page + 2) * page);
    base_ = static_cast<uint8_t*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    uint8_t* end = base_ + size_ - page;
    mprotect(end, static_cast<size_t>(page), PROT_NONE);
    data_ = reinterpret_cast<T*>(end - bytes);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(base_, size_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](int64_t i) { return data_[i]; }
  int64_t size() const { return count_; }
  int64_t bytes() const { return count_ * static_cast<int64_t>(sizeof(T)); }

 private:
  int64_t count_;
  size_t size_ = 0;
  uint8_t* base_ = nullptr;
  T* data_ = nullptr;
};

// f16 values of the form n / 2^14 with n < 2^10, whose f32 value is written beside them.
struct Half {
  uint16_t bits;
  float value;
};

inline Half random_half(Random& random) {
  const auto mantissa = static_cast<uint32_t>(random.below(1024));
  const auto exponent = static_cast<uint32_t>(random.below(8));  // 0: a subnormal
  const auto sign = static_cast<uint32_t>(random.below(2));
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                        : std::ldexp(1.0F + static_cast<float>(mantissa) / 1024,
                                                     static_cast<int>(exponent) - 15);
  return {static_cast<uint16_t>((sign << 15) | (exponent << 10) | mantissa),
          sign != 0 ? -magnitude : magnitude};
}

struct WeightSpec {
  int64_t num_outputs;
  int64_t num_inputs;
  int32_t group;
  int32_t bits;
  int32_t zero;
  bool has_mins;
  bool is_half;
  bool has_levels = false;
  bool is_e8m0 = false;  // scales of one byte, with levels only
};

// Random weights in packed form, and the same weights as plain numbers.
class Weights {
 public:
  Weights(const WeightSpec& spec, Random& random)
      : tiles_((spec.num_outputs + 15) / 16),
        padded_((spec.num_inputs + 63) / 64 * 64),
        groups_((padded_ + spec.group - 1) / spec.group),
        scale_size_(spec.is_e8m0   ? 1
                    : spec.is_half ? 2
                                   : 4),
        codes_(tiles_ * padded_ * 2 * spec.bits),
        scales_(tiles_ * groups_ * 16 * scale_size_),
        mins_(tiles_ * groups_ * 16 * scale_size_),
        values(static_cast<size_t>(spec.num_outputs * spec.num_inputs)) {
    matrix = {codes_.data(),    scales_.data(),  spec.has_mins ? mins_.data() : nullptr,
              spec.num_outputs, spec.num_inputs, tiles_,
              padded_,          groups_,         spec.group,
              spec.bits,        spec.zero,       spec.is_half ? 1 : 0};
    if (spec.has_levels) put_levels(random);
    matrix.scale_e8m0 = spec.is_e8m0 ? 1 : 0;
    for (int64_t o = 0; o < spec.num_outputs; ++o) fill_output(spec, o, random);
  }

  // Makes of levels codes of 8 bits, and of scales of one byte plain numbers.
  void widen() {
    wide_codes_.resize(static_cast<size_t>(tiles_ * padded_ * 16));
    wide_scales_.resize(static_cast<size_t>(tiles_ * groups_ * 16));
    for (int64_t i = 0; i < tiles_ * padded_ * 16; ++i) {
      const int64_t block = i / 64;
      const uint8_t pair = codes_.data()[block / 2 * 64 + i % 64];
      wide_codes_[static_cast<size_t>(i)] = matrix.levels[block % 2 == 0 ? pair & 15 : pair >> 4];
    }
    for (int64_t i = 0; i < tiles_ * groups_ * 16; ++i) {
      wide_scales_[static_cast<size_t>(i)] = std::ldexp(1.0F, scales_.data()[i] - 128);
    }
    matrix.codes = wide_codes_.data();
    matrix.scales = wide_scales_.data();
    matrix.bits = 8;
    matrix.has_levels = 0;
    matrix.scale_e8m0 = 0;
  }

  IntMatrix matrix;

 private:
  // Anything, the extremes among it, at random entries.
  void put_levels(Random& random) {
    matrix.has_levels = 1;
    for (uint8_t& level : matrix.levels) level = static_cast<uint8_t>(random.below(256));
    matrix.levels[random.below(16)] = 0;
    matrix.levels[random.below(16)] = 255;
  }

  void fill_output(const WeightSpec& spec, int64_t o, Random& random) {
    float scale = 0;
    float min = 0;
    for (int64_t k = 0; k < padded_; ++k) {
      const int64_t index = (o / 16 * groups_ + k / spec.group) * 16 + o % 16;
      if (k % spec.group == 0) {
        scale = k < spec.num_inputs ? put_scale(spec, scales_.data(), index, random) : 0;
        min = k < spec.num_inputs ? put_scale(spec, mins_.data(), index, random) : 0;
      }
      int32_t code = spec.has_mins || spec.has_levels ? 0 : spec.zero;
      // The extremes are frequent, so that sums come near their bounds.
      if (k < spec.num_inputs) {
        const int32_t top = (1 << spec.bits) - 1;
        const int64_t choice = random.below(8);
        code = choice == 0 ? 0 : choice == 1 ? top : static_cast<int32_t>(random.below(top + 1));
        const double s = scale;
        const int32_t number = spec.has_levels ? matrix.levels[code] : code;
        const double value = spec.has_mins ? s * number + min : s * (number - spec.zero);
        values[static_cast<size_t>(o * spec.num_inputs + k)] = value;
      }
      put_code(spec, o, k, code);
    }
  }

  float put_scale(const WeightSpec& spec, uint8_t* stream, int64_t index, Random& random) const {
    if (spec.is_e8m0) {
      // Now and then the two that give subnormal numbers.
      const int64_t byte = random.below(16) == 0 ? random.below(3) : 110 + random.below(18);
      stream[index] = static_cast<uint8_t>(byte);
      return std::ldexp(1.0F, static_cast<int>(byte) - 128);
    }
    if (spec.is_half) {
      const Half half = random_half(random);
      std::memcpy(stream + index * 2, &half.bits, 2);
      return half.value;
    }
    const float value = random.uniform() * 0.01F;
    std::memcpy(stream + index * 4, &value, 4);
    return value;
  }

  void put_code(const WeightSpec& spec, int64_t o, int64_t k, int32_t code) {
    uint8_t* tile = codes_.data() + o / 16 * padded_ * 2 * spec.bits;
    const int64_t byte = o % 16 * 4 + k % 4;
    if (spec.bits == 8) {
      tile[k / 4 * 64 + byte] = static_cast<uint8_t>(code);
    } else {
      uint8_t& pair = tile[k / 8 * 64 + byte];
      pair =
          static_cast<uint8_t>(k / 4 % 2 == 0 ? (pair & 0xF0) | code : (pair & 0x0F) | (code << 4));
    }
  }

  int64_t tiles_, padded_, groups_, scale_size_;
  Guarded<uint8_t> codes_, scales_, mins_;
  std::vector<uint8_t> wide_codes_;
  std::vector<float> wide_scales_;

 public:
  std::vector<double> values;  // [output][input]
};

// Quantized rows in buffers of exactly the promised size.
struct Quantized {
  Quantized(int64_t rows, int64_t padded, Numerics mode)
      : group(mode == Numerics::kFast ? 32 : 64),
        numerics(mode),
        padded_inputs(padded),
        data(rows * 2 * padded),
        scales(rows * (padded / group)),
        sums(rows * (padded / 16)) {}

  void quantize(const Variant& variant, const float* x, int64_t row, int64_t num_inputs) {
    variant.quantize_row(
        x, num_inputs, padded_inputs, numerics, data.data() + row * 2 * padded_inputs,
        scales.data() + row * (padded_inputs / group), sums.data() + row * (padded_inputs / 16));
  }
  QuantRows view() const {
    return {data.data(), scales.data(), sums.data(), padded_inputs, numerics};
  }

  int64_t group;
  Numerics numerics;
  int64_t padded_inputs;
  Guarded<uint8_t> data;
  Guarded<float> scales;
  Guarded<int32_t> sums;
};

}  // namespace
