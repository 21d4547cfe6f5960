// Float products: the definition every other variant matches bit for bit.
#include "ops/matmul_float/matmul_float.h"

#include <cmath>
#include <cstring>

namespace coli {

namespace {

float bits_to_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Exact; NaN becomes quiet and keeps its payload, as the hardware conversions do.
float half_to_float(uint16_t half) {
  const uint32_t sign = (static_cast<uint32_t>(half) & 0x8000U) << 16;
  const uint32_t exponent = (half >> 10) & 0x1FU;
  const uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) {
    const uint32_t quiet = mantissa != 0 ? 0x400000U : 0U;
    return bits_to_float(sign | 0x7F800000U | quiet | (mantissa << 13));
  }
  return bits_to_float(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

// The f16 with the bits of an E4M3 code: 2^-8 of its value.
uint16_t e4m3_as_half(uint8_t code) {
  return static_cast<uint16_t>((code & 0x80U) << 8 | (code & 0x7FU) << 7);
}

// Weight k of the row that begins at `first`, whose scales begin at `scales`.
float load_weight(const FloatMatrix& w, int64_t first, const float* scales, int64_t k) {
  const int64_t index = first + k * kTile;
  if (w.kind == FloatKind::kE4m3) {
    const uint8_t code = static_cast<const uint8_t*>(w.data)[index];
    return half_to_float(e4m3_as_half(code)) * scales[k / w.group * kTile];
  }
  if (w.kind == FloatKind::kF32) return static_cast<const float*>(w.data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(w.data)[index];
  if (w.kind == FloatKind::kF16) return half_to_float(bits);
  return bits_to_float(static_cast<uint32_t>(bits) << 16);
}

// Product of output row `output` (tile output / 16, lane output % 16) with one activation row.
float dot(const FloatMatrix& w, int64_t output, const float* x) {
  const int64_t first = (output / kTile) * w.num_inputs * kTile + output % kTile;
  const float* scales = nullptr;
  if (w.kind == FloatKind::kE4m3) {
    scales = w.scales + (output / kTile) * w.num_groups * kTile + output % kTile;
  }
  float acc[4] = {};
  for (int64_t k = 0; k < w.num_inputs; ++k) {
    acc[k % 4] = std::fma(load_weight(w, first, scales, k), x[k], acc[k % 4]);
  }
  return (acc[0] + acc[1]) + (acc[2] + acc[3]);
}

}  // namespace

void matmul_float_scalar(const FloatMatrix& w, const FloatRows& a, const MatmulRange& range) {
  const int64_t tile_end = range.tile_end * kTile;
  const int64_t end = tile_end < w.num_outputs ? tile_end : w.num_outputs;
  for (int64_t r = range.row_begin; r < range.row_end; ++r) {
    const int64_t source = range.row_index != nullptr ? range.row_index[r] : r;
    for (int64_t o = range.tile_begin * kTile; o < end; ++o) {
      float result = dot(w, o, a.x + source * a.ldx);
      if (range.bias != nullptr) result += range.bias[o];
      float* y = range.y + r * range.ldy + o;
      *y = range.add != 0 ? *y + result : result;
    }
  }
}

}  // namespace coli
