// Attention's options: windows, sinks, query scales and relative biases, alone and together.
// Every variant against the scalar bits, the scalar one against float64, any split of the work.
#include "attention_cases.h"

namespace {

Case with(int64_t head_dim, int64_t first, int64_t rows, int64_t group, const Options& options) {
  return {head_dim, first, rows, group, 1.0F, 256, options};
}

void check_windows() {
  for (int64_t window : {1, 2, 8, 15, 16, 17, 63, 64, 65, 100, 128, 512}) {
    const Options options{window, 0, 0, false, false};
    check_case(with(32, 0, 70, 3, options));
    check_case(with(64, 500, 9, 2, options));
    check_case(with(16, 130, 67, 25, options));
    check_case(with(128, window, 1, 8, options));
    check_case(with(48, 63 + window, 2, 5, options));
  }
}

void check_biases() {
  for (int64_t extent : {1, 7, 16, 17, 64, 65, 100, 300}) {
    for (int64_t profiles : {1, 8, 16, 64}) {
      const Options options{0, extent, profiles, false, false};
      check_case(with(32, 0, 66, 3, options));
      check_case(with(64, 190, 5, 8, options));
      check_case(with(16, extent, 1, 25, options));
    }
  }
}

// Every combination, with the window at, inside and beyond the extent.
void check_combinations() {
  for (int64_t window : {0, 8, 64, 90}) {
    for (int64_t extent : {0, 32, 64, 90}) {
      for (int flags = 0; flags < 4; ++flags) {
        const Options options{window, extent, extent == 0 ? 0 : 16, (flags & 1) != 0,
                              (flags & 2) != 0};
        check_case(with(128, 0, 33, 4, options));
        check_case(with(32, 250, 13, 6, options));
        check_case(with(64, 300, 1, 3, options));
      }
    }
  }
  check_case({64, 100, 4, 3, 60.0F, 256, {40, 0, 0, true, true}});
  check_case({64, 30, 9, 12, 1.0F, 64, {20, 20, 8, true, true}});
}

std::vector<Variant> all_variants() {
  std::vector<Variant> variants = vector_variants();
  variants.push_back(kScalar);
  return variants;
}

// What lies outside the window, however broken, does not reach the row.
void check_window_hides(const Case& shape) {
  Problem problem(shape);
  const std::vector<float> before = problem.run_chunks(kScalar, shape.num_rows, shape.group);
  const std::vector<float> bad(static_cast<size_t>(shape.head_dim),
                               std::numeric_limits<float>::quiet_NaN());
  const int64_t first_row_sees = shape.first_position + 1 - shape.options.window;
  for (int64_t t = 0; t < first_row_sees; ++t) {
    kScalar.store_keys(problem.layer.view, 1, t, bad.data());
    kScalar.store_values(problem.layer.view, 1, t, bad.data());
  }
  for (const Variant& variant : all_variants()) {
    check(same_bits(problem.run_chunks(variant, shape.num_rows, shape.group), before),
          std::string("hidden keys ") + variant.name + ": " + describe(shape));
  }
}

// A key beyond the extent keeps its plain score even under an infinite mixing weight.
void check_extent_ends(const Case& shape) {
  Problem problem(shape);
  for (float& value : problem.bank) value = 0.0F;
  const int64_t at = 1 + Problem::kKvHeads * shape.group * shape.head_dim;
  const int64_t mix = at + shape.group * shape.options.profiles;
  problem.q[static_cast<size_t>(mix)] = -HUGE_VALF;
  problem.bank[static_cast<size_t>(coli::kBankPad)] = 1.0F;  // the farthest distance
  for (int64_t i = coli::kBankPad; i < coli::kBankPad + shape.options.extent; ++i) {
    problem.bank[static_cast<size_t>(i)] = 1.0F;
  }
  const std::vector<float> expected = problem.run_chunks(kScalar, shape.num_rows, shape.group);
  bool is_finite = true;
  for (int64_t d = 0; d < shape.head_dim; ++d) {
    is_finite = is_finite &&
                std::isfinite(expected[static_cast<size_t>(1 + shape.group * shape.head_dim + d)]);
  }
  check(is_finite, "keys beyond the extent remain: " + describe(shape));
  for (const Variant& variant : vector_variants()) {
    check(same_bits(problem.run_chunks(variant, shape.num_rows, shape.group), expected),
          std::string("the extent ends ") + variant.name + ": " + describe(shape));
  }
}

// A window, an extent and a sink that change nothing leave the bits alone.
void check_neutral(const Case& shape) {
  Problem problem(shape);
  const std::vector<float> plain = problem.run_chunks(kScalar, shape.num_rows, shape.group);
  problem.c.options.window = problem.num_keys;
  problem.c.options.has_sinks = true;
  problem.c.options.has_query_scales = true;
  std::fill(problem.sinks.begin(), problem.sinks.end(), -1e30F);
  std::fill(problem.query_scales.begin(), problem.query_scales.end(), 1.0F);
  for (const Variant& variant : all_variants()) {
    check(same_bits(problem.run_chunks(variant, shape.num_rows, shape.group), plain),
          std::string("neutral options ") + variant.name + ": " + describe(shape));
  }
}

}  // namespace

int main() {
  check_windows();
  check_biases();
  check_combinations();
  for (int64_t window : {3, 16, 70}) {
    check_window_hides(with(64, 200, 7, 3, {window, 0, 0, false, false}));
    check_window_hides(with(32, 130, 1, 6, {window, 33, 4, true, true}));
  }
  check_extent_ends(with(64, 150, 1, 3, {0, 100, 1, false, false}));
  check_extent_ends(with(32, 90, 2, 2, {0, 40, 1, false, false}));
  check_neutral(with(64, 0, 70, 3, {}));
  check_neutral(with(128, 333, 4, 5, {}));
  std::printf("%d passed, %d failed\n", num_passed, num_failed);
  return num_failed == 0 ? 0 : 1;
}
