// Checks of matmul_float: the scalar variant against float64, every other one against its bits.
//
// `test_matmul_float` runs the checks; `test_matmul_float --bench [variant]` prints rates instead.
#include "float_testing.h"
#include "matmul_float_bench.h"
#include "ops/matmul_float/matmul_float.h"

using coli::FloatKind;
using coli::FloatMatrix;
using coli::FloatRows;
using coli::MatmulRange;

namespace {

const std::vector<MatmulFloatVariant>& variants() {
  static const std::vector<MatmulFloatVariant> all = {
#if defined(__x86_64__)
      {"avx2", coli::matmul_float_avx2},
      {"avx512", coli::matmul_float_avx512},
#elif defined(__aarch64__)
      {"neon", coli::matmul_float_neon},
#endif
  };
  return all;
}

constexpr int64_t kScaleGroup = 32;  // inputs of one scale of E4M3 weights

struct Case {
  FloatKind kind;
  int64_t num_outputs;
  int64_t num_inputs;
  int64_t num_rows;
  bool has_index;
  bool has_bias;
  bool adds;
};

std::string describe(const Case& c, const char* variant) {
  char text[160];
  std::snprintf(text, sizeof text, "%s: kind=%d N=%ld K=%ld rows=%ld index=%d bias=%d add=%d",
                variant, static_cast<int>(c.kind), static_cast<long>(c.num_outputs),
                static_cast<long>(c.num_inputs), static_cast<long>(c.num_rows), c.has_index,
                c.has_bias, c.adds);
  return text;
}

// Independent of the kernels' conversions.
double weight_value(FloatKind kind, const uint8_t* at) {
  if (kind == FloatKind::kF32) {
    float value = 0.0F;
    std::memcpy(&value, at, sizeof value);
    return static_cast<double>(value);
  }
  if (kind == FloatKind::kE4m3) {
    const int exponent = (*at >> 3) & 15;
    const int mantissa = (*at & 7) + (exponent != 0 ? 8 : 0);
    const double magnitude = std::ldexp(static_cast<double>(mantissa), std::max(exponent, 1) - 10);
    return (*at & 0x80) != 0 ? -magnitude : magnitude;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  const bool is_half = kind == FloatKind::kF16;
  const int mantissa_bits = is_half ? 10 : 7;
  const int exponent_mask = is_half ? 0x1F : 0xFF;
  const int exponent = (bits >> mantissa_bits) & exponent_mask;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == exponent_mask) return mantissa != 0 ? std::nan("") : sign * HUGE_VAL;
  const int implicit = exponent != 0 ? 1 << mantissa_bits : 0;
  const int power = std::max(exponent, 1) - exponent_mask / 2 - mantissa_bits;
  return sign * std::ldexp(static_cast<double>(implicit + mantissa), power);
}

// Finite random weight: a random pattern with the exponent brought near one.
void random_weight(FloatKind kind, Random& random, uint8_t* at) {
  if (kind == FloatKind::kF32) {
    const float value = random.value(1.5F);
    std::memcpy(at, &value, sizeof value);
    return;
  }
  uint32_t bits = random.bits() & 0xFFFFU;
  if (kind == FloatKind::kE4m3) {
    *at = static_cast<uint8_t>((bits & 0x7FU) == 0x7FU ? bits - 1 : bits);  // no NaN
    return;
  }
  if (kind == FloatKind::kF16) {
    if ((bits & 0x7C00U) == 0x7C00U) bits &= 0x83FFU;  // infinities and NaN become subnormal
  } else {
    bits = (bits & 0x807FU) | ((110U + random.bits() % 18U) << 7);
  }
  const auto pattern = static_cast<uint16_t>(bits);
  std::memcpy(at, &pattern, sizeof pattern);
}

// Inputs of one case, and its run by one variant.
class Problem {
 public:
  Problem(const Case& spec, Random& random)
      : spec_(spec),
        num_tiles_((spec.num_outputs + 15) / 16),
        num_sources_(spec.has_index ? spec.num_rows + 2 : spec.num_rows),
        ldx_(spec.num_inputs + random.below(3)),
        ldy_(spec.num_outputs + random.below(3)),
        num_groups_((spec.num_inputs + kScaleGroup - 1) / kScaleGroup),
        weights_(num_tiles_ * 16 * spec.num_inputs * weight_bytes(spec.kind)),
        scales_(num_tiles_ * num_groups_ * 16),
        x_((num_sources_ - 1) * ldx_ + spec.num_inputs),
        bias_(spec.num_outputs),
        before_((spec.num_rows - 1) * ldy_ + spec.num_outputs) {
    std::memset(weights_.data(), 0, static_cast<size_t>(weights_.count()));
    for (int64_t o = 0; o < spec.num_outputs; ++o) {
      for (int64_t k = 0; k < spec.num_inputs; ++k) random_weight(spec.kind, random, weight(o, k));
    }
    for (int64_t i = 0; i < scales_.count(); ++i) scales_[i] = 2.0F + random.value(1.5F);
    for (int64_t i = 0; i < x_.count(); ++i) x_[i] = random.value(2.0F);
    for (int64_t i = 0; i < bias_.count(); ++i) bias_[i] = random.value(1.0F);
    for (int64_t i = 0; i < before_.count(); ++i) before_[i] = random.value(1.0F);
    for (int64_t r = 0; r < spec.num_rows; ++r) {
      index_.push_back(static_cast<int32_t>(random.below(num_sources_)));
    }
  }

  uint8_t* weight(int64_t o, int64_t k) {
    const int64_t element = (o / 16 * spec_.num_inputs + k) * 16 + o % 16;
    return weights_.data() + element * weight_bytes(spec_.kind);
  }

  MatmulRange range(Guarded<float>& y) const {
    return {0,
            num_tiles_,
            0,
            spec_.num_rows,
            spec_.has_index ? index_.data() : nullptr,
            spec_.has_bias ? bias_.data() : nullptr,
            y.data(),
            ldy_,
            spec_.adds ? 1 : 0};
  }

  void fill(Guarded<float>& y) const {
    std::memcpy(y.data(), before_.data(), sizeof(float) * static_cast<size_t>(y.count()));
  }

  void run(MatmulFloat kernel, const MatmulRange& range) const {
    const FloatMatrix w = {weights_.data(), spec_.num_outputs, spec_.num_inputs, num_tiles_,
                           spec_.kind,      kScaleGroup,       num_groups_,      scales_.data()};
    kernel(w, FloatRows{x_.data(), ldx_}, range);
  }

  // Whether every output is as close to the float64 one as f32 sums can be held to, and every
  // value between rows is untouched.
  bool matches_reference(const Guarded<float>& y) {
    for (int64_t r = 0; r < spec_.num_rows; ++r) {
      const float* x = x_.data() + (spec_.has_index ? index_[static_cast<size_t>(r)] : r) * ldx_;
      for (int64_t o = 0; o < ldy_ && r * ldy_ + o < y.count(); ++o) {
        const int64_t at = r * ldy_ + o;
        if (o >= spec_.num_outputs) {
          if (std::memcmp(&y[at], &before_[at], sizeof(float)) != 0) return false;
        } else if (!is_close(y[at], o, x, before_[at])) {
          return false;
        }
      }
    }
    return true;
  }

  int64_t num_outputs_stored() const { return before_.count(); }
  int64_t num_tiles() const { return num_tiles_; }

 private:
  // What the kernels multiply by, in float64.
  double value(int64_t o, int64_t k) {
    const double stored = weight_value(spec_.kind, weight(o, k));
    if (spec_.kind != FloatKind::kE4m3) return stored;
    const int64_t group = o / 16 * num_groups_ + k / kScaleGroup;
    return stored * static_cast<double>(scales_[group * 16 + o % 16]) / 256.0;
  }

  bool is_close(float actual, int64_t o, const float* x, float before) {
    double sum = 0.0;
    double magnitude = 0.0;
    for (int64_t k = 0; k < spec_.num_inputs; ++k) {
      const double term = value(o, k) * static_cast<double>(x[k]);
      sum += term;
      magnitude += std::fabs(term);
    }
    const double bias = spec_.has_bias ? static_cast<double>(bias_[o]) : 0.0;
    const double old = spec_.adds ? static_cast<double>(before) : 0.0;
    magnitude += std::fabs(bias) + std::fabs(old);
    const double bound = static_cast<double>(spec_.num_inputs / 4 + 6) * 0x1p-24 * magnitude;
    return std::fabs(static_cast<double>(actual) - (sum + bias + old)) <= bound + 1e-44;
  }

  Case spec_;
  int64_t num_tiles_;
  int64_t num_sources_;
  int64_t ldx_;
  int64_t ldy_;
  int64_t num_groups_;
  Guarded<uint8_t> weights_;
  Guarded<float> scales_;
  Guarded<float> x_;
  Guarded<float> bias_;
  Guarded<float> before_;
  std::vector<int32_t> index_;
};

void check_case(const Case& spec, Random& random) {
  Problem problem(spec, random);
  Guarded<float> expected(problem.num_outputs_stored());
  problem.fill(expected);
  problem.run(coli::matmul_float_scalar, problem.range(expected));
  check(expected.is_intact() && problem.matches_reference(expected), describe(spec, "scalar"));
  for (const MatmulFloatVariant& variant : variants()) {
    if (!cpu_runs(variant.name)) continue;
    Guarded<float> y(problem.num_outputs_stored());
    problem.fill(y);
    problem.run(variant.kernel, problem.range(y));
    check(y.is_intact() && same_bits(y.data(), expected.data(), y.count()),
          describe(spec, variant.name));
    // The same in pieces: one tile and two rows at a time.
    problem.fill(y);
    for (int64_t tile = 0; tile < problem.num_tiles(); ++tile) {
      for (int64_t row = 0; row < spec.num_rows; row += 2) {
        MatmulRange piece = problem.range(y);
        piece.tile_begin = tile;
        piece.tile_end = tile + 1;
        piece.row_begin = row;
        piece.row_end = std::min(row + 2, spec.num_rows);
        problem.run(variant.kernel, piece);
      }
    }
    check(y.is_intact() && same_bits(y.data(), expected.data(), y.count()),
          describe(spec, variant.name) + " in pieces");
  }
}

void check_shapes() {
  Random random(1);
  int step = 0;
  for (const FloatKind kind :
       {FloatKind::kF32, FloatKind::kF16, FloatKind::kBf16, FloatKind::kE4m3}) {
    for (const int64_t outputs : {1, 15, 16, 17, 33}) {
      for (const int64_t inputs : {1, 2, 3, 5, 16, 31, 32, 64, 65, 96, 576, 1536}) {
        for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 64}) {
          ++step;
          check_case({kind, outputs, inputs, rows, step % 2 == 1, step % 3 == 1, step % 5 < 2},
                     random);
        }
      }
    }
  }
}

// Every 16-bit pattern as a weight, times one: the conversion is exact.
void check_conversions(FloatKind kind) {
  constexpr int64_t kPatterns = 65536;
  std::vector<uint16_t> weights(kPatterns);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<uint16_t>(i);
  const FloatMatrix w = {weights.data(), kPatterns, 1, kPatterns / 16, kind};
  const float one = 1.0F;
  std::vector<float> y(kPatterns);
  const MatmulRange range = {0, kPatterns / 16, 0, 1, nullptr, nullptr, y.data(), kPatterns, 0};
  std::vector<MatmulFloatVariant> all = variants();
  all.push_back({"scalar", coli::matmul_float_scalar});
  for (const MatmulFloatVariant& variant : all) {
    if (!cpu_runs(variant.name)) continue;
    variant.kernel(w, FloatRows{&one, 1}, range);
    bool ok = true;
    for (size_t i = 0; i < weights.size(); ++i) {
      const double expected =
          weight_value(kind, reinterpret_cast<const uint8_t*>(weights.data() + i));
      const auto actual = static_cast<double>(y[i]);
      ok = ok && (std::isnan(expected) ? std::isnan(actual) : actual == expected);
    }
    check(ok, std::string(variant.name) + ": all 16-bit weights of kind " +
                  std::to_string(static_cast<int>(kind)));
  }
}

// Every E4M3 code that is a number, times scales that keep, lose and undo precision: one rounding.
void check_e4m3() {
  constexpr int64_t kCodes = 256;
  std::vector<uint8_t> weights(kCodes);
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<uint8_t>(i % 128 == 127 ? 0 : i);
  }
  const float one = 1.0F;
  std::vector<float> y(kCodes);
  const MatmulRange range = {0, kCodes / 16, 0, 1, nullptr, nullptr, y.data(), kCodes, 0};
  std::vector<MatmulFloatVariant> all = variants();
  all.push_back({"scalar", coli::matmul_float_scalar});
  for (const float scale : {1.0F, 0.1F, 1.2345678e-7F, 0x1.fffffep109F, 0x1p-140F, 0.0F}) {
    const std::vector<float> scales(kCodes, 256.0F * scale);
    const FloatMatrix w = {weights.data(),   kCodes, 1, kCodes / 16,
                           FloatKind::kE4m3, 16,     1, scales.data()};
    for (const MatmulFloatVariant& variant : all) {
      if (!cpu_runs(variant.name)) continue;
      variant.kernel(w, FloatRows{&one, 1}, range);
      bool ok = true;
      for (size_t i = 0; i < weights.size(); ++i) {
        const double exact =
            weight_value(FloatKind::kE4m3, &weights[i]) * static_cast<double>(scale);
        ok = ok && y[i] == static_cast<float>(exact);
      }
      check(ok, std::string(variant.name) + ": all E4M3 weights times " + std::to_string(scale));
    }
  }
}

// An infinity or NaN among the inputs reaches only its own row.
void check_specials() {
  Random random(3);
  constexpr int64_t kInputs = 37;
  std::vector<float> weights(2 * 16 * kInputs);
  std::vector<float> x(8 * kInputs);
  for (float& value : weights) value = random.value(1.0F) + 2.0F;
  for (float& value : x) value = random.value(1.0F);
  x[2 * kInputs + 5] = HUGE_VALF;
  x[4 * kInputs + 36] = std::nanf("");
  const FloatMatrix w = {weights.data(), 30, kInputs, 2, FloatKind::kF32};
  std::vector<float> expected(8 * 30);
  std::vector<float> y(8 * 30);
  MatmulRange range = {0, 2, 0, 8, nullptr, nullptr, expected.data(), 30, 0};
  coli::matmul_float_scalar(w, FloatRows{x.data(), kInputs}, range);
  range.y = y.data();
  for (const MatmulFloatVariant& variant : variants()) {
    if (!cpu_runs(variant.name)) continue;
    variant.kernel(w, FloatRows{x.data(), kInputs}, range);
    bool ok = same_bits(y.data(), expected.data(), 8 * 30);
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t row = i / 30;
      ok = ok && (row == 2 ? std::isinf(y[i]) : row == 4 ? std::isnan(y[i]) : std::isfinite(y[i]));
    }
    check(ok, std::string(variant.name) + ": infinity and NaN");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--bench") == 0) {
    run_bench(variants(), argc > 2 ? argv[2] : nullptr);
    return 0;
  }
  check_shapes();
  check_conversions(FloatKind::kF16);
  check_conversions(FloatKind::kBf16);
  check_e4m3();
  check_specials();
  return report();
}
