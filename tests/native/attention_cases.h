// What the tests of attention share: variants, a cache layer with guards, random problems, and the
// formula in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ops/attention/attention.h"

namespace {

using coli::AttentionRange;
using coli::KvLayerView;

int num_passed = 0;
int num_failed = 0;

void check(bool ok, const std::string& what) {
  if (ok) {
    ++num_passed;
  } else {
    ++num_failed;
    std::printf("FAILED %s\n", what.c_str());
  }
}

struct Variant {
  const char* name;
  void (*store_keys)(const KvLayerView&, int64_t, int64_t, const float*);
  void (*store_values)(const KvLayerView&, int64_t, int64_t, const float*);
  void (*attention)(const KvLayerView&, const AttentionRange&);
};

#define COLI_VARIANT(isa) \
  Variant { #isa, coli::store_keys_##isa, coli::store_values_##isa, coli::attention_##isa }

const Variant kScalar = COLI_VARIANT(scalar);

// Vector variants of this processor, worst first.
std::vector<Variant> vector_variants() {
  std::vector<Variant> variants;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    variants.push_back(COLI_VARIANT(avx2));
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    variants.push_back(COLI_VARIANT(avx512));
  }
#elif defined(__aarch64__)
  variants.push_back(COLI_VARIANT(neon));
#endif
  return variants;
}

std::mt19937 random_bits(7);

std::vector<float> random_floats(int64_t count, float size) {
  std::normal_distribution<float> normal(0.0F, size);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random_bits);
  return values;
}

// A cache layer in the test's own memory: NaN wherever nothing was stored, guards around each
// block, so that any use of an unwritten number shows.
struct GuardedLayer {
  static constexpr int64_t kGuard = 16;

  GuardedLayer(int64_t num_positions, int64_t num_kv_heads, int64_t head_dim,
               int64_t block_positions)
      : block_floats(2 * num_kv_heads * head_dim * block_positions + 2 * kGuard) {
    const int64_t num_blocks = (num_positions + block_positions - 1) / block_positions;
    memory.resize(static_cast<size_t>(num_blocks * block_floats),
                  std::numeric_limits<float>::quiet_NaN());
    for (int64_t b = 0; b < num_blocks; ++b) {
      blocks.push_back(memory.data() + b * block_floats + kGuard);
    }
    // Values before keys, unlike KvCache: kernels must take the offsets from the view.
    view = {blocks.data(), num_kv_heads * head_dim * block_positions, 0, block_positions, head_dim};
  }
  GuardedLayer(const GuardedLayer&) = delete;
  GuardedLayer& operator=(const GuardedLayer&) = delete;

  int64_t block_floats;
  std::vector<float> memory;
  std::vector<float*> blocks;
  KvLayerView view;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// What a case has beyond plain causal attention; zero and false are off.
struct Options {
  int64_t window = 0;
  int64_t extent = 0;  // of the relative bias
  int64_t profiles = 0;
  bool has_sinks = false;
  bool has_query_scales = false;
};

struct Case {
  int64_t head_dim;
  int64_t first_position;
  int64_t num_rows;
  int64_t group;  // query heads per KV head
  float size = 1.0F;
  int64_t block_positions = 256;
  Options options = {};
};

std::string describe(const Case& c) {
  const Options& o = c.options;
  return "head_dim " + std::to_string(c.head_dim) + " first " + std::to_string(c.first_position) +
         " rows " + std::to_string(c.num_rows) + " group " + std::to_string(c.group) + " size " +
         std::to_string(c.size) + " block " + std::to_string(c.block_positions) + " window " +
         std::to_string(o.window) + " extent " + std::to_string(o.extent) + " profiles " +
         std::to_string(o.profiles) + (o.has_sinks ? " sinks" : "") +
         (o.has_query_scales ? " query scales" : "");
}

// Inputs of one case: 2 KV heads, of which the queries use the second.
struct Problem {
  static constexpr int64_t kKvHeads = 2;
  static constexpr int64_t kPad = 5;  // row padding; also misaligns q and out

  explicit Problem(const Case& shape)
      : c(shape),
        num_keys(c.first_position + c.num_rows),
        width(kKvHeads * c.group * (c.head_dim + c.options.profiles) + kPad),
        keys(random_floats(num_keys * kKvHeads * c.head_dim, 1.0F)),
        values(random_floats(num_keys * kKvHeads * c.head_dim, 1.0F)),
        q(random_floats(c.num_rows * width + 1, c.size)),
        sinks(random_floats(kKvHeads * c.group, 2.0F)),
        query_scales(random_floats(c.num_rows, 1.0F)),
        stride(c.options.extent + 2 * coli::kBankPad),
        bank(random_floats(c.options.profiles * stride, 0.5F)),
        layer(num_keys, kKvHeads, c.head_dim, c.block_positions) {
    store(kScalar, layer);
  }

  void store(const Variant& variant, const GuardedLayer& to) const {
    for (int64_t t = 0; t < num_keys; ++t) {
      for (int64_t h = 0; h < kKvHeads; ++h) {
        const int64_t at = (t * kKvHeads + h) * c.head_dim;
        variant.store_keys(to.view, h, t, keys.data() + at);
        variant.store_values(to.view, h, t, values.data() + at);
      }
    }
  }

  float scale() const { return 1.0F / std::sqrt(static_cast<float>(c.head_dim)); }

  // Rows [begin, end) and all heads of the group.
  AttentionRange range(const std::vector<float>& from, std::vector<float>& out, int64_t begin,
                       int64_t end) const {
    AttentionRange range{};
    range.q = from.data() + 1 + begin * width;
    range.out = out.data() + 1 + begin * width;
    range.ldq = width;
    range.ldo = width;
    range.first_position = c.first_position + begin;
    range.num_rows = end - begin;
    range.head_begin = c.group;
    range.head_end = 2 * c.group;
    range.kv_head = 1;
    range.scale = scale();
    range.window = c.options.window;
    if (c.options.has_sinks) range.sinks = sinks.data();
    if (c.options.has_query_scales) range.query_scales = query_scales.data() + begin;
    if (c.options.profiles != 0) {
      range.mix = range.q + kKvHeads * c.group * c.head_dim;
      range.bank = {bank.data(), c.options.profiles, c.options.extent, stride};
    }
    return range;
  }

  std::vector<float> empty_out() const { return std::vector<float>(q.size() + 64, -77.25F); }

  std::vector<float> run_chunks(const Variant& variant, int64_t rows, int64_t heads) const {
    std::vector<float> out = empty_out();
    for (int64_t r = 0; r < c.num_rows; r += rows) {
      for (int64_t h = 0; h < c.group; h += heads) {
        AttentionRange piece = range(q, out, r, std::min(c.num_rows, r + rows));
        piece.head_begin = c.group + h;
        piece.head_end = c.group + std::min(c.group, h + heads);
        variant.attention(layer.view, piece);
      }
    }
    return out;
  }

  Case c;
  int64_t num_keys;
  int64_t width;
  std::vector<float> keys;
  std::vector<float> values;
  std::vector<float> q;
  std::vector<float> sinks;
  std::vector<float> query_scales;
  int64_t stride;
  std::vector<float> bank;  // what stands beside a profile is noise
  GuardedLayer layer;
};

// Attention of one query in double, and a bound on what f32 rounding may do to each channel.
struct Reference {
  std::vector<double> out;
  std::vector<double> bound;
};

struct Score {
  double value;
  double magnitude;  // of the terms it is the sum of
};

Score reference_score(const Problem& problem, int64_t row, int64_t head, int64_t t) {
  const Case& c = problem.c;
  const double factor =
      c.options.has_query_scales ? problem.query_scales[static_cast<size_t>(row)] : 1.0;
  const float* at = problem.q.data() + 1 + row * problem.width;
  const float* q = at + (c.group + head) * c.head_dim;
  const float* key = problem.keys.data() + (t * Problem::kKvHeads + 1) * c.head_dim;
  Score score{};
  for (int64_t d = 0; d < c.head_dim; ++d) {
    const double term = factor * static_cast<double>(q[d]) * key[d] * problem.scale();
    score.value += term;
    score.magnitude += std::fabs(term);
  }
  const int64_t distance = c.first_position + row - t;
  const float* mix =
      at + Problem::kKvHeads * c.group * c.head_dim + (c.group + head) * c.options.profiles;
  for (int64_t j = 0; j < c.options.profiles && distance < c.options.extent; ++j) {
    const int64_t place = j * problem.stride + coli::kBankPad + c.options.extent - 1 - distance;
    const double term =
        factor * static_cast<double>(mix[j]) * problem.bank[static_cast<size_t>(place)];
    score.value += term;
    score.magnitude += std::fabs(term);
  }
  return score;
}

Reference reference_attention(const Problem& problem, int64_t row, int64_t head) {
  const int64_t head_dim = problem.c.head_dim;
  const Options& options = problem.c.options;
  const int64_t end = problem.c.first_position + row + 1;
  const int64_t first = options.window == 0 ? 0 : std::max<int64_t>(0, end - options.window);
  const double eps = std::ldexp(1.0, -23);
  std::vector<double> scores;
  double score_error = 0.0;
  for (int64_t t = first; t < end; ++t) {
    const Score score = reference_score(problem, row, head, t);
    scores.push_back(score.value);
    score_error = std::max(score_error, score.magnitude);
  }
  score_error *= static_cast<double>(head_dim + options.profiles + 8) * eps;
  double m = *std::max_element(scores.begin(), scores.end());
  double l = 0.0;
  if (options.has_sinks) {
    const double sink = problem.sinks[static_cast<size_t>(problem.c.group + head)];
    m = std::max(m, sink);
    l = std::exp(sink - m);
  }
  std::vector<double> sums(static_cast<size_t>(2 * head_dim), 0.0);
  for (int64_t t = first; t < end; ++t) {
    const double p = std::exp(scores[static_cast<size_t>(t - first)] - m);
    const float* value = problem.values.data() + (t * Problem::kKvHeads + 1) * head_dim;
    l += p;
    for (int64_t d = 0; d < head_dim; ++d) {
      sums[static_cast<size_t>(d)] += p * value[d];
      sums[static_cast<size_t>(head_dim + d)] += p * std::fabs(static_cast<double>(value[d]));
    }
  }
  const double relative = 3.0 * score_error + 2.0 * static_cast<double>(end - first + 32) * eps;
  Reference reference;
  for (int64_t d = 0; d < head_dim; ++d) {
    reference.out.push_back(sums[static_cast<size_t>(d)] / l);
    reference.bound.push_back(sums[static_cast<size_t>(head_dim + d)] / l * relative);
  }
  return reference;
}

void check_reference(const Problem& problem, const std::vector<float>& out) {
  double worst = 0.0;
  for (int64_t row = 0; row < problem.c.num_rows;
       row += std::max<int64_t>(1, problem.c.num_rows / 7)) {
    for (int64_t head = 0; head < problem.c.group; ++head) {
      const Reference reference = reference_attention(problem, row, head);
      const float* got =
          out.data() + 1 + row * problem.width + (problem.c.group + head) * problem.c.head_dim;
      for (int64_t d = 0; d < problem.c.head_dim; ++d) {
        const size_t i = static_cast<size_t>(d);
        const double ratio = std::fabs(got[d] - reference.out[i]) / reference.bound[i];
        worst = ratio <= worst ? worst : ratio;  // NaN counts
      }
    }
  }
  check(worst <= 1.0,
        "scalar within bound of float64 (" + std::to_string(worst) + "): " + describe(problem.c));
}

// Numbers outside the queries' columns keep the value they had.
bool guards_intact(const Problem& problem, const std::vector<float>& out) {
  std::vector<float> rest = out;
  for (int64_t row = 0; row < problem.c.num_rows; ++row) {
    const int64_t begin = 1 + row * problem.width + problem.c.group * problem.c.head_dim;
    std::fill_n(rest.begin() + begin, problem.c.group * problem.c.head_dim, -77.25F);
  }
  return same_bits(rest, problem.empty_out());
}

void check_case(const Case& shape) {
  const Problem problem(shape);
  const std::string name = describe(shape);
  const std::vector<float> expected = problem.run_chunks(kScalar, shape.num_rows, shape.group);
  check_reference(problem, expected);
  check(guards_intact(problem, expected), "scalar guards: " + name);
  for (const Variant& variant : vector_variants()) {
    const std::string label = std::string(variant.name) + ": " + name;
    check(same_bits(problem.run_chunks(variant, shape.num_rows, shape.group), expected), label);
    check(same_bits(problem.run_chunks(variant, 1, shape.group), expected), "row by row " + label);
    check(same_bits(problem.run_chunks(variant, 1, 1), expected), "query by query " + label);
    for (int64_t rows : {3, 5, 64}) {
      if (rows >= shape.num_rows) continue;
      check(same_bits(problem.run_chunks(variant, rows, 2), expected),
            "chunks of " + std::to_string(rows) + " " + label);
    }
    GuardedLayer other(problem.num_keys, Problem::kKvHeads, shape.head_dim, shape.block_positions);
    problem.store(variant, other);
    check(same_bits(other.memory, problem.layer.memory), "stores " + label);
  }
}

}  // namespace
