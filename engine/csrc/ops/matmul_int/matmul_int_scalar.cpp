// The definition of the family: plain loops whose bits every other variant reproduces.
//
// Activation rows are int16 values in input order (in fast numerics too).
#include <cstring>

#include "ops/matmul_int/geometry.h"
#include "ops/matmul_int/matmul_int.h"

namespace coli {
namespace {

// f16 to f32, exact; subnormals are scaled up from their integer value.
float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
  const uint32_t exponent = (half >> 10) & 0x1FU;
  const uint32_t mantissa = half & 0x3FFU;
  uint32_t bits = 0;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    std::memcpy(&bits, &magnitude, sizeof bits);
  } else if (exponent == 31) {
    bits = kInfinityBits | (mantissa << 13);
  } else {
    bits = ((exponent + 112) << 23) | (mantissa << 13);
  }
  bits |= sign;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

float load_scale(const IntMatrix& w, const uint8_t* stream, int64_t index) {
  if (w.scale_e8m0 != 0) {
    const uint32_t byte = stream[index];
    const uint32_t bits = byte > 1 ? (byte - 1) << 23 : kLeastPowerBits << byte;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  if (w.scale_f16 == 0) {
    float value = 0;
    std::memcpy(&value, stream + index * 4, sizeof value);
    return value;
  }
  uint16_t half = 0;
  std::memcpy(&half, stream + index * 2, sizeof half);
  return half_to_float(half);
}

int32_t load_code(const IntMatrix& w, const uint8_t* codes, int64_t input, int64_t lane) {
  const int64_t block = input / 4;
  const int64_t byte = lane * 4 + input % 4;
  if (w.bits == 8) return codes[block * 64 + byte];
  const int32_t pair = codes[(block / 2) * 64 + byte];
  const int32_t nibble = block % 2 == 0 ? pair & 15 : pair >> 4;
  return w.has_levels != 0 ? w.levels[nibble] : nibble;
}

void store_outputs(const IntMatrix& w, const MatmulRange& range, int64_t tile, int64_t row,
                   const float* results) {
  float* y = range.y + row * range.ldy + tile * kTile;
  for (int64_t lane = 0; lane < tile_outputs(w, tile); ++lane) {
    float result = results[lane];
    if (range.bias != nullptr) result += range.bias[tile * kTile + lane];
    y[lane] = range.add != 0 ? y[lane] + result : result;
  }
}

// Magnitude bits order like the values, and a NaN orders above infinity.
float max_magnitude(const float* x, int64_t count) {
  uint32_t max_bits = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, x + i, sizeof bits);
    bits &= kMagnitudeMask;
    if (bits > max_bits) max_bits = bits;
  }
  float value = 0;
  std::memcpy(&value, &max_bits, sizeof value);
  return value;
}

int16_t quantize_value(float x, float scale, float limit) {
  float value = __builtin_rintf(x / scale);
  // Only a subnormal scale, which has few bits, can take the quotient beyond the limit.
  if (value > limit) value = limit;
  if (value < -limit) value = -limit;
  return static_cast<int16_t>(value);
}

void multiply_tile(const IntMatrix& w, const QuantRows& a, int64_t tile, int64_t source,
                   float* acc) {
  const int64_t size = kernel_group(w, a.numerics);
  const int64_t act_group = activation_group(a.numerics);
  const auto* values = reinterpret_cast<const int16_t*>(a.data + source * 2 * a.padded_inputs);
  const float* act_scales = a.scales + source * (a.padded_inputs / act_group);
  const uint8_t* codes = tile_codes(w, tile);
  const uint8_t* scales = tile_stream(w, w.scales, tile);
  const uint8_t* mins = tile_stream(w, w.mins, tile);
  const int32_t zero = mins != nullptr ? 0 : w.zero;
  for (int64_t begin = 0; begin < w.padded_inputs; begin += size) {
    int32_t sums[kTile] = {};
    int32_t value_sum = 0;
    for (int64_t k = begin; k < begin + size; ++k) {
      value_sum += values[k];
      for (int64_t lane = 0; lane < kTile; ++lane) {
        sums[lane] += (load_code(w, codes, k, lane) - zero) * values[k];
      }
    }
    const float act_scale = act_scales[begin / act_group];
    for (int64_t lane = 0; lane < kTile; ++lane) {
      const int64_t index = begin / w.group * kTile + lane;
      const float scale = load_scale(w, scales, index) * act_scale;
      acc[lane] = __builtin_fmaf(static_cast<float>(sums[lane]), scale, acc[lane]);
      if (mins == nullptr) continue;
      const float min = load_scale(w, mins, index) * act_scale;
      acc[lane] = __builtin_fmaf(static_cast<float>(value_sum), min, acc[lane]);
    }
  }
}

float decode_weight(const IntMatrix& w, int64_t tile, int64_t input, int64_t lane) {
  const int64_t index = input / w.group * kTile + lane;
  const int32_t code = load_code(w, tile_codes(w, tile), input, lane);
  const float scale = load_scale(w, tile_stream(w, w.scales, tile), index);
  if (w.mins == nullptr) return scale * static_cast<float>(code - w.zero);
  return __builtin_fmaf(scale, static_cast<float>(code),
                        load_scale(w, tile_stream(w, w.mins, tile), index));
}

}  // namespace

void quantize_row_scalar(const float* x, int64_t num_inputs, int64_t padded_inputs,
                         Numerics numerics, uint8_t* data, float* scales, int32_t* sums) {
  const int64_t group = activation_group(numerics);
  const float limit = numerics == Numerics::kFast ? kFastLimit : kDefaultLimit;
  auto* values = reinterpret_cast<int16_t*>(data);
  for (int64_t begin = 0; begin < padded_inputs; begin += group) {
    const int64_t left = num_inputs - begin;
    const int64_t count = left < 0 ? 0 : (left < group ? left : group);
    const float amax = max_magnitude(x + (count > 0 ? begin : 0), count);
    const float scale = amax / limit;
    // A NaN or an infinity keeps its non-finite scale over zero values, which makes every
    // product NaN: a broken activation stays visible instead of turning into a number.
    const bool is_usable = scale > 0 && amax < __builtin_inff();
    for (int64_t i = 0; i < group; ++i) {
      const bool is_real = is_usable && i < count;
      values[begin + i] =
          is_real ? quantize_value(x[begin + i], scale, limit) : static_cast<int16_t>(0);
    }
    scales[begin / group] = scale;
  }
  for (int64_t begin = 0; begin < padded_inputs; begin += kSumGroup) {
    int32_t sum = 0;
    for (int64_t i = 0; i < kSumGroup; ++i) sum += values[begin + i];
    sums[begin / kSumGroup] = sum;
  }
}

void matmul_int_scalar(const IntMatrix& w, const QuantRows& a, const MatmulRange& range) {
  for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
    for (int64_t row = range.row_begin; row < range.row_end; ++row) {
      float acc[kTile] = {};
      multiply_tile(w, a, tile, source_row(range, row), acc);
      store_outputs(w, range, tile, row, acc);
    }
  }
}

void matmul_int_float_scalar(const IntMatrix& w, const FloatRows& a, const MatmulRange& range) {
  for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
    for (int64_t row = range.row_begin; row < range.row_end; ++row) {
      const float* x = a.x + source_row(range, row) * a.ldx;
      float acc[4][kTile] = {};
      for (int64_t k = 0; k < w.num_inputs; ++k) {
        for (int64_t lane = 0; lane < kTile; ++lane) {
          float& sum = acc[k % 4][lane];
          sum = __builtin_fmaf(decode_weight(w, tile, k, lane), x[k], sum);
        }
      }
      float results[kTile];
      for (int64_t lane = 0; lane < kTile; ++lane) {
        results[lane] = (acc[0][lane] + acc[1][lane]) + (acc[2][lane] + acc[3][lane]);
      }
      store_outputs(w, range, tile, row, results);
    }
  }
}

}  // namespace coli
