// Attention: every variant against the scalar bits, the scalar one against
// float64, and any split of rows and heads.
//
// test_attention            runs the checks, exit status 1 when one fails
// test_attention --bench    prints rates of the best variant of this processor
#include <chrono>
#include <memory>

#include "attention_cases.h"
#include "core/kv_cache.h"

namespace {

using coli::KvCache;
using coli::LayerLayout;

// The output may take the place of the queries.
void check_in_place(const Case& shape) {
  const Problem problem(shape);
  const std::vector<float> expected = problem.run_chunks(kScalar, shape.num_rows, shape.group);
  for (const Variant& variant : vector_variants()) {
    std::vector<float> rows = problem.q;
    AttentionRange range = problem.range(rows, rows, 0, shape.num_rows);
    variant.attention(problem.layer.view, range);
    bool ok = true;
    for (int64_t row = 0; row < shape.num_rows; ++row) {
      const int64_t at = 1 + row * problem.width + shape.group * shape.head_dim;
      ok = ok && std::equal(rows.begin() + at, rows.begin() + at + shape.group * shape.head_dim,
                            expected.begin() + at);
    }
    check(ok, std::string("output over the queries ") + variant.name + ": " + describe(shape));
  }
}

// Weights on both sides of the smallest that exp returns, made visible by enormous values.
void check_small_weights(const Case& shape) {
  Problem problem(shape);
  const int64_t head_dim = shape.head_dim;
  std::fill(problem.q.begin(), problem.q.end(), 1.0F);
  for (int64_t t = 0; t < problem.num_keys; ++t) {
    const float score = t == 0 ? 0.0F : -80.0F - 0.125F * static_cast<float>(t);
    const int64_t at = t * Problem::kKvHeads * head_dim;
    for (int64_t d = at; d < at + Problem::kKvHeads * head_dim; ++d) {
      const size_t i = static_cast<size_t>(d);
      problem.keys[i] = score * problem.scale();  // head_dim * scale * scale is 1
      if (t != 0) problem.values[i] *= 1e36F;
    }
  }
  problem.store(kScalar, problem.layer);
  const std::vector<float> expected = problem.run_chunks(kScalar, shape.num_rows, shape.group);
  for (const Variant& variant : vector_variants()) {
    check(same_bits(problem.run_chunks(variant, shape.num_rows, shape.group), expected),
          std::string("small weights ") + variant.name + ": " + describe(shape));
  }
}

// Infinite or NaN keys and values of later positions must not leak into earlier rows.
void check_causal(const Case& shape) {
  Problem problem(shape);
  std::vector<Variant> variants = vector_variants();
  variants.push_back(kScalar);
  const std::vector<float> before = problem.run_chunks(kScalar, shape.num_rows, shape.group);
  const std::vector<float> bad(static_cast<size_t>(shape.head_dim),
                               std::numeric_limits<float>::infinity());
  for (int64_t row = 1; row < shape.num_rows; ++row) {
    problem.store(kScalar, problem.layer);
    kScalar.store_keys(problem.layer.view, 1, shape.first_position + row, bad.data());
    kScalar.store_values(problem.layer.view, 1, shape.first_position + row, bad.data());
    const size_t kept = sizeof(float) * static_cast<size_t>(1 + row * problem.width);
    for (const Variant& variant : variants) {
      const std::vector<float> out = problem.run_chunks(variant, shape.num_rows, shape.group);
      const float later =
          out[static_cast<size_t>(1 + row * problem.width + shape.group * shape.head_dim)];
      check(std::memcmp(out.data(), before.data(), kept) == 0 && !std::isfinite(later),
            std::string("row ") + std::to_string(row) + " is causal " + variant.name + ": " +
                describe(shape));
    }
  }
}

// A NaN query gives NaN in its own row only.
void check_nan_query(const Case& shape) {
  Problem problem(shape);
  const std::vector<float> before = problem.run_chunks(kScalar, shape.num_rows, shape.group);
  const int64_t at = 1 + problem.width + shape.group * shape.head_dim;
  problem.q[static_cast<size_t>(at + 3)] = std::numeric_limits<float>::quiet_NaN();
  std::vector<Variant> variants = vector_variants();
  variants.push_back(kScalar);
  for (const Variant& variant : variants) {
    std::vector<float> out = problem.run_chunks(variant, shape.num_rows, shape.group);
    bool all_nan = true;
    for (int64_t d = 0; d < shape.head_dim; ++d) {
      float& value = out[static_cast<size_t>(at + d)];
      all_nan = all_nan && std::isnan(value);
      value = before[static_cast<size_t>(at + d)];
    }
    check(all_nan && same_bits(out, before),
          std::string("NaN stays in its query ") + variant.name + ": " + describe(shape));
  }
}

void check_attention() {
  for (int64_t head_dim = 16; head_dim <= 256; head_dim += 16) {
    const Case cases[] = {{head_dim, 0, 1, 1},   {head_dim, 0, 17, 3},  {head_dim, 15, 1, 3},
                          {head_dim, 16, 2, 7},  {head_dim, 17, 5, 2},  {head_dim, 63, 3, 3},
                          {head_dim, 64, 1, 4},  {head_dim, 65, 1, 25}, {head_dim, 255, 3, 1},
                          {head_dim, 256, 1, 5}, {head_dim, 257, 4, 6}, {head_dim, 1000, 2, 3}};
    for (const Case& shape : cases) check_case(shape);
  }
  for (int64_t head_dim : {64, 128}) {
    check_case({head_dim, 0, 66, 3});
    check_case({head_dim, 250, 70, 1});
    check_case({head_dim, 30, 9, 12, 1.0F, 64});
    check_case({head_dim, 100, 4, 3, 60.0F});  // weights that underflow, maxima that move
    check_case({head_dim, 190, 6, 2, 1e-3F, 128});
    check_small_weights({head_dim, 200, 30, 3});
    check_in_place({head_dim, 40, 30, 3});
    check_causal({head_dim, 58, 12, 3});
    check_nan_query({head_dim, 70, 5, 3});
  }
}

std::vector<LayerLayout> one_layer(int64_t num_kv_heads, int64_t head_dim) {
  return {{num_kv_heads, head_dim}};
}

// ---- rates ------------------------------------------------------------------------------------

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds per call: the best of several runs of at least 20 ms.
template <typename Call>
double time_call(Call call) {
  double best = 1e30;
  int64_t repeats = 1;
  for (int run = 0; run < 9; ++run) {
    const double begin = seconds();
    for (int64_t i = 0; i < repeats; ++i) call();
    const double elapsed = seconds() - begin;
    best = std::min(best, elapsed / static_cast<double>(repeats));
    if (elapsed < 0.02) repeats = 1 + static_cast<int64_t>(0.03 / best);
  }
  return best;
}

volatile float sink;

#if defined(__x86_64__)
typedef float Wide __attribute__((vector_size(64)));
typedef float UnalignedWide __attribute__((vector_size(64), aligned(4)));

// Peak of independent 512-bit multiply-adds, flops per second.
__attribute__((target("avx512f"))) double fma_peak() {
  const int64_t steps = 1000000;
  const double best = time_call([&]() __attribute__((target("avx512f"))) {
    Wide a = {1.0F};
    Wide s0{}, s1{}, s2{}, s3{}, s4{}, s5{}, s6{}, s7{}, s8{}, s9{};
    for (int64_t i = 0; i < steps; ++i) {
      asm volatile(
          "vfmadd231ps %10, %10, %0\n vfmadd231ps %10, %10, %1\n vfmadd231ps %10, %10, %2\n"
          "vfmadd231ps %10, %10, %3\n vfmadd231ps %10, %10, %4\n vfmadd231ps %10, %10, %5\n"
          "vfmadd231ps %10, %10, %6\n vfmadd231ps %10, %10, %7\n vfmadd231ps %10, %10, %8\n"
          "vfmadd231ps %10, %10, %9"
          : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5), "+v"(s6), "+v"(s7),
            "+v"(s8), "+v"(s9)
          : "v"(a));
    }
  });
  return 10.0 * 32.0 * static_cast<double>(steps) / best;
}

// Rate of reading `count` floats once, bytes per second.
__attribute__((target("avx512f"))) double read_rate(const float* from, int64_t count) {
  const double best = time_call([&]() __attribute__((target("avx512f"))) {
    Wide acc[8] = {};
    for (int64_t i = 0; i + 128 <= count; i += 128) {
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j)
        acc[j] += *reinterpret_cast<const UnalignedWide*>(from + i + 16 * j);
    }
    sink = (acc[0] + acc[1] + acc[2] + acc[3] + acc[4] + acc[5] + acc[6] + acc[7])[0];
  });
  return 4.0 * static_cast<double>(count) / best;
}
#else
double fma_peak() { return 0.0; }
double read_rate(const float*, int64_t) { return 0.0; }
#endif

void fill_random(KvCache& cache, int64_t length) {
  cache.reserve(length);
  const std::vector<float> noise = random_floats(1 << 16, 1.0F);
  for (int64_t layer = 0; layer < cache.num_layers(); ++layer) {
    const KvLayerView view = cache.view(layer);
    for (int64_t head = 0; head < cache.layout(layer).num_kv_heads; ++head) {
      for (int64_t t = 0; t < length; ++t) {
        const float* row = noise.data() + (layer * 31 + head * 17 + t * 3) % 60000;
        coli::store_keys_scalar(view, head, t, row);
        coli::store_values_scalar(view, head, t, row + 1000);
      }
    }
  }
  cache.commit(length);
}

void bench_decode(const Variant& variant, int64_t head_dim, int64_t group, int64_t num_keys,
                  bool cold) {
  const int64_t head_nbytes = 8 * head_dim * num_keys;
  const int64_t num_heads = cold ? std::max<int64_t>(4, (int64_t{200} << 20) / head_nbytes) : 1;
  KvCache cache(one_layer(num_heads, head_dim));
  fill_random(cache, num_keys);
  const KvLayerView view = cache.view(0);
  const std::vector<float> q = random_floats(group * head_dim, 1.0F);
  std::vector<float> out(q.size());
  AttentionRange range{q.data(),
                       out.data(),
                       group * head_dim,
                       group * head_dim,
                       num_keys - 1,
                       1,
                       0,
                       group,
                       0,
                       1.0F / std::sqrt(static_cast<float>(head_dim))};
  const double time = time_call([&] {
                        for (range.kv_head = 0; range.kv_head < num_heads; ++range.kv_head) {
                          variant.attention(view, range);
                        }
                      }) /
                      static_cast<double>(num_heads);
  std::printf("decode  %-7s D %3d group %d keys %5d %s %9.2f us %7.1f GB/s\n", variant.name,
              static_cast<int>(head_dim), static_cast<int>(group), static_cast<int>(num_keys),
              cold ? "memory" : "cached", time * 1e6,
              static_cast<double>(head_nbytes) / time / 1e9);
}

void bench_prefill(const Variant& variant, int64_t head_dim, int64_t group, int64_t first,
                   int64_t rows, double peak) {
  KvCache cache(one_layer(1, head_dim));
  fill_random(cache, first + rows);
  const KvLayerView view = cache.view(0);
  const int64_t width = 3 * group * head_dim;
  const std::vector<float> q = random_floats(rows * width, 1.0F);
  std::vector<float> out(q.size());
  const AttentionRange range{
      q.data(), out.data(), width, width, first,
      rows,     0,          group, 0,     1.0F / std::sqrt(static_cast<float>(head_dim))};
  const double time = time_call([&] { variant.attention(view, range); });
  const double pairs = static_cast<double>(rows * group) *
                       (static_cast<double>(first) + static_cast<double>(rows + 1) / 2.0);
  const double rate = 4.0 * pairs * static_cast<double>(head_dim) / time;
  std::printf("prefill %-7s D %3d group %d first %4d rows %3d %9.1f us %7.1f GFLOP/s %5.1f %%\n",
              variant.name, static_cast<int>(head_dim), static_cast<int>(group),
              static_cast<int>(first), static_cast<int>(rows), time * 1e6, rate / 1e9,
              peak > 0.0 ? 100.0 * rate / peak : 0.0);
}

void bench(const char* isa) {
  const double peak = fma_peak();
  std::vector<float> memory(size_t{50} << 20, 1.0F);
  std::printf(
      "FMA peak %.1f GFLOP/s; reads: 16 KiB %.1f, 256 KiB %.1f, 2 MiB %.1f, 200 MiB %.1f GB/s\n",
      peak / 1e9, read_rate(memory.data(), 4096) / 1e9, read_rate(memory.data(), 65536) / 1e9,
      read_rate(memory.data(), 524288) / 1e9,
      read_rate(memory.data(), static_cast<int64_t>(memory.size())) / 1e9);
  for (const Variant& variant : vector_variants()) {
    if (isa != nullptr && std::strcmp(isa, variant.name) != 0) continue;
    for (bool cold : {false, true}) {
      for (int64_t keys : {64, 100, 256, 1024, 4096}) bench_decode(variant, 64, 3, keys, cold);
      bench_decode(variant, 64, 1, 1024, cold);
      bench_decode(variant, 128, 4, 1024, cold);
      bench_decode(variant, 128, 12, 1024, cold);
    }
    for (int64_t rows : {64, 128, 256, 512}) bench_prefill(variant, 64, 3, 0, rows, peak);
    bench_prefill(variant, 64, 3, 3840, 256, peak);
    bench_prefill(variant, 64, 1, 0, 256, peak);
    bench_prefill(variant, 128, 4, 0, 256, peak);
    bench_prefill(variant, 128, 12, 3840, 256, peak);
    bench_prefill(variant, 256, 4, 0, 256, peak);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--bench") == 0) {
    bench(argc > 2 ? argv[2] : nullptr);
    return 0;
  }
  check_attention();
  std::printf("%d passed, %d failed\n", num_passed, num_failed);
  return num_failed == 0 ? 0 : 1;
}
