// Checks of latent attention: the scalar variant against float64, every other one against its bits,
// and that a list of all positions, and any company of lane groups, are the same.
//
// `test_mla` runs the checks; `test_mla --bench [variant]` prints rates instead.
#include <limits>
#include <memory>

#include "core/aligned.h"
#include "float_testing.h"
#include "ops/mla/mla.h"

using coli::MlaSegment;
using coli::MlaShape;
using coli::RowsView;

namespace {

struct Variant {
  const char* name;
  void (*segment)(const RowsView&, const MlaShape&, const MlaSegment&);
  void (*join)(const MlaShape&, float*, const float*);
  void (*divide)(const MlaShape&, float*);
};

#define COLI_VARIANT(isa) \
  Variant { #isa, coli::mla_segment_##isa, coli::mla_join_##isa, coli::mla_divide_##isa }

const Variant kScalar = COLI_VARIANT(scalar);

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all = {
#if defined(__x86_64__)
      COLI_VARIANT(avx2),
      COLI_VARIANT(avx512),
#elif defined(__aarch64__)
      COLI_VARIANT(neon),
#endif
  };
  return all;
}

// Latents in blocks of 128 positions whose unwritten rest is NaN.
class Latents {
 public:
  static constexpr int64_t kBlock = 128;

  Latents(Random& random, int64_t positions, int64_t dim, float size = 1.0F) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (int64_t begin = 0; begin < positions; begin += kBlock) {
      const int64_t rows = std::min(kBlock, positions - begin);
      memory_.emplace_back(static_cast<size_t>(kOffset + kBlock * dim + 16), nan);
      float* at = memory_.back().data() + kOffset;
      for (int64_t i = 0; i < rows * dim; ++i) at[i] = random.value(size);
    }
    for (auto& block : memory_) blocks_.push_back(block.data());
    view = {blocks_.data(), kOffset, kBlock, dim};
  }
  Latents(const Latents&) = delete;
  Latents& operator=(const Latents&) = delete;

  float* row(int64_t position) {
    return blocks_[static_cast<size_t>(position / kBlock)] + kOffset + position % kBlock * view.dim;
  }

  RowsView view{};

 private:
  static constexpr int64_t kOffset = 16;
  std::vector<std::vector<float>> memory_;
  std::vector<float*> blocks_;
};

struct Case {
  int64_t dim;
  int64_t value_dim;
  int64_t groups;
  int64_t first;
  int64_t count;
};

std::string describe(const Case& c, const char* variant) {
  char text[160];
  std::snprintf(text, sizeof text, "%s: dim=%ld value=%ld groups=%ld first=%ld count=%ld", variant,
                static_cast<long>(c.dim), static_cast<long>(c.value_dim),
                static_cast<long>(c.groups), static_cast<long>(c.first),
                static_cast<long>(c.count));
  return text;
}

int64_t state_size(const MlaShape& shape) { return (2 + shape.value_dim) * shape.lanes; }

std::vector<float> random_query(Random& random, const MlaShape& shape, float size) {
  std::vector<float> q(static_cast<size_t>(shape.dim * shape.lanes));
  for (float& value : q) value = random.value(size);
  return q;
}

// Attention to a list of any length: o / l for every lane, and the sums of every segment behind it.
std::vector<float> attend(const Variant& variant, const Latents& latents, const MlaShape& shape,
                          const float* q, const std::vector<int32_t>& list, bool dense) {
  Guarded<float> sum(state_size(shape));
  Guarded<float> next(state_size(shape));
  const auto size = static_cast<int64_t>(list.size());
  for (int64_t begin = 0; begin < size; begin += coli::kMlaSegment) {
    const int64_t count = std::min(coli::kMlaSegment, size - begin);
    const MlaSegment part{q, begin == 0 ? sum.data() : next.data(),
                          dense ? nullptr : list.data() + begin, list[static_cast<size_t>(begin)],
                          count};
    variant.segment(latents.view, shape, part);
    if (begin != 0) variant.join(shape, sum.data(), next.data());
  }
  variant.divide(shape, sum.data());
  check(sum.is_intact() && next.is_intact(), std::string(variant.name) + " writes before a state");
  return std::vector<float>(sum.data(), sum.data() + sum.count());
}

std::vector<int32_t> positions(int64_t first, int64_t count, int64_t step = 1) {
  std::vector<int32_t> list;
  for (int64_t i = 0; i < count; ++i) list.push_back(static_cast<int32_t>(first + i * step));
  return list;
}

// The scalar variant against float64. A score is off by at most dim * eps * sum |q k|, which
// changes a weight by that factor; the sums over keys add their own steps.
void check_against_float64(const Case& c) {
  Random random(static_cast<uint64_t>(c.dim * 131 + c.count));
  const MlaShape shape{c.dim, c.value_dim, 16 * c.groups, 0.3F};
  Latents latents(random, c.first + c.count, c.dim);
  const std::vector<float> q = random_query(random, shape, 1.0F);
  const std::vector<int32_t> list = positions(c.first, c.count);
  const std::vector<float> got = attend(kScalar, latents, shape, q.data(), list, true);
  const double eps = std::numeric_limits<float>::epsilon();
  bool ok = true;
  for (int64_t lane = 0; lane < shape.lanes; ++lane) {
    std::vector<double> weights;
    double top = -HUGE_VAL;
    double slack = 0.0;
    for (const int32_t position : list) {
      double score = 0.0;
      double size = 0.0;
      for (int64_t d = 0; d < c.dim; ++d) {
        const double product = static_cast<double>(q[static_cast<size_t>(d * shape.lanes + lane)]) *
                               static_cast<double>(latents.row(position)[d]);
        score += product;
        size += std::fabs(product);
      }
      weights.push_back(0.3 * score);
      top = std::max(top, 0.3 * score);
      slack = std::max(slack, 0.3 * size * static_cast<double>(c.dim + 4) * eps);
    }
    double total = 0.0;
    for (double& weight : weights) total += weight = std::exp(weight - top);
    for (int64_t channel = 0; channel < c.value_dim; ++channel) {
      double want = 0.0;
      double size = 0.0;
      for (size_t i = 0; i < list.size(); ++i) {
        const double product =
            weights[i] / total * static_cast<double>(latents.row(list[i])[channel]);
        want += product;
        size += std::fabs(product);
      }
      const double bound = size * (2.0 * slack + static_cast<double>(c.count + 16) * eps) + 1e-40;
      const auto at = static_cast<size_t>((2 + channel) * shape.lanes + lane);
      ok = ok && std::fabs(static_cast<double>(got[at]) - want) <= bound;
    }
  }
  check(ok, describe(c, "scalar against float64"));
}

void check_variant(const Variant& variant, const Case& c) {
  Random random(static_cast<uint64_t>(c.dim * 7 + c.count));
  const MlaShape shape{c.dim, c.value_dim, 16 * c.groups, 0.3F};
  Latents latents(random, c.first + 3 * c.count, c.dim, 2.0F);
  const std::vector<float> q = random_query(random, shape, 2.0F);
  const std::vector<int32_t> dense = positions(c.first, c.count);
  const std::vector<int32_t> spread = positions(c.first, c.count, 3);
  for (const bool is_dense : {true, false}) {
    const std::vector<int32_t>& list = is_dense ? dense : spread;
    const std::vector<float> want = attend(kScalar, latents, shape, q.data(), list, is_dense);
    const std::vector<float> got = attend(variant, latents, shape, q.data(), list, is_dense);
    check(same_bits(want.data(), got.data(), state_size(shape)), describe(c, variant.name));
  }
  const std::vector<float> listed = attend(variant, latents, shape, q.data(), dense, false);
  const std::vector<float> whole = attend(variant, latents, shape, q.data(), dense, true);
  check(same_bits(listed.data(), whole.data(), state_size(shape)),
        describe(c, variant.name) + ": a list of everything");
}

// Lane groups are computed alike in any company, over states that hold something already.
void check_group_runs(const Variant& variant) {
  Random random(5);
  const MlaShape shape{40, 33, 16 * 7, 0.5F};
  const Latents latents(random, 200, shape.dim);
  const std::vector<float> q = random_query(random, shape, 1.0F);
  std::vector<float> whole(static_cast<size_t>(state_size(shape)), 9.0F);
  variant.segment(latents.view, shape, {q.data(), whole.data(), nullptr, 0, 200});
  for (int64_t group = 0; group < 7; ++group) {
    const MlaShape one{shape.dim, shape.value_dim, 16, shape.scale};
    std::vector<float> part(static_cast<size_t>(state_size(one)), -7.0F);
    std::vector<float> its_q;
    std::vector<float> want;
    for (int64_t d = 0; d < shape.dim; ++d) {
      const auto row = q.begin() + d * shape.lanes + group * 16;
      its_q.insert(its_q.end(), row, row + 16);
    }
    for (int64_t r = 0; r < 2 + shape.value_dim; ++r) {
      const auto row = whole.begin() + r * shape.lanes + group * 16;
      want.insert(want.end(), row, row + 16);
    }
    variant.segment(latents.view, one, {its_q.data(), part.data(), nullptr, 0, 200});
    check(same_bits(want.data(), part.data(), state_size(one)),
          std::string(variant.name) + ": a lane group alone");
  }
}

// A head with a number that is no number spoils itself and no other.
void check_nan(const Variant& variant) {
  Random random(6);
  const MlaShape shape{48, 32, 32, 0.5F};
  const Latents latents(random, 100, shape.dim);
  std::vector<float> q = random_query(random, shape, 1.0F);
  const std::vector<int32_t> list = positions(0, 100);
  const std::vector<float> clean = attend(variant, latents, shape, q.data(), list, true);
  q[5 * 32 + 3] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> spoilt = attend(variant, latents, shape, q.data(), list, true);
  bool ok = true;
  for (int64_t c = 0; c < shape.value_dim; ++c) {
    for (int64_t lane = 0; lane < shape.lanes; ++lane) {
      const auto at = static_cast<size_t>((2 + c) * shape.lanes + lane);
      ok = ok && (lane == 3 ? std::isnan(spoilt[at]) : spoilt[at] == clean[at]);
    }
  }
  check(ok, std::string(variant.name) + ": a NaN in one head");
}

// Scores so far apart that all weights but one vanish, first and last.
void check_extremes(const Variant& variant) {
  Random random(8);
  const MlaShape shape{16, 16, 16, 1.0F};
  Latents latents(random, 130, shape.dim, 1e-3F);
  for (const int64_t loud : {0, 64, 129}) {
    latents.row(loud)[0] = 900.0F;
    std::vector<float> q(static_cast<size_t>(shape.dim * shape.lanes), 0.0F);
    for (int64_t lane = 0; lane < 16; ++lane) q[static_cast<size_t>(lane)] = 1.0F;
    const std::vector<float> got =
        attend(variant, latents, shape, q.data(), positions(0, 130), true);
    check(got[2 * 16] == 900.0F && got[2 * 16 + 15] == 900.0F,
          std::string(variant.name) + ": one key takes all");
    latents.row(loud)[0] = 0.0F;
  }
}

// ---- rates --------------------------------------------------------------------------------------

void replace_tiny(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (std::fabs(values[i]) < 1e-30F) values[i] = 0.25F;
  }
}

void bench(const char* wanted) {
  Random random(1);
  const int64_t heads[] = {16, 32, 64};
  for (const Variant& variant : variants()) {
    if (!cpu_runs(variant.name)) continue;
    if (wanted != nullptr && std::strcmp(wanted, variant.name) != 0) continue;
    for (const int64_t lanes : heads) {
      for (const int64_t count : {64, 1024}) {
        const MlaShape shape{576, 512, lanes, 0.06F};
        Latents latents(random, 4 * count, shape.dim);
        const std::vector<float> unaligned = random_query(random, shape, 1.0F);
        coli::AlignedBuffer query(unaligned.size() * sizeof(float));
        coli::AlignedBuffer sums(static_cast<size_t>(state_size(shape)) * sizeof(float));
        float* q = query.as<float>();
        std::copy(unaligned.begin(), unaligned.end(), q);
        // Subnormal numbers, good for checks, cost a hundred cycles each.
        for (int64_t t = 0; t < 4 * count; ++t) replace_tiny(latents.row(t), shape.dim);
        replace_tiny(q, shape.dim * shape.lanes);
        const std::vector<int32_t> list = positions(1, count, 3);
        for (const bool dense : {true, false}) {
          const MlaSegment part{q, sums.as<float>(), dense ? nullptr : list.data(), 0, count};
          const double time =
              fast_call(1, [&](int64_t) { variant.segment(latents.view, shape, part); }, 0.2);
          const double flops = 2.0 * static_cast<double>((576 + 512) * lanes * count);
          std::printf("%-7s heads %2ld keys %4ld %s %8.1f us %6.1f GFLOP/s\n", variant.name,
                      static_cast<long>(lanes), static_cast<long>(count),
                      dense ? "dense " : "listed", time * 1e6, flops / time / 1e9);
        }
      }
    }
  }
}

const Case kCases[] = {{16, 16, 1, 0, 1},    {40, 32, 1, 0, 5},   {41, 33, 2, 3, 64},
                       {24, 7, 3, 100, 65},  {40, 32, 4, 0, 130}, {576, 512, 1, 0, 67},
                       {130, 129, 5, 0, 63}, {7, 1, 1, 0, 1025},  {20, 12, 1, 1, 2100}};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--bench") == 0) {
    bench(argc > 2 ? argv[2] : nullptr);
    return 0;
  }
  for (const Case& c : kCases) check_against_float64(c);
  std::vector<Variant> all = {kScalar};
  for (const Variant& variant : variants()) {
    if (cpu_runs(variant.name)) all.push_back(variant);
  }
  for (const Variant& variant : all) {
    for (const Case& c : kCases) check_variant(variant, c);
    for (int64_t count = 1; count <= 24; ++count) check_variant(variant, {20, 21, 4, 0, count});
    check_group_runs(variant);
    check_nan(variant);
    check_extremes(variant);
  }
  return report();
}
