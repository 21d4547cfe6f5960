#include "core/weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/rows.h"
#include "core/thread_team.h"

namespace coli {
namespace {

constexpr int64_t kMaxDimension = int64_t{1} << 31;

int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

void check_shape(int64_t num_outputs, int64_t num_inputs) {
  require(num_outputs >= 1 && num_outputs < kMaxDimension, "num_outputs out of range");
  require(num_inputs >= 1 && num_inputs < kMaxDimension, "num_inputs out of range");
}

// Four codes of one output as a little-endian word; `pad` stands in where the matrix ends.
uint32_t four_codes(const CodesSource& s, int64_t output, int64_t input, uint32_t pad) {
  if (output < s.num_outputs && input + kBlockInputs <= s.num_inputs) {
    uint32_t word = 0;
    std::memcpy(&word, s.codes + output * s.num_inputs + input, sizeof(word));
    return word;
  }
  uint32_t word = 0;
  for (int64_t i = 0; i < kBlockInputs; ++i) {
    const bool inside = output < s.num_outputs && input + i < s.num_inputs;
    const uint32_t code = inside ? s.codes[output * s.num_inputs + input + i] : pad;
    word |= code << (8 * i);
  }
  return word;
}

void pack_code_tile(const CodesSource& s, const IntMatrix& m, int64_t tile, uint8_t* out) {
  // Padding inputs meet zeros only, so that any level will do.
  const bool has_zero = s.mins == nullptr && s.levels == nullptr;
  const auto pad = static_cast<uint32_t>(has_zero ? s.zero : 0);
  const int64_t step = s.bits == 4 ? 2 * kBlockInputs : kBlockInputs;
  uint8_t* to = out + tile * (m.padded_inputs / step) * kBlockBytes;
  for (int64_t input = 0; input < m.padded_inputs; input += step) {
    for (int64_t lane = 0; lane < kTile; ++lane) {
      const int64_t output = tile * kTile + lane;
      uint32_t word = four_codes(s, output, input, pad);
      if (s.bits == 4) word |= four_codes(s, output, input + kBlockInputs, pad) << 4;
      std::memcpy(to + lane * kBlockInputs, &word, sizeof(word));
    }
    to += kBlockBytes;
  }
}

template <typename T>
void pack_group_values(const T* from, int64_t source_groups, const IntMatrix& m, int64_t tile,
                       T* to) {
  for (int64_t group = 0; group < source_groups; ++group) {
    for (int64_t lane = 0; lane < kTile; ++lane) {
      const int64_t output = tile * kTile + lane;
      if (output >= m.num_outputs) break;
      to[(tile * m.num_groups + group) * kTile + lane] = from[output * source_groups + group];
    }
  }
}

// Codes of 4-bit weights must fit a nibble: they come from files.
void check_codes(const CodesSource& s) {
  if (s.bits != 4) return;
  uint8_t seen = 0;
  for (int64_t i = 0; i < s.num_outputs * s.num_inputs; ++i) seen |= s.codes[i];
  require(seen < 16, "a 4-bit code is above 15");
}

bool has_minimums(const CodesSource& s) { return s.mins != nullptr; }
bool has_minimums(const PackedSource& s) { return s.has_mins; }

// Checks the numbers that describe an integer matrix and works out those that follow from them.
template <typename Source>
IntMatrix int_sizes(const Source& s) {
  check_shape(s.num_outputs, s.num_inputs);
  require(s.bits == 4 || s.bits == 8, "bits must be 4 or 8");
  require(s.group >= kSumGroup && s.group < kMaxDimension && s.group % kSumGroup == 0,
          "group must be a multiple of 16");
  require(s.levels == nullptr || s.bits == 4, "only codes of 4 bits number levels");
  require(s.zero >= 0 && s.zero < (s.levels != nullptr ? 256 : 1 << s.bits), "zero must be a code");
  require(s.scale_type != ScaleType::kE8m0 || (s.levels != nullptr && !has_minimums(s)),
          "scales in bytes need levels and no mins");
  IntMatrix m{};
  m.num_outputs = s.num_outputs;
  m.num_inputs = s.num_inputs;
  m.num_tiles = ceil_div(s.num_outputs, kTile);
  m.padded_inputs = ceil_div(s.num_inputs, kInputPad) * kInputPad;
  m.num_groups = ceil_div(m.padded_inputs, s.group);
  m.group = static_cast<int32_t>(s.group);
  m.bits = s.bits;
  m.zero = s.zero;
  m.scale_f16 = s.scale_type == ScaleType::kF16 ? 1 : 0;
  m.scale_e8m0 = s.scale_type == ScaleType::kE8m0 ? 1 : 0;
  m.has_levels = s.levels != nullptr ? 1 : 0;
  if (s.levels != nullptr) std::memcpy(m.levels, s.levels, sizeof(m.levels));
  return m;
}

size_t scale_size(const IntMatrix& m) {
  if (m.scale_e8m0 != 0) return sizeof(uint8_t);
  return m.scale_f16 != 0 ? sizeof(uint16_t) : sizeof(float);
}

size_t code_stream_size(const IntMatrix& m) {
  return checked_mul(static_cast<size_t>(m.num_tiles * kTile),
                     static_cast<size_t>(m.padded_inputs)) *
         static_cast<size_t>(m.bits) / 8;
}

size_t scale_stream_size(const IntMatrix& m) {
  return round_up(
      checked_mul(static_cast<size_t>(m.num_tiles * kTile), static_cast<size_t>(m.num_groups)) *
          scale_size(m),
      64);
}

size_t packed_size(size_t code_bytes, size_t scale_bytes, bool has_mins) {
  return checked_add(code_bytes, checked_mul(scale_bytes, has_mins ? size_t{2} : size_t{1}));
}

// The same for E4M3 weights.
FloatMatrix fp8_sizes(int64_t num_outputs, int64_t num_inputs, int64_t group) {
  check_shape(num_outputs, num_inputs);
  require(group >= kSumGroup && group < kMaxDimension && group % kSumGroup == 0,
          "group must be a multiple of 16");
  FloatMatrix m{};
  m.num_outputs = num_outputs;
  m.num_inputs = num_inputs;
  m.num_tiles = ceil_div(num_outputs, kTile);
  m.kind = FloatKind::kE4m3;
  m.group = group;
  m.num_groups = ceil_div(num_inputs, group);
  return m;
}

FloatMatrix fp8_sizes(const PackedSource& s) {
  require(s.bits == 8 && s.zero == 0 && !s.has_mins && s.levels == nullptr && !s.rotated &&
              s.scale_type == ScaleType::kF32,
          "E4M3 weights have codes of 8 bits, scales in float32 and nothing else");
  return fp8_sizes(s.num_outputs, s.num_inputs, s.group);
}

size_t fp8_code_bytes(const FloatMatrix& m) {
  const auto outputs = static_cast<size_t>(m.num_tiles * kTile);
  return round_up(checked_mul(outputs, static_cast<size_t>(m.num_inputs)), 64);
}

size_t fp8_scale_count(const FloatMatrix& m) {
  return checked_mul(static_cast<size_t>(m.num_tiles * kTile), static_cast<size_t>(m.num_groups));
}

size_t fp8_packed_size(const FloatMatrix& m) {
  return checked_add(fp8_code_bytes(m), checked_mul(fp8_scale_count(m), sizeof(float)));
}

template <typename T>
void pack_float_tiles(const T* from, int64_t num_outputs, int64_t num_inputs, T* to) {
  const int64_t num_tiles = ceil_div(num_outputs, kTile);
  ThreadTeam::instance().run(num_tiles, 1, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t lanes = std::min(kTile, num_outputs - tile * kTile);
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const T* row = from + (tile * kTile + lane) * num_inputs;
        T* column = to + tile * num_inputs * kTile + lane;
        for (int64_t k = 0; k < num_inputs; ++k) column[k * kTile] = row[k];
      }
    }
  });
}

// Codes and scales come from files: a NaN has no place in the kernels' arithmetic.
void check_fp8(const Fp8Source& s, int64_t num_groups) {
  bool is_number = true;
  for (int64_t i = 0; i < s.num_outputs * s.num_inputs; ++i) {
    is_number &= (s.codes[i] & 0x7F) != 0x7F;
  }
  require(is_number, "an E4M3 code is no number");
  bool is_scale = true;
  for (int64_t i = 0; i < s.num_outputs * num_groups; ++i) {
    is_scale &= s.scales[i] >= 0 && s.scales[i] <= kMaxFp8Scale;
  }
  require(is_scale, "a scale of E4M3 weights is out of range");
}

}  // namespace

void Matrix::allocate(const IntMatrix& sizes, size_t code_bytes, size_t scale_bytes,
                      bool has_mins) {
  // Kernels may prefetch past the end but load whole vectors inside: no slack is needed.
  block_ = SlabBlock(packed_size(code_bytes, scale_bytes, has_mins));
  lay_out(sizes, code_bytes, scale_bytes, has_mins);
}

void Matrix::lay_out(const IntMatrix& sizes, size_t code_bytes, size_t scale_bytes, bool has_mins) {
  is_integer_ = true;
  int_ = sizes;
  int_.codes = block_.data();
  int_.scales = block_.data() + code_bytes;
  int_.mins = has_mins ? block_.data() + code_bytes + scale_bytes : nullptr;
}

void Matrix::lay_out_fp8(const FloatMatrix& sizes) {
  float_ = sizes;
  float_.data = block_.data();
  float_.scales = reinterpret_cast<const float*>(block_.data() + fp8_code_bytes(sizes));
}

std::shared_ptr<Matrix> Matrix::pack_codes(const CodesSource& s) {
  const IntMatrix sizes = int_sizes(s);
  check_codes(s);
  const size_t code_bytes = code_stream_size(sizes);
  const size_t scale_bytes = scale_stream_size(sizes);
  std::shared_ptr<Matrix> matrix(new Matrix());
  matrix->allocate(sizes, code_bytes, scale_bytes, s.mins != nullptr);
  if (s.rotated) matrix->rotation_ = Rotation::of(s.num_inputs);
  const IntMatrix& m = matrix->int_;
  uint8_t* codes = matrix->block_.data();
  uint8_t* scales = codes + code_bytes;

  const int64_t source_groups = ceil_div(s.num_inputs, s.group);
  const auto pack_stream = [&](const void* from, void* to, int64_t tile) {
    switch (s.scale_type) {
      case ScaleType::kF32:
        return pack_group_values(static_cast<const float*>(from), source_groups, m, tile,
                                 static_cast<float*>(to));
      case ScaleType::kF16:
        return pack_group_values(static_cast<const uint16_t*>(from), source_groups, m, tile,
                                 static_cast<uint16_t*>(to));
      case ScaleType::kE8m0:
        return pack_group_values(static_cast<const uint8_t*>(from), source_groups, m, tile,
                                 static_cast<uint8_t*>(to));
    }
  };
  ThreadTeam::instance().run(m.num_tiles, 4, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      pack_code_tile(s, m, tile, codes);
      pack_stream(s.scales, scales, tile);
      if (s.mins != nullptr) pack_stream(s.mins, scales + scale_bytes, tile);
    }
  });
  return matrix;
}

std::shared_ptr<Matrix> Matrix::copy_packed(const PackedSource& s) {
  if (s.is_fp8) {
    const FloatMatrix m = fp8_sizes(s);
    require(fp8_packed_size(m) == s.size, "the packed bytes do not fit the shape");
    std::shared_ptr<Matrix> matrix(new Matrix());
    matrix->block_ = SlabBlock(s.size);
    matrix->lay_out_fp8(m);
    std::memcpy(matrix->block_.data(), s.bytes, s.size);
    require(matrix->has_finite_scales(), "a code or scale of E4M3 weights is out of range");
    return matrix;
  }
  const IntMatrix sizes = int_sizes(s);
  const size_t code_bytes = code_stream_size(sizes);
  const size_t scale_bytes = scale_stream_size(sizes);
  require(packed_size(code_bytes, scale_bytes, s.has_mins) == s.size,
          "the packed bytes do not fit the shape");
  std::shared_ptr<Matrix> matrix(new Matrix());
  matrix->allocate(sizes, code_bytes, scale_bytes, s.has_mins);
  if (s.rotated) matrix->rotation_ = Rotation::of(s.num_inputs);
  std::memcpy(matrix->block_.data(), s.bytes, s.size);
  return matrix;
}

std::shared_ptr<Matrix> Matrix::view_packed(const PackedSource& s,
                                            std::shared_ptr<const void> owner) {
  require(reinterpret_cast<uintptr_t>(s.bytes) % 64 == 0, "the packed bytes are not aligned");
  if (s.is_fp8) {
    const FloatMatrix m = fp8_sizes(s);
    const size_t needed = fp8_packed_size(m);
    require(needed <= s.size, "the matrix does not fit the room for it");
    std::shared_ptr<Matrix> view(new Matrix());
    view->block_ = SlabBlock(std::move(owner), const_cast<uint8_t*>(s.bytes), needed);
    view->lay_out_fp8(m);
    return view;
  }
  const IntMatrix sizes = int_sizes(s);
  const size_t code_bytes = code_stream_size(sizes);
  const size_t scale_bytes = scale_stream_size(sizes);
  const size_t size = packed_size(code_bytes, scale_bytes, s.has_mins);
  require(size <= s.size, "the matrix does not fit the room for it");
  std::shared_ptr<Matrix> matrix(new Matrix());
  matrix->block_ = SlabBlock(std::move(owner), const_cast<uint8_t*>(s.bytes), size);
  matrix->lay_out(sizes, code_bytes, scale_bytes, s.has_mins);
  if (s.rotated) matrix->rotation_ = Rotation::of(s.num_inputs);
  return matrix;
}

std::shared_ptr<Matrix> Matrix::pack_float(const FloatSource& s) {
  check_shape(s.num_outputs, s.num_inputs);
  std::shared_ptr<Matrix> matrix(new Matrix());
  FloatMatrix& m = matrix->float_;
  m.num_outputs = s.num_outputs;
  m.num_inputs = s.num_inputs;
  m.num_tiles = ceil_div(s.num_outputs, kTile);
  m.kind = s.kind;
  const size_t element = s.kind == FloatKind::kF32 ? sizeof(float) : sizeof(uint16_t);
  matrix->block_ = SlabBlock(checked_mul(
      checked_mul(static_cast<size_t>(m.num_tiles * kTile), static_cast<size_t>(s.num_inputs)),
      element));
  m.data = matrix->block_.data();
  if (s.kind == FloatKind::kF32) {
    pack_float_tiles(static_cast<const float*>(s.data), s.num_outputs, s.num_inputs,
                     reinterpret_cast<float*>(matrix->block_.data()));
  } else {
    pack_float_tiles(static_cast<const uint16_t*>(s.data), s.num_outputs, s.num_inputs,
                     reinterpret_cast<uint16_t*>(matrix->block_.data()));
  }
  return matrix;
}

std::shared_ptr<Matrix> Matrix::pack_fp8(const Fp8Source& s) {
  const FloatMatrix m = fp8_sizes(s.num_outputs, s.num_inputs, s.group);
  check_fp8(s, m.num_groups);
  std::shared_ptr<Matrix> matrix(new Matrix());
  matrix->block_ = SlabBlock(fp8_packed_size(m));
  matrix->lay_out_fp8(m);
  uint8_t* const codes = matrix->block_.data();
  auto* const scales = reinterpret_cast<float*>(codes + fp8_code_bytes(m));
  pack_float_tiles(s.codes, s.num_outputs, s.num_inputs, codes);
  pack_float_tiles(s.scales, s.num_outputs, m.num_groups, scales);
  const size_t num_scales = fp8_scale_count(m);
  for (size_t i = 0; i < num_scales; ++i) scales[i] *= kFp8ScaleStep;
  return matrix;
}

const char* Matrix::kind() const {
  if (is_integer_) return int_.bits == 4 ? "q4" : "q8";
  switch (float_.kind) {
    case FloatKind::kF16:
      return "f16";
    case FloatKind::kBf16:
      return "bf16";
    case FloatKind::kE4m3:
      return "fp8";
    case FloatKind::kF32:
      break;
  }
  return "f32";
}

}  // namespace coli
