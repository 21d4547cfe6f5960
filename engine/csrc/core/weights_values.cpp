// Packed weights as numbers again, for whoever takes a matrix apart or compares.
#include <cmath>
#include <cstring>

#include "core/weights.h"

namespace coli {
namespace {

// What a scale is as a number; that of a byte has at least one bit (a subnormal one for 0 and 1).
float scale_value(const IntMatrix& m, const void* values, int64_t i) {
  if (m.scale_e8m0 != 0) return std::ldexp(1.0f, static_cast<const uint8_t*>(values)[i] - 128);
  return m.scale_f16 != 0 ? half_to_float(static_cast<const uint16_t*>(values)[i])
                          : static_cast<const float*>(values)[i];
}

}  // namespace

float e4m3_to_float(uint8_t code) {
  const auto half = static_cast<uint16_t>((code & 0x80U) << 8 | (code & 0x7FU) << 7);
  return half_to_float(half) * 256.0f;
}

float bfloat16_to_float(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

float half_to_float(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  float value = 0;
  if (exponent == 31) {
    value = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    value = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  }
  return (half & 0x8000) != 0 ? -value : value;
}

bool Matrix::is_finite_fp8() const {
  const auto* const scales = reinterpret_cast<const uint8_t*>(float_.scales);
  const auto* const codes = static_cast<const uint8_t*>(float_.data);
  const auto num_codes = static_cast<size_t>(scales - codes);
  const size_t num_scales = (block_.size() - num_codes) / sizeof(float);
  // No early exit: the loops are vector ones.
  unsigned bad = 0;
  for (size_t i = 0; i < num_codes; ++i) bad |= (codes[i] & 0x7FU) == 0x7FU;
  for (size_t i = 0; i < num_scales; ++i) {
    bad |= !(float_.scales[i] >= 0 && float_.scales[i] <= kMaxFp8Scale * kFp8ScaleStep);
  }
  return bad == 0;
}

bool Matrix::has_finite_scales() const {
  if (!is_integer_) return float_.kind != FloatKind::kE4m3 || is_finite_fp8();
  const IntMatrix& m = int_;
  const auto first = static_cast<size_t>(static_cast<const uint8_t*>(m.scales) - m.codes);
  const uint8_t* const bytes = block_.data() + first;
  const size_t size = block_.size() - first;
  // A number has not all bits of its exponent set. No early exit: the loop is a vector one.
  if (m.scale_e8m0 != 0) {
    unsigned bad = 0;
    for (size_t i = 0; i < size; ++i) bad |= bytes[i] == 0xFFU;
    return bad == 0;
  }
  if (m.scale_f16 != 0) {
    const auto* const halves = reinterpret_cast<const uint16_t*>(bytes);
    unsigned bad = 0;
    for (size_t i = 0; i < size / sizeof(uint16_t); ++i) bad |= (halves[i] & 0x7C00U) == 0x7C00U;
    return bad == 0;
  }
  const auto* const words = reinterpret_cast<const uint32_t*>(bytes);
  unsigned bad = 0;
  for (size_t i = 0; i < size / sizeof(uint32_t); ++i) {
    bad |= (words[i] & 0x7F800000U) == 0x7F800000U;
  }
  return bad == 0;
}

void Matrix::unpack_float_row(int64_t tile, int64_t lane, float* out) const {
  const FloatMatrix& m = float_;
  for (int64_t k = 0; k < m.num_inputs; ++k) {
    const int64_t i = (tile * m.num_inputs + k) * kTile + lane;
    switch (m.kind) {
      case FloatKind::kF32:
        out[k] = static_cast<const float*>(m.data)[i];
        break;
      case FloatKind::kF16:
        out[k] = half_to_float(static_cast<const uint16_t*>(m.data)[i]);
        break;
      case FloatKind::kBf16:
        out[k] = bfloat16_to_float(static_cast<const uint16_t*>(m.data)[i]);
        break;
      case FloatKind::kE4m3: {
        const float scale = m.scales[(tile * m.num_groups + k / m.group) * kTile + lane];
        out[k] = e4m3_to_float(static_cast<const uint8_t*>(m.data)[i]) * (scale * 0x1p-8f);
        break;
      }
    }
  }
}

void Matrix::unpack_row(int64_t output, float* out) const {
  const int64_t tile = output / kTile;
  const int64_t lane = output % kTile;
  if (!is_integer_) return unpack_float_row(tile, lane, out);
  const IntMatrix& m = int_;
  const auto group_value = [&](const void* values, int64_t group) {
    return scale_value(m, values, (tile * m.num_groups + group) * kTile + lane);
  };
  const int64_t step = m.bits == 4 ? 2 * kBlockInputs : kBlockInputs;
  const uint8_t* codes = m.codes + tile * (m.padded_inputs / step) * kBlockBytes;
  float scale = 0;
  float low = 0;
  for (int64_t k = 0; k < m.num_inputs; ++k) {
    if (k % m.group == 0) {
      scale = group_value(m.scales, k / m.group);
      low = m.mins == nullptr ? 0.0f : group_value(m.mins, k / m.group);
    }
    const uint8_t byte = codes[(k / step) * kBlockBytes + lane * kBlockInputs + k % kBlockInputs];
    const bool high_nibble = m.bits == 4 && (k / kBlockInputs) % 2 == 1;
    const int number = m.bits == 8 ? byte : (high_nibble ? byte >> 4 : byte & 15);
    const int code = m.has_levels != 0 ? m.levels[number] : number;
    out[k] = m.mins == nullptr ? scale * static_cast<float>(code - m.zero)
                               : scale * static_cast<float>(code) + low;
  }
  if (rotation_ != nullptr) rotation_->undo(out);
}

}  // namespace coli
