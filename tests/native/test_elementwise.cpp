// Checks of norm, rope, swiglu, route and sconv: the scalar variants against float64, the others against
// their bits, and the shared exponential over every float.
//
// `test_elementwise` runs the checks; `test_elementwise --bench` prints rates instead.
#include <memory>

#include "elementwise_tables.h"
#include "float_testing.h"
#include "ops/swiglu/exp_scalar.h"

namespace {

const int64_t kSizes[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33, 51, 64, 65, 96, 128, 576};

void fill(Guarded<float>& values, Random& random, float scale) {
  for (int64_t i = 0; i < values.count(); ++i) values[i] = random.value(scale);
}

void copy(Guarded<float>& to, const Guarded<float>& from) {
  std::memcpy(to.data(), from.data(), sizeof(float) * static_cast<size_t>(from.count()));
}

void check_same(const Guarded<float>& actual, const Guarded<float>& expected, const char* what,
                const char* isa) {
  char text[96];
  std::snprintf(text, sizeof text, "%s %s n=%ld", what, isa, static_cast<long>(actual.count()));
  check(actual.is_intact() && same_bits(actual.data(), expected.data(), actual.count()), text);
}

// |actual - expected| <= ulps units in the last place of expected, taken as at least 2^-126.
bool is_within(float actual, double expected, double ulps) {
  int exponent = 0;
  std::frexp(expected, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent, -125) - 24);
  return std::fabs(static_cast<double>(actual) - expected) <= ulps * unit;
}

void check_norm(const Elementwise& scalar, Random& random) {
  for (const int64_t n : kSizes) {
    if (n == 0) continue;
    Guarded<float> x(n);
    Guarded<float> weight(n);
    Guarded<float> expected(n);
    fill(x, random, 3.0F);
    fill(weight, random, 1.0F);
    scalar.rms_norm_row(x.data(), weight.data(), n, 1e-5F, expected.data());
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    const double r = 1.0 / std::sqrt(sum / static_cast<double>(n) + static_cast<double>(1e-5F));
    bool ok = true;
    for (int64_t i = 0; i < n; ++i) {
      const double product = static_cast<double>(x[i]) * r * static_cast<double>(weight[i]);
      ok = ok && is_within(expected[i], product, 2.0);
    }
    check(ok, "norm scalar n=" + std::to_string(n));
    for (const Elementwise& variant : other_variants()) {
      Guarded<float> y(n);
      variant.rms_norm_row(x.data(), weight.data(), n, 1e-5F, y.data());
      check_same(y, expected, "norm", variant.name);
      copy(y, x);
      variant.rms_norm_row(y.data(), weight.data(), n, 1e-5F, y.data());
      check_same(y, expected, "norm in place", variant.name);
    }
  }
}

void check_rope_reference(const Guarded<float>& before, const Guarded<float>& after,
                          const Guarded<float>& cos, const Guarded<float>& sin, int64_t rotated,
                          bool interleaved) {
  bool ok = true;
  const int64_t half = rotated / 2;
  for (int64_t j = 0; j < half; ++j) {
    const int64_t first = interleaved ? 2 * j : j;
    const int64_t second = interleaved ? 2 * j + 1 : j + half;
    const auto a = static_cast<double>(before[first]);
    const auto b = static_cast<double>(before[second]);
    const auto c = static_cast<double>(cos[j]);
    const auto s = static_cast<double>(sin[j]);
    const double bound = 0x1p-23 * (std::fabs(a) + std::fabs(b)) + 1e-44;
    ok = ok && std::fabs(static_cast<double>(after[first]) - (a * c - b * s)) <= bound;
    ok = ok && std::fabs(static_cast<double>(after[second]) - (b * c + a * s)) <= bound;
  }
  for (int64_t i = rotated; i < before.count(); ++i) {
    ok = ok && std::memcmp(&before[i], &after[i], sizeof(float)) == 0;
  }
  check(ok, std::string("rope scalar rotated=") + std::to_string(rotated));
}

void check_rope(const Elementwise& scalar, Random& random) {
  for (const int64_t rotated : {0, 2, 4, 6, 8, 14, 16, 18, 30, 32, 34, 48, 62, 64, 66, 96, 128}) {
    for (const int64_t kept : {0, 5}) {
      Guarded<float> x(rotated + kept);
      Guarded<float> cos(rotated / 2);
      Guarded<float> sin(rotated / 2);
      fill(x, random, 2.0F);
      for (int64_t j = 0; j < rotated / 2; ++j) {
        const double angle = static_cast<double>(random.value(3.0F));
        cos[j] = static_cast<float>(std::cos(angle));
        sin[j] = static_cast<float>(std::sin(angle));
      }
      for (const bool interleaved : {false, true}) {
        const auto pick = [&](const Elementwise& e) {
          return interleaved ? e.rope_interleaved_row : e.rope_half_row;
        };
        Guarded<float> expected(x.count());
        copy(expected, x);
        pick(scalar)(expected.data(), cos.data(), sin.data(), rotated);
        check_rope_reference(x, expected, cos, sin, rotated, interleaved);
        for (const Elementwise& variant : other_variants()) {
          Guarded<float> y(x.count());
          copy(y, x);
          pick(variant)(y.data(), cos.data(), sin.data(), rotated);
          check_same(y, expected, interleaved ? "rope interleaved" : "rope half", variant.name);
        }
      }
    }
  }
}

void check_swiglu(const Elementwise& scalar, Random& random) {
  for (const int64_t n : kSizes) {
    Guarded<float> gate(n);
    Guarded<float> up(n);
    Guarded<float> expected(n);
    fill(gate, random, n % 2 == 0 ? 8.0F : 120.0F);
    fill(up, random, 2.0F);
    scalar.swiglu_row(gate.data(), up.data(), n, expected.data());
    bool ok = true;
    for (int64_t i = 0; i < n; ++i) {
      const auto z = static_cast<double>(gate[i]);
      const double silu = z / (1.0 + std::exp(-z));
      // Below -88.7 exp(-z) is infinite in f32 and the result zero.
      const double slack = z < -80.0 ? 1e-33 : 0.0;
      ok = ok && (is_within(expected[i], silu * static_cast<double>(up[i]), 4.0) ||
                  std::fabs(static_cast<double>(expected[i])) <= slack);
    }
    check(ok, "swiglu scalar n=" + std::to_string(n));
    for (const Elementwise& variant : other_variants()) {
      Guarded<float> y(n);
      variant.swiglu_row(gate.data(), up.data(), n, y.data());
      check_same(y, expected, "swiglu", variant.name);
      copy(y, gate);
      variant.swiglu_row(y.data(), up.data(), n, y.data());
      check_same(y, expected, "swiglu in place", variant.name);
      copy(expected, up);
      copy(y, up);
      scalar.axpy_row(0.7F, gate.data(), n, expected.data());
      variant.axpy_row(0.7F, gate.data(), n, y.data());
      check_same(y, expected, "axpy", variant.name);
      scalar.swiglu_row(gate.data(), up.data(), n, expected.data());
    }
  }
}

void check_swiglu_clamped(const Elementwise& scalar, Random& random) {
  const coli::SwigluClamp clamp{7.0F, 1.702F};
  for (const int64_t n : kSizes) {
    Guarded<float> gate(n);
    Guarded<float> up(n);
    Guarded<float> expected(n);
    fill(gate, random, n % 2 == 0 ? 9.0F : 120.0F);
    fill(up, random, 12.0F);
    if (n > 2) {
      gate[0] = 7.0F;
      up[0] = -7.0F;
      gate[1] = up[2] = std::nanf("");
    }
    scalar.swiglu_clamped_row(gate.data(), up.data(), n, clamp, expected.data());
    bool ok = true;
    for (int64_t i = 0; i < n; ++i) {
      if (n > 2 && (i == 1 || i == 2)) {
        ok = ok && std::isnan(expected[i]);
        continue;
      }
      const double g = std::min(static_cast<double>(gate[i]), 7.0);
      const double u = std::min(std::max(static_cast<double>(up[i]), -7.0), 7.0);
      const double gated = g / (1.0 + std::exp(-static_cast<double>(1.702F) * g));
      // The product inside the exponential is rounded: up to 88 of them are half an ulp each.
      const double ulps = 6.0 + std::min(std::fabs(1.702 * g), 90.0);
      const double slack = 1.702 * g < -80.0 ? 1e-32 : std::fabs(gated) * 0x1p-23;
      ok = ok && (is_within(expected[i], (u + 1.0) * gated, ulps) ||
                  std::fabs(static_cast<double>(expected[i]) - (u + 1.0) * gated) <= slack);
    }
    check(ok, "clamped swiglu scalar n=" + std::to_string(n));
    for (const Elementwise& variant : other_variants()) {
      Guarded<float> y(n);
      variant.swiglu_clamped_row(gate.data(), up.data(), n, clamp, y.data());
      check_same(y, expected, "clamped swiglu", variant.name);
      copy(y, up);
      variant.swiglu_clamped_row(gate.data(), y.data(), n, clamp, y.data());
      check_same(y, expected, "clamped swiglu in place", variant.name);
    }
  }
}

// Inputs and weights of one row, each in guarded memory of its own.
struct Convolution {
  Convolution(int64_t num_taps, int64_t count, Random& random) : base(count) {
    for (int64_t j = 0; j < num_taps; ++j) {
      rows.push_back(std::make_unique<Guarded<float>>(count));
      fill(*rows.back(), random, 2.0F);
      inputs.push_back(rows.back()->data());
    }
    weight = std::make_unique<Guarded<float>>(num_taps * (count + 3) - 3);
    fill(*weight, random, 1.0F);
    fill(base, random, 2.0F);
  }

  coli::ConvRow row(const float* from, float* out) const {
    return {inputs.data(),
            weight->data(),
            base.count() + 3,
            static_cast<int64_t>(inputs.size()),
            base.count(),
            from,
            out};
  }

  std::vector<std::unique_ptr<Guarded<float>>> rows;
  std::vector<const float*> inputs;
  std::unique_ptr<Guarded<float>> weight;
  Guarded<float> base;
};

void check_sconv(const Elementwise& scalar, Random& random) {
  for (const int64_t n : kSizes) {
    for (const int64_t taps : {1, 2, 4, 7}) {
      if (n == 0) continue;
      Convolution c(taps, n, random);
      Guarded<float> expected(n);
      Guarded<float> added(n);
      scalar.sconv_row(c.row(nullptr, expected.data()));
      scalar.sconv_row(c.row(c.base.data(), added.data()));
      bool ok = true;
      for (int64_t i = 0; i < n; ++i) {
        double sum = static_cast<double>((*c.rows.back())[i]);
        double size = std::fabs(sum) + std::fabs(static_cast<double>(c.base[i]));
        for (int64_t j = 0; j < taps; ++j) {
          const double term = static_cast<double>((*c.weight)[j * (n + 3) + i]) *
                              static_cast<double>((*c.rows[static_cast<size_t>(j)])[i]);
          sum += term;
          size += std::fabs(term);
        }
        const double bound = static_cast<double>(taps + 2) * 0x1p-24 * size + 1e-44;
        ok = ok && std::fabs(static_cast<double>(expected[i]) - sum) <= bound;
        const double total = sum + static_cast<double>(c.base[i]);
        ok = ok && std::fabs(static_cast<double>(added[i]) - total) <= bound;
      }
      check(ok, "sconv scalar n=" + std::to_string(n) + " taps=" + std::to_string(taps));
      for (const Elementwise& variant : other_variants()) {
        Guarded<float> y(n);
        variant.sconv_row(c.row(nullptr, y.data()));
        check_same(y, expected, "sconv", variant.name);
        copy(y, c.base);
        variant.sconv_row(c.row(y.data(), y.data()));
        check_same(y, added, "sconv onto a base", variant.name);
        copy(y, *c.rows.back());
        c.inputs.back() = y.data();
        variant.sconv_row(c.row(nullptr, y.data()));
        c.inputs.back() = c.rows.back()->data();
        check_same(y, expected, "sconv in place", variant.name);
      }
    }
  }
}

void check_softmax_row(const Elementwise& scalar, const Guarded<float>& x, bool is_valid) {
  const int64_t n = x.count();
  Guarded<float> expected(n);
  scalar.softmax_row(x.data(), n, expected.data());
  double max = -HUGE_VAL;
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) max = std::max(max, static_cast<double>(x[i]));
  for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[i]) - max);
  bool ok = true;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &expected[i], sizeof bits);
    if (!is_valid) {
      ok = ok && bits == 0x7FC00000U;
      continue;
    }
    const double probability = std::exp(static_cast<double>(x[i]) - max) / sum;
    // x - max is rounded to f32, an absolute error that exp turns into a relative one.
    const double ulps = 8.0 + std::fabs(static_cast<double>(x[i]) - max);
    ok = ok && (is_within(expected[i], probability, ulps) || probability < 0x1p-125);
  }
  check(ok, "softmax scalar n=" + std::to_string(n));
  for (const Elementwise& variant : other_variants()) {
    Guarded<float> y(n);
    variant.softmax_row(x.data(), n, y.data());
    check_same(y, expected, "softmax", variant.name);
    check(std::memcmp(y.data(), expected.data(), sizeof(float) * static_cast<size_t>(n)) == 0,
          "softmax with the same NaN");
    copy(y, x);
    variant.softmax_row(y.data(), n, y.data());
    check_same(y, expected, "softmax in place", variant.name);
  }
}

void check_route(const Elementwise& scalar, Random& random) {
  for (const int64_t n : kSizes) {
    Guarded<float> x(n);
    fill(x, random, n % 2 == 0 ? 6.0F : 110.0F);
    Guarded<float> expected(n);
    scalar.sigmoid_row(x.data(), n, expected.data());
    bool ok = true;
    for (int64_t i = 0; i < n; ++i) {
      const double s = 1.0 / (1.0 + std::exp(-static_cast<double>(x[i])));
      ok = ok && (is_within(expected[i], s, 3.0) || (x[i] < -80.0F && expected[i] < 1e-34F));
    }
    check(ok, "sigmoid scalar n=" + std::to_string(n));
    for (const Elementwise& variant : other_variants()) {
      Guarded<float> y(n);
      variant.sigmoid_row(x.data(), n, y.data());
      check_same(y, expected, "sigmoid", variant.name);
    }
    check_softmax_row(scalar, x, true);
    if (n == 0) continue;
    x[random.below(n)] = -HUGE_VALF;
    check_softmax_row(scalar, x, n > 1);  // only -inf: no distribution
    const int64_t at = random.below(n);
    for (const float special : {std::nanf(""), -std::nanf(""), HUGE_VALF}) {
      x[at] = special;
      check_softmax_row(scalar, x, false);
    }
  }
}

// The exponential at `step`-th bit patterns: accuracy of the scalar one, bits of all others as far
// as swiglu shows them (silu(z) = z / (1 + exp(-z)) with z = -x).
void check_exp(const Elementwise& scalar, uint32_t step) {
  constexpr int64_t kChunk = 4096;
  double worst = 0.0;
  bool same = true;
  std::vector<float> z(kChunk);
  std::vector<float> ones(kChunk, 1.0F);
  std::vector<float> expected(kChunk);
  std::vector<float> y(kChunk);
  const uint64_t count = (uint64_t{1} << 32) / step;
  for (uint64_t first = 0; first < count; first += kChunk) {
    for (int64_t i = 0; i < kChunk; ++i) {
      const auto bits = static_cast<uint32_t>((first + static_cast<uint64_t>(i)) * step);
      float x = 0.0F;
      std::memcpy(&x, &bits, sizeof x);
      z[static_cast<size_t>(i)] = -x;
      if (!(x >= coli::kExpMin && x <= coli::kExpMax)) continue;
      const double truth = std::exp(static_cast<double>(x));
      int exponent = 0;
      std::frexp(truth, &exponent);
      const double error = std::fabs(static_cast<double>(coli::exp_scalar(x)) - truth);
      worst = std::max(worst, std::ldexp(error, 24 - exponent));
    }
    scalar.swiglu_row(z.data(), ones.data(), kChunk, expected.data());
    for (const Elementwise& variant : other_variants()) {
      variant.swiglu_row(z.data(), ones.data(), kChunk, y.data());
      same = same && same_bits(y.data(), expected.data(), kChunk);
    }
  }
  std::printf("exp: at most %.3f ulp\n", worst);
  check(worst <= 1.0, "exp within one ulp");
  check(same, "exp of all variants");
}

void check_exp_specials(const Elementwise& scalar) {
  using coli::exp_scalar;
  std::vector<float> z = {0.0F, -0.0F, HUGE_VALF, -HUGE_VALF, std::nanf(""), 1e-41F};
  for (const float limit : {coli::kExpMin, coli::kExpMax}) {
    for (const float x : {limit, std::nextafter(limit, 0.0F), std::nextafter(limit, 2 * limit)}) {
      z.push_back(-x);  // swiglu takes exp(-z)
    }
  }
  const auto count = static_cast<int64_t>(z.size());
  const std::vector<float> ones(z.size(), 1.0F);
  std::vector<float> expected(z.size());
  std::vector<float> y(z.size());
  scalar.swiglu_row(z.data(), ones.data(), count, expected.data());
  for (const Elementwise& variant : other_variants()) {
    variant.swiglu_row(z.data(), ones.data(), count, y.data());
    check(same_bits(y.data(), expected.data(), count), "exp at its limits");
  }
  check(exp_scalar(0.0F) == 1.0F && exp_scalar(-0.0F) == 1.0F, "exp(0) is 1");
  check(exp_scalar(-HUGE_VALF) == 0.0F, "exp(-inf) is 0");
  check(exp_scalar(HUGE_VALF) == HUGE_VALF, "exp(inf) is inf");
  check(std::isnan(exp_scalar(std::nanf(""))), "exp(nan) is nan");
  check(exp_scalar(coli::kExpMin) >= 0x1p-126F, "exp is normal at the lower limit");
  check(exp_scalar(std::nextafter(coli::kExpMin, -100.0F)) == 0.0F, "exp below the limit is 0");
  check(std::isfinite(exp_scalar(coli::kExpMax)), "exp is finite at the upper limit");
  check(std::isinf(exp_scalar(std::nextafter(coli::kExpMax, 100.0F))), "exp above it is inf");
}

void bench(const Elementwise& variant) {
  constexpr int64_t kCount = 1536;
  Random random(5);
  Guarded<float> a(kCount);
  Guarded<float> b(kCount);
  Guarded<float> out(kCount);
  const auto fill_normal = [&](Guarded<float>& values) {
    for (int64_t i = 0; i < kCount; ++i) values[i] = random.value(1.0F) + 1.5F;
  };
  fill_normal(a);
  fill_normal(b);
  fill_normal(out);
  const auto print = [&](const char* what, double seconds) {
    std::printf("%-7s %-17s n=%ld %8.3f us %6.2f values/ns\n", variant.name, what,
                static_cast<long>(kCount), seconds * 1e6,
                static_cast<double>(kCount) / seconds / 1e9);
  };
  const auto time = [&](const char* what, const auto& call) {
    const double seconds = fast_call(
        1,
        [&](int64_t) {
          for (int i = 0; i < 64; ++i) call();
        },
        0.1);
    print(what, seconds / 64);
  };
  time("rms_norm_row",
       [&] { variant.rms_norm_row(a.data(), b.data(), kCount, 1e-5F, out.data()); });
  time("swiglu_row", [&] { variant.swiglu_row(a.data(), b.data(), kCount, out.data()); });
  time("swiglu_clamped_row",
       [&] { variant.swiglu_clamped_row(a.data(), b.data(), kCount, {7.0F, 1.702F}, out.data()); });
  time("axpy_row", [&] { variant.axpy_row(1e-3F, a.data(), kCount, out.data()); });
  time("sigmoid_row", [&] { variant.sigmoid_row(a.data(), kCount, out.data()); });
  time("softmax_row", [&] { variant.softmax_row(a.data(), kCount, out.data()); });
  fill_normal(out);
  for (int64_t i = 0; i < kCount; ++i) a[i] = i % 2 == 0 ? 0.6F : 0.8F;
  time("rope_half", [&] { variant.rope_half_row(out.data(), a.data(), a.data() + 1, kCount); });
  time("rope_interleaved",
       [&] { variant.rope_interleaved_row(out.data(), a.data(), a.data() + 1, kCount); });
}

}  // namespace

int main(int argc, char** argv) {
  const Elementwise& scalar = scalar_variant();
  if (argc > 1 && std::strcmp(argv[1], "--bench") == 0) {
    bench(scalar);
    for (const Elementwise& variant : other_variants()) bench(variant);
    return 0;
  }
  Random random(2);
  check_norm(scalar, random);
  check_rope(scalar, random);
  check_swiglu(scalar, random);
  check_swiglu_clamped(scalar, random);
  check_sconv(scalar, random);
  check_route(scalar, random);
  check_exp_specials(scalar);
  const bool every_float = argc > 1 && std::strcmp(argv[1], "--every-float") == 0;
  check_exp(scalar, every_float ? 1 : 1009);
  return report();
}
