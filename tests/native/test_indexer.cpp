// Checks of the indexer: scores of the scalar variant against float64, every other variant against
// its bits, any range of positions, and the choice of the largest against a full sort.
//
// `test_indexer` runs the checks; `test_indexer --bench [variant]` prints rates instead.
#include <limits>
#include <numeric>

#include "float_testing.h"
#include "ops/indexer/choose.h"
#include "ops/indexer/indexer.h"

using coli::IndexQuery;
using coli::RowsView;

namespace {

struct Variant {
  const char* name;
  void (*scores)(const RowsView&, const IndexQuery&, int64_t, int64_t, float*);
};

const Variant kScalar{"scalar", coli::index_scores_scalar};

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all = {
#if defined(__x86_64__)
      {"avx2", coli::index_scores_avx2},
      {"avx512", coli::index_scores_avx512},
#elif defined(__aarch64__)
      {"neon", coli::index_scores_neon},
#endif
  };
  return all;
}

// Keys of whole blocks of 64 positions, transposed by sixteens.
class Keys {
 public:
  static constexpr int64_t kBlock = 64;

  Keys(Random& random, int64_t positions, int64_t dim, bool plain = false) {
    for (int64_t begin = 0; begin < positions; begin += kBlock) {
      memory_.emplace_back(static_cast<size_t>(kBlock * dim));
      for (float& value : memory_.back()) {
        value = random.value(1.0F);
        if (plain && std::fabs(value) < 1e-30F) value = 0.5F;  // subnormals are slow
      }
    }
    for (auto& block : memory_) blocks_.push_back(block.data());
    view = {blocks_.data(), 0, kBlock, dim};
  }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  float at(int64_t position, int64_t d) const {
    const int64_t in_block = position % kBlock;
    return blocks_[static_cast<size_t>(position / kBlock)]
                  [in_block / 16 * 16 * view.dim + d * 16 + in_block % 16];
  }

  RowsView view{};

 private:
  std::vector<std::vector<float>> memory_;
  std::vector<float*> blocks_;
};

struct Case {
  int64_t num_heads;
  int64_t dim;
  int64_t positions;
};

std::string describe(const Case& c, const char* variant) {
  return std::string(variant) + ": heads=" + std::to_string(c.num_heads) +
         " dim=" + std::to_string(c.dim) + " positions=" + std::to_string(c.positions);
}

int64_t padded(int64_t n) { return (n + 15) / 16 * 16; }

// A row's heads, in memory that ends where a page does.
struct Query {
  Query(Random& random, const Case& c) : q(c.num_heads * c.dim), weights(c.num_heads) {
    for (int64_t i = 0; i < q.count(); ++i) q[i] = random.value(1.0F);
    for (int64_t i = 0; i < weights.count(); ++i) weights[i] = random.value(1.0F);
  }

  IndexQuery view() const { return {q.data(), weights.data(), weights.count()}; }

  Guarded<float> q;
  Guarded<float> weights;
};

void check_against_float64(const Case& c) {
  Random random(11);
  const Keys keys(random, c.positions, c.dim);
  const Query query(random, c);
  Guarded<float> scores(padded(c.positions));
  coli::index_scores_scalar(keys.view, query.view(), 0, c.positions, scores.data());
  const double eps = std::numeric_limits<float>::epsilon();
  bool ok = scores.is_intact();
  for (int64_t t = 0; t < c.positions; ++t) {
    double want = 0.0;
    double size = 0.0;
    for (int64_t h = 0; h < c.num_heads; ++h) {
      double sum = 0.0;
      double sum_size = 0.0;
      for (int64_t d = 0; d < c.dim; ++d) {
        const double product =
            static_cast<double>(query.q[h * c.dim + d]) * static_cast<double>(keys.at(t, d));
        sum += product;
        sum_size += std::fabs(product);
      }
      const auto weight = static_cast<double>(query.weights[h]);
      want += weight * std::max(sum, 0.0);
      size += std::fabs(weight) * sum_size;
    }
    const double bound = static_cast<double>(c.dim + c.num_heads) * eps * size + 1e-40;
    ok = ok && std::fabs(static_cast<double>(scores[t]) - want) <= bound;
  }
  check(ok, describe(c, "scalar against float64"));
}

void check_variant(const Variant& variant, const Case& c) {
  Random random(12);
  const Keys keys(random, c.positions, c.dim);
  const Query query(random, c);
  std::vector<float> want(static_cast<size_t>(padded(c.positions)));
  coli::index_scores_scalar(keys.view, query.view(), 0, c.positions, want.data());
  for (int64_t begin = 0; begin < c.positions; begin += 48) {
    for (const int64_t end : {begin + 1, (begin + c.positions + 1) / 2, c.positions}) {
      if (end <= begin) continue;
      Guarded<float> got(padded(end - begin));
      variant.scores(keys.view, query.view(), begin, end, got.data());
      check(got.is_intact() && same_bits(want.data() + begin, got.data(), end - begin),
            describe(c, variant.name) + " from " + std::to_string(begin) + " to " +
                std::to_string(end));
    }
  }
}

// ---- the choice ---------------------------------------------------------------------------------

std::vector<int32_t> chosen_by_sorting(const std::vector<float>& scores, int64_t count) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto rank = [&](int32_t i) {
    const float score = scores[static_cast<size_t>(i)];
    return std::isnan(score) ? -std::numeric_limits<double>::infinity() * 1.0
                             : static_cast<double>(score);
  };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const bool a_nan = std::isnan(scores[static_cast<size_t>(a)]);
    const bool b_nan = std::isnan(scores[static_cast<size_t>(b)]);
    if (a_nan != b_nan) return b_nan;
    return !a_nan && rank(a) > rank(b);
  });
  order.resize(static_cast<size_t>(count));
  std::sort(order.begin(), order.end());
  return order;
}

void check_choice(const std::vector<float>& scores, const std::string& what) {
  const auto n = static_cast<int64_t>(scores.size());
  for (const int64_t count : {int64_t{1}, n / 3, n / 2, n - 1, n}) {
    if (count < 1) continue;
    Guarded<int32_t> got(count);
    coli::choose_largest(scores.data(), n, count, got.data());
    const std::vector<int32_t> want = chosen_by_sorting(scores, count);
    check(std::equal(want.begin(), want.end(), got.data()) && got.is_intact(),
          what + ": " + std::to_string(count) + " of " + std::to_string(n));
  }
}

void check_choices() {
  Random random(13);
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t n : {1, 2, 3, 17, 100, 2049}) {
    std::vector<float> scores(static_cast<size_t>(n));
    for (float& score : scores) score = random.value(3.0F);
    check_choice(scores, "any scores");
    for (float& score : scores) score = static_cast<float>(random.below(4));
    check_choice(scores, "many ties");
    for (float& score : scores) score = random.below(2) == 0 ? 0.0F : -0.0F;
    check_choice(scores, "zeros of both signs are equal");
    for (float& score : scores) {
      const float odd[] = {inf, -inf, nan, -nan, 1e-45F, -1e-45F, 1.0F, 0.0F};
      score = odd[random.below(8)];
    }
    check_choice(scores, "infinities, NaN and subnormals");
  }
  // Neighbours that differ in the last bit only.
  std::vector<float> close(300, 1.0F);
  for (size_t i = 0; i < close.size(); ++i) {
    close[i] += static_cast<float>(i * 7 % 13) * std::numeric_limits<float>::epsilon();
  }
  check_choice(close, "scores that differ in the last bits");
}

// ---- rates --------------------------------------------------------------------------------------

void bench(const char* wanted) {
  Random random(1);
  const Case c{32, 128, 8192};
  const Keys keys(random, c.positions, c.dim, true);
  std::vector<float> q(static_cast<size_t>(c.num_heads * c.dim), 0.5F);
  std::vector<float> weights(static_cast<size_t>(c.num_heads), 0.5F);
  std::vector<float> scores(static_cast<size_t>(c.positions));
  for (const Variant& variant : variants()) {
    if (!cpu_runs(variant.name)) continue;
    if (wanted != nullptr && std::strcmp(wanted, variant.name) != 0) continue;
    const IndexQuery query{q.data(), weights.data(), c.num_heads};
    const double time = fast_call(
        1, [&](int64_t) { variant.scores(keys.view, query, 0, c.positions, scores.data()); });
    const double flops = 2.0 * static_cast<double>(c.num_heads * c.dim * c.positions);
    std::printf("%-7s heads 32 dim 128 keys 8192 %8.1f us %6.1f GFLOP/s\n", variant.name,
                time * 1e6, flops / time / 1e9);
  }
  for (float& score : scores) score = random.value(1.0F);
  std::vector<int32_t> list(2048);
  const double time = fast_call(
      1, [&](int64_t) { coli::choose_largest(scores.data(), c.positions, 2048, list.data()); });
  std::printf("choice of 2048 from 8192: %.1f us\n", time * 1e6);
}

const Case kCases[] = {{1, 1, 1},   {2, 16, 16},   {16, 16, 40}, {32, 128, 65},
                       {7, 33, 97}, {13, 20, 130}, {6, 64, 200}};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--bench") == 0) {
    bench(argc > 2 ? argv[2] : nullptr);
    return 0;
  }
  for (const Case& c : kCases) check_against_float64(c);
  for (const Variant& variant : variants()) {
    if (!cpu_runs(variant.name)) continue;
    for (const Case& c : kCases) check_variant(variant, c);
  }
  check_choices();
  return report();
}
