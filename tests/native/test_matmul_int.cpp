// Checks of matmul_int: the scalar variant against float64, every other one against its bits.
//
// `test_matmul_int` runs the checks; `test_matmul_int --bench [variant]` prints rates instead.
#include <algorithm>

#include "matmul_int_bench.h"
#include "matmul_int_cases.h"

namespace {

int g_passed = 0;
int g_failed = 0;

void check(bool ok, const std::string& what) {
  ok ? ++g_passed : ++g_failed;
  if (!ok && g_failed <= 20) std::printf("FAILED: %s\n", what.c_str());
}

bool same_bits(const float* a, const float* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    // Which NaN an invalid operation yields differs between processor families.
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(a + i, b + i, sizeof(float)) != 0) return false;
  }
  return true;
}

struct Case {
  WeightSpec weights;
  int64_t num_rows;
  Numerics numerics;
  bool has_index;
  bool has_bias;
  bool adds;
};

std::string describe(const Case& c, const char* variant) {
  char text[256];
  std::snprintf(text, sizeof text,
                "%s: N=%ld K=%ld rows=%ld group=%d bits=%d zero=%d mins=%d half=%d numerics=%d "
                "index=%d bias=%d add=%d levels=%d e8m0=%d",
                variant, static_cast<long>(c.weights.num_outputs),
                static_cast<long>(c.weights.num_inputs), static_cast<long>(c.num_rows),
                c.weights.group, c.weights.bits, c.weights.zero, c.weights.has_mins,
                c.weights.is_half, static_cast<int>(c.numerics), c.has_index, c.has_bias, c.adds,
                c.weights.has_levels, c.weights.is_e8m0);
  return text;
}

constexpr float kGuard = -12345.0F;

// Inputs of one case and its run by one variant.
class Problem {
 public:
  Problem(const Case& spec, Random& random)
      : spec_(spec),
        weights_(spec.weights, random),
        num_sources_(spec.num_rows + 2),
        ldx_(spec.weights.num_inputs + random.below(3)),
        ldy_(spec.weights.num_outputs + 1 + random.below(3)),
        x_(num_sources_ * ldx_),
        bias_(spec.weights.num_outputs) {
    for (int64_t i = 0; i < x_.size(); ++i) {
      x_[i] = random.uniform() * (random.below(16) == 0 ? 30.0F : 1.0F);
    }
    for (int64_t i = 0; i < bias_.size(); ++i) bias_[i] = random.uniform();
    for (int64_t r = 0; r < spec.num_rows; ++r) {
      index_.push_back(static_cast<int32_t>(random.below(num_sources_)));
    }
    split_tile_ = random.below(weights_.matrix.num_tiles + 1);
    split_row_ = random.below(spec.num_rows + 1);
  }

  // Rows at stride ldy, each followed by guards. Cut into four calls unless `is_whole`.
  std::vector<float> run(const Variant& variant, bool is_whole) const {
    const int64_t offset = is_whole ? 0 : 1;
    const int64_t real = (spec_.num_rows - 1) * ldy_ + spec_.weights.num_outputs;
    Guarded<float> y(real + offset + 4);
    std::fill(y.data(), y.data() + y.size(), kGuard);
    float* out = y.data() + offset;
    for (int64_t r = 0; r < spec_.num_rows; ++r) {
      for (int64_t o = 0; o < spec_.weights.num_outputs; ++o) {
        out[r * ldy_ + o] = static_cast<float>(r - o) * 0.01F;
      }
    }
    const int64_t tiles = weights_.matrix.num_tiles;
    if (is_whole) {
      call(variant, {0, tiles, 0, spec_.num_rows, nullptr, nullptr, out, ldy_, 0});
    } else {
      call(variant, {0, split_tile_, 0, spec_.num_rows, nullptr, nullptr, out, ldy_, 0});
      call(variant, {split_tile_, tiles, 0, split_row_, nullptr, nullptr, out, ldy_, 0});
      call(variant,
           {split_tile_, tiles, split_row_, spec_.num_rows, nullptr, nullptr, out, ldy_, 0});
    }
    return std::vector<float>(out, out + real + 4);
  }

  void check_guards(const std::vector<float>& y, const std::string& what) const {
    bool ok = true;
    for (size_t i = 0; i < y.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const bool is_real = at % ldy_ < spec_.weights.num_outputs && at / ldy_ < spec_.num_rows;
      if (!is_real && y[i] != kGuard) ok = false;
    }
    check(ok, what + ": wrote beyond the outputs");
  }

  void check_float64(const std::vector<float>& y, const std::string& what) const {
    bool ok = true;
    for (int64_t r = 0; r < spec_.num_rows; ++r) {
      for (int64_t o = 0; o < spec_.weights.num_outputs; ++o) {
        ok = ok && is_near(r, o, y[static_cast<size_t>(r * ldy_ + o)]);
      }
    }
    check(ok, what + ": beyond the float64 bound");
  }

  void widen() { weights_.widen(); }

 private:
  int64_t source(int64_t row) const {
    return spec_.has_index ? index_[static_cast<size_t>(row)] : row;
  }

  void call(const Variant& variant, MatmulRange range) const {
    range.row_index = spec_.has_index ? index_.data() : nullptr;
    range.bias = spec_.has_bias ? bias_.data() : nullptr;
    range.add = spec_.adds ? 1 : 0;
    const IntMatrix& w = weights_.matrix;
    if (spec_.numerics == Numerics::kFloat) {
      variant.matmul_int_float(w, {x_.data(), ldx_}, range);
      return;
    }
    Quantized rows(num_sources_, w.padded_inputs, spec_.numerics);
    for (int64_t r = 0; r < num_sources_; ++r) {
      rows.quantize(variant, x_.data() + r * ldx_, r, w.num_inputs);
    }
    variant.matmul_int(w, rows.view(), range);
  }

  // n * eps * sum |a b| for the additions, half a step of each activation for its rounding.
  bool is_near(int64_t r, int64_t o, float result) const {
    const int64_t inputs = spec_.weights.num_inputs;
    const float* x = x_.data() + source(r) * ldx_;
    const int64_t group = spec_.numerics == Numerics::kFast ? 32 : 64;
    const double limit = spec_.numerics == Numerics::kFast ? 127.0 : 32512.0;
    double exact = 0;
    double magnitude = 0;
    double steps = 0;
    for (int64_t begin = 0; begin < inputs; begin += group) {
      const int64_t end = std::min(inputs, begin + group);
      double amax = 0;
      double weight_sum = 0;
      for (int64_t k = begin; k < end; ++k) {
        const double w = weights_.values[static_cast<size_t>(o * inputs + k)];
        exact += w * x[k];
        magnitude += std::abs(w * x[k]);
        weight_sum += std::abs(w);
        amax = std::max(amax, std::abs(static_cast<double>(x[k])));
      }
      steps += weight_sum * amax / limit * 0.5;
    }
    if (spec_.has_bias) exact += bias_.data()[o];
    if (spec_.adds) exact += static_cast<double>(static_cast<float>(r - o) * 0.01F);
    const double count = static_cast<double>(inputs) + 8;
    double bound = count * 0x1p-24 * (magnitude * 40 + steps + 2 + std::abs(exact));
    if (spec_.numerics != Numerics::kFloat) bound += steps * 1.0001;
    return std::abs(exact - static_cast<double>(result)) <= bound;
  }

  Case spec_;
  Weights weights_;
  int64_t num_sources_, ldx_, ldy_;
  Guarded<float> x_;
  Guarded<float> bias_;
  std::vector<int32_t> index_;
  int64_t split_tile_ = 0;
  int64_t split_row_ = 0;
};

void run_case(const Case& c, const std::vector<Variant>& variants, Random& random) {
  const Problem problem(c, random);
  const std::vector<float> expected = problem.run(variants[0], true);
  problem.check_guards(expected, describe(c, "scalar"));
  problem.check_float64(expected, describe(c, "scalar"));
  for (size_t v = 1; v < variants.size(); ++v) {
    const std::string what = describe(c, variants[v].name);
    for (const bool is_whole : {true, false}) {
      const std::vector<float> y = problem.run(variants[v], is_whole);
      problem.check_guards(y, what);
      check(same_bits(y.data(), expected.data(), static_cast<int64_t>(y.size())),
            what + (is_whole ? ": other bits" : ": other bits in parts"));
    }
  }
}

Case random_case(int64_t outputs, int64_t inputs, int64_t rows, Random& random) {
  const auto whole = static_cast<int32_t>((inputs + 15) / 16 * 16);
  const int32_t groups[] = {16, 32, 32, 48, 64, 64, 96, 128, whole};
  const int32_t bits = random.below(2) == 0 ? 4 : 8;
  const int32_t zeros[] = {1 << (bits - 1), 0, static_cast<int32_t>(random.below(256))};
  Case c = {};
  c.weights = {outputs,
               inputs,
               groups[random.below(9)],
               bits,
               zeros[random.below(3)],
               random.below(2) == 0,
               random.below(2) == 0};
  if (bits == 4 && random.below(3) == 0) {
    c.weights.has_levels = true;
    c.weights.zero = static_cast<int32_t>(random.below(256));
    c.weights.is_e8m0 = !c.weights.has_mins && random.below(2) == 0;
  }
  c.num_rows = rows;
  c.numerics = static_cast<Numerics>(random.below(3));
  c.has_index = random.below(3) == 0;
  c.has_bias = random.below(3) == 0;
  c.adds = random.below(3) == 0;
  return c;
}

void check_shapes(const std::vector<Variant>& variants) {
  Random random(1);
  for (const int64_t outputs : {1, 15, 16, 17, 33, 70}) {
    for (const int64_t inputs : {1, 16, 31, 64, 65, 96, 576, 1536}) {
      for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 33, 64}) {
        if (outputs * inputs * rows > 2000000) continue;  // the scalar variant takes its time
        run_case(random_case(outputs, inputs, rows, random), variants, random);
      }
    }
  }
}

void check_formats(const std::vector<Variant>& variants) {
  Random random(2);
  for (const int32_t group : {16, 32, 48, 64, 80, 96, 128, 208}) {
    for (const int32_t bits : {4, 8}) {
      for (int flags = 0; flags < 12; ++flags) {
        Case c = {};
        const int32_t zero = bits == 4 ? 8 : 128;
        c.weights = {33, 200, group, bits, zero, (flags & 1) != 0, (flags & 2) != 0};
        c.num_rows = 1 + random.below(20);
        c.numerics = static_cast<Numerics>(flags / 4);
        run_case(c, variants, random);
      }
    }
  }
}

// Codes that number levels: with every type of scales, zero points anywhere, one row and many.
void check_levels(const std::vector<Variant>& variants) {
  Random random(5);
  for (const int32_t group : {16, 32, 48, 64, 208}) {
    for (int flags = 0; flags < 12; ++flags) {
      for (const int64_t rows : {1, 2, 3, 4, 7, 8, 16, 24, 33}) {
        Case c = {};
        const int32_t zeros[] = {12, 128, 0, 255};
        c.weights = {33, 200, group, 4, zeros[random.below(4)], flags % 4 == 2, flags % 4 == 1};
        c.weights.has_levels = true;
        c.weights.is_e8m0 = flags % 4 == 3;
        c.num_rows = rows;
        c.numerics = static_cast<Numerics>(flags / 4);
        run_case(c, variants, random);
      }
    }
  }
}

// Levels and the same numbers as codes of 8 bits give the same bits.
void check_levels_as_bytes(const std::vector<Variant>& variants) {
  for (const Numerics numerics : {Numerics::kDefault, Numerics::kFast, Numerics::kFloat}) {
    for (const Variant& variant : variants) {
      Random random(6);
      Case c = {};
      c.weights = {40, 320, 32, 4, 12, false, false, true, true};
      c.num_rows = 19;
      c.numerics = numerics;
      Problem problem(c, random);
      const std::vector<float> expected = problem.run(variant, true);
      problem.widen();
      check(same_bits(problem.run(variant, true).data(), expected.data(),
                      static_cast<int64_t>(expected.size())),
            describe(c, variant.name) + ": other bits than with codes of 8 bits");
    }
  }
}

// More kernel groups than are prepared at a time, and rows beyond one panel.
void check_large(const std::vector<Variant>& variants) {
  Random random(3);
  for (const int32_t bits : {4, 8}) {
    Case c = {};
    c.weights = {17, 8256, 16, bits, 1 << (bits - 1), bits == 4, true};
    c.num_rows = 5;
    run_case(c, variants, random);
    c.weights = {40, 1536, 32, bits, 1 << (bits - 1), bits == 8, true};
    c.num_rows = 300;
    run_case(c, variants, random);
  }
}

void check_activations(const std::vector<Variant>& variants) {
  const float values[] = {0.0F,   -0.0F,  1.0F,    -1e30F, 3.4e38F,  1e-38F,
                          1e-42F, 2e-41F, -1e-45F, NAN,    INFINITY, -INFINITY};
  Random random(4);
  for (int64_t trial = 0; trial < 400; ++trial) {
    const int64_t inputs = 1 + random.below(200);
    const int64_t padded = (inputs + 63) / 64 * 64;
    const Numerics numerics = trial % 2 == 0 ? Numerics::kDefault : Numerics::kFast;
    Guarded<float> x(inputs);
    // Few distinct magnitudes per row, so that groups of subnormals and of zeros occur.
    const int64_t first = random.below(12);
    const int64_t second = random.below(12);
    for (int64_t i = 0; i < inputs; ++i) {
      x[i] = values[random.below(2) == 0 ? first : second] * (trial % 3 == 0 ? 1.0F : 0.7F);
    }
    Quantized expected(1, padded, numerics);
    expected.quantize(variants[0], x.data(), 0, inputs);
    Case c = {};
    c.weights = {16, inputs, 32, 8, 128, trial % 4 < 2, true};
    Weights weights(c.weights, random);
    float y[2][16] = {};
    MatmulRange range = {0, 1, 0, 1, nullptr, nullptr, y[0], 16, 0};
    variants[0].matmul_int(weights.matrix, expected.view(), range);
    for (size_t v = 1; v < variants.size(); ++v) {
      Quantized rows(1, padded, numerics);
      rows.quantize(variants[v], x.data(), 0, inputs);
      const std::string what = std::string(variants[v].name) + ": unusual activations: ";
      check(same_bits(rows.scales.data(), expected.scales.data(), rows.scales.size()),
            what + "scales");
      check(std::memcmp(rows.sums.data(), expected.sums.data(),
                        static_cast<size_t>(rows.sums.bytes())) == 0,
            what + "sums");
      range.y = y[1];
      variants[v].matmul_int(weights.matrix, rows.view(), range);
      check(same_bits(y[0], y[1], 16), what + "product");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<Variant> variants = available_variants();
  if (argc > 1 && std::strcmp(argv[1], "--bench") == 0) {
    run_bench(variants, argc > 2 ? argv[2] : nullptr);
    return 0;
  }
  for (const Variant& variant : variants) std::printf("%s ", variant.name);
  std::printf("\n");
  check_shapes(variants);
  check_formats(variants);
  check_levels(variants);
  check_levels_as_bytes(variants);
  check_large(variants);
  check_activations(variants);
  std::printf("%d passed, %d failed\n", g_passed, g_failed);
  return g_failed == 0 ? 0 : 1;
}
