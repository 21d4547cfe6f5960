// Checks of a mixture in parts: whatever order experts arrive in, together with whatever others and
// on however many threads, the bits are those of all at once, on every instruction set; these are
// close to float64; and what must not be asked is refused and leaves the step usable.
//
// The test stands in for the dispatch, so that it chooses the kernels.
#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>

#include "core/cpu_features.h"
#include "core/thread_team.h"
#include "dispatch.h"
#include "float_testing.h"
#include "ops/matmul_float/matmul_float.h"
#include "ops/matmul_int/matmul_int.h"
#include "ops/moe/moe_step.h"
#include "ops/swiglu/swiglu.h"

namespace {

using coli::Choices;
using coli::Expert;
using coli::ExpertTable;
using coli::KernelTable;
using coli::Linear;
using coli::Matrix;
using coli::MoeStep;
using coli::Numerics;
using coli::Rows;
using coli::ScaleType;

// Only what a mixture uses.
#define COLI_VARIANT(table_isa, int_isa, isa)                  \
  [] {                                                         \
    KernelTable table{};                                       \
    table.name = table_isa;                                    \
    table.quantize_row = coli::quantize_row_##int_isa;         \
    table.matmul_int = coli::matmul_int_##int_isa;             \
    table.matmul_int_float = coli::matmul_int_float_##int_isa; \
    table.matmul_float = coli::matmul_float_##isa;             \
    table.swiglu_row = coli::swiglu_row_##isa;                 \
    table.swiglu_clamped_row = coli::swiglu_clamped_row_##isa; \
    table.axpy_row = coli::axpy_row_##isa;                     \
    return table;                                              \
  }()

const KernelTable kScalar = COLI_VARIANT("scalar", scalar, scalar);
const KernelTable* g_kernels = &kScalar;

std::vector<KernelTable> variants() {
  std::vector<KernelTable> found;
  const coli::CpuFeatures& cpu = coli::cpu_features();
#if defined(__x86_64__)
  if (cpu.avx2) found.push_back(COLI_VARIANT("avx2", avx2, avx2));
  if (cpu.avx512) found.push_back(COLI_VARIANT("avx512", avx512, avx512));
  if (cpu.amx) found.push_back(COLI_VARIANT("amx", amx, avx512));
#elif defined(__aarch64__)
  if (cpu.neon) found.push_back(COLI_VARIANT("neon", neon, neon));
  if (cpu.i8mm) found.push_back(COLI_VARIANT("i8mm", i8mm, neon));
#endif
  return found;
}

constexpr int64_t kInputs = 80;  // of an expert: a group and a part of one
constexpr int64_t kWidth = 48;
constexpr int64_t kExperts = 6;
constexpr int64_t kGroup = 64;
constexpr uint8_t kSomeLevels[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                     128, 127, 126, 125, 124, 122, 120, 116};

// Matrices of 4 bits hold the numbers themselves or, with `levels`, number them.
std::shared_ptr<Matrix> random_matrix(Random& random, int64_t outputs, int64_t inputs, int bits,
                                      const uint8_t* levels = nullptr) {
  const int64_t groups = (inputs + kGroup - 1) / kGroup;
  std::vector<uint8_t> codes(static_cast<size_t>(outputs * inputs));
  std::vector<float> scales(static_cast<size_t>(outputs * groups));
  for (auto& code : codes) code = static_cast<uint8_t>(random.below(int64_t{1} << bits));
  for (auto& scale : scales) scale = 0.02F + std::fabs(random.value(0.05F));
  const int zero = levels != nullptr ? 128 : 1 << (bits - 1);
  return Matrix::pack_codes({codes.data(), scales.data(), nullptr, levels, outputs, inputs, kGroup,
                             bits, zero, ScaleType::kF32, false});
}

// The experts of a layer, a third of them at 4 bits, at 8 bits and in levels.
struct Layer {
  Layer(Random& random, Numerics numerics) {
    for (int64_t e = 0; e < kExperts; ++e) {
      const int bits = e % 3 == 1 ? 8 : 4;
      const uint8_t* levels = e % 3 == 2 ? kSomeLevels : nullptr;
      auto gate = random_matrix(random, kWidth, kInputs, bits, levels);
      auto up = random_matrix(random, kWidth, kInputs, bits, levels);
      auto down = random_matrix(random, kInputs, kWidth, bits, levels);
      auto gate_up = std::make_shared<Linear>(std::vector<std::shared_ptr<Matrix>>{gate, up},
                                              std::vector<float>{}, numerics);
      auto last = std::make_shared<Linear>(std::vector<std::shared_ptr<Matrix>>{down},
                                           std::vector<float>{}, numerics);
      experts.push_back(std::make_shared<Expert>(gate_up, last));
    }
  }
  std::vector<std::shared_ptr<Expert>> experts;
};

// Rows and what each chose; the last expert is chosen by none.
struct Case {
  Case(Random& random, int64_t rows, int64_t choices)
      : x(std::max<int64_t>(rows, 1), kInputs), num_choices(choices) {
    x.set_rows(rows);
    for (int64_t i = 0; i < rows * kInputs; ++i) x.data()[i] = random.value(1.0F);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t first = random.below(kExperts - 1);
      for (int64_t j = 0; j < choices; ++j) {
        ids.push_back(static_cast<int32_t>((first + j) % (kExperts - 1)));
        weights.push_back(std::fabs(random.value(1.0F)));
      }
    }
  }
  Choices chosen() const { return {ids.data(), weights.data(), num_choices}; }

  Rows x;
  int64_t num_choices;
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Rows start_of(const Case& c) {
  Rows out(std::max<int64_t>(c.x.rows(), 1), kInputs);
  out.set_rows(c.x.rows());
  for (int64_t i = 0; i < c.x.rows() * kInputs; ++i) out.data()[i] = 0.25F * c.x.data()[i];
  return out;
}

std::vector<float> values(const Rows& rows) {
  return {rows.data(), rows.data() + rows.rows() * rows.width()};
}

void begin(MoeStep& step, const Case& c, const Layer& layer) {
  const Expert& like = *layer.experts.front();
  step.begin(c.x, c.chosen(), kExperts, {&like.gate_up(), nullptr}, like);
}

void run(MoeStep& step, const Layer& layer, const std::vector<int32_t>& ids) {
  std::vector<const Expert*> experts;
  for (const int32_t id : ids) experts.push_back(layer.experts[static_cast<size_t>(id)].get());
  step.run(ids.data(), experts.data(), static_cast<int64_t>(ids.size()));
}

std::vector<float> at_once(const Case& c, const Layer& layer) {
  Rows out = start_of(c);
  coli::moe(c.x, ExpertTable(layer.experts), c.chosen(), out);
  return values(out);
}

// In a random order, cut at random places.
std::vector<float> in_parts(MoeStep& step, Random& random, const Case& c, const Layer& layer) {
  begin(step, c, layer);
  std::vector<int32_t> order;
  for (const MoeStep::Group& group : step.groups()) order.push_back(group.expert);
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  }
  for (size_t at = 0; at < order.size();) {
    const size_t count = std::min(order.size() - at, static_cast<size_t>(1 + random.below(3)));
    run(step, layer,
        {order.begin() + static_cast<int64_t>(at),
         order.begin() + static_cast<int64_t>(at + count)});
    at += count;
  }
  Rows out = start_of(c);
  step.end(out);
  return values(out);
}

// W x and |W| |x|, in float64.
struct Product {
  std::vector<double> sums;
  std::vector<double> sizes;
};

Product multiply(const Matrix& matrix, const std::vector<double>& x,
                 const std::vector<double>& x_sizes) {
  std::vector<float> weights(x.size());
  Product found;
  for (int64_t o = 0; o < matrix.num_outputs(); ++o) {
    matrix.unpack_row(o, weights.data());
    double sum = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
      sum += weights[i] * x[i];
      size += std::fabs(weights[i]) * x_sizes[i];
    }
    found.sums.push_back(sum);
    found.sizes.push_back(size);
  }
  return found;
}

// What is added to a row, and how large the sums are that it comes from: an error of e in an
// activation is one of at most 2.2 e |gate| |up| in their product, as silu rises by 1.1 at most.
Product exact(const Case& c, const Layer& layer, int64_t row) {
  const std::vector<double> x(c.x.row(row), c.x.row(row) + kInputs);
  std::vector<double> x_sizes;
  for (const double value : x) x_sizes.push_back(std::fabs(value));
  const std::vector<double> none(static_cast<size_t>(kInputs));
  Product found{none, none};
  for (int64_t j = 0; j < c.num_choices; ++j) {
    const auto pair = static_cast<size_t>(row * c.num_choices + j);
    const Expert& expert = *layer.experts[static_cast<size_t>(c.ids[pair])];
    const Product gate = multiply(*expert.gate_up().parts()[0], x, x_sizes);
    Product inner = multiply(*expert.gate_up().parts()[1], x, x_sizes);
    for (size_t i = 0; i < inner.sums.size(); ++i) {
      inner.sums[i] *= gate.sums[i] / (1.0 + std::exp(-gate.sums[i]));
      inner.sizes[i] *= 2.2 * gate.sizes[i];
    }
    const Product down = multiply(*expert.down().parts()[0], inner.sums, inner.sizes);
    for (size_t i = 0; i < none.size(); ++i) {
      found.sums[i] += c.weights[pair] * down.sums[i];
      found.sizes[i] += c.weights[pair] * down.sizes[i];
    }
  }
  return found;
}

void check_close(const std::vector<float>& found, const Case& c, const Layer& layer, double bound) {
  for (int64_t row = 0; row < c.x.rows(); ++row) {
    const Product wanted = exact(c, layer, row);
    for (int64_t i = 0; i < kInputs; ++i) {
      const auto at = static_cast<size_t>(i);
      const double start = 0.25 * static_cast<double>(c.x.row(row)[i]);
      const double value = found[static_cast<size_t>(row * kInputs + i)];
      const double error = std::fabs(value - start - wanted.sums[at]);
      check(error <= bound * (1.0 + wanted.sizes[at]), "row " + std::to_string(row) + " is close");
    }
  }
}

void check_bits() {
  Random random(7);
  const std::vector<KernelTable> tables = variants();
  MoeStep step;  // one for all: its scratch grows and is used again
  for (const Numerics numerics : {Numerics::kDefault, Numerics::kFast, Numerics::kFloat}) {
    const Layer layer(random, numerics);
    for (const int64_t rows : {1, 5, 40, 0, 2}) {
      for (const int64_t choices : {1, 3}) {
        const Case c(random, rows, choices);
        g_kernels = &kScalar;
        coli::ThreadTeam::instance().resize(1);
        const std::vector<float> wanted = at_once(c, layer);
        // 8-bit activations step by 1/127 of a group's maximum, 16-bit ones by 2^-15 of it.
        const double bound = numerics == Numerics::kFast ? 1.0 / 127 : 0x1p-15;
        check_close(wanted, c, layer, bound);
        for (const int threads : {1, 2}) {
          coli::ThreadTeam::instance().resize(threads);
          g_kernels = &kScalar;
          check(in_parts(step, random, c, layer) == wanted, "scalar: parts have other bits");
          for (const KernelTable& table : tables) {
            g_kernels = &table;
            const std::string name = table.name;
            check(at_once(c, layer) == wanted, name + ": at once has other bits");
            check(in_parts(step, random, c, layer) == wanted, name + ": parts have other bits");
          }
        }
      }
    }
  }
  g_kernels = &kScalar;
  coli::ThreadTeam::instance().resize(1);
}

template <typename Error, typename Body>
void check_refused(const std::string& what, Body body) {
  bool is_refused = false;
  try {
    body();
  } catch (const Error&) {
    is_refused = true;
  }
  check(is_refused, what + " is refused");
}

void check_refusals() {
  Random random(9);
  const Layer layer(random, Numerics::kDefault);
  const Case c(random, 12, 2);
  const std::vector<float> wanted = at_once(c, layer);
  MoeStep step;
  begin(step, c, layer);
  const int32_t first = step.groups().front().expert;
  using Invalid = std::invalid_argument;
  check_refused<Invalid>("one that nobody chose", [&] { run(step, layer, {kExperts - 1}); });
  check_refused<Invalid>("a number below", [&] {
    const int32_t id = -1;
    const Expert* expert = layer.experts.front().get();
    step.run(&id, &expert, 1);
  });
  check_refused<Invalid>("one given twice", [&] { run(step, layer, {first, first}); });
  run(step, layer, {first});
  check_refused<Invalid>("one computed before", [&] { run(step, layer, {first}); });
  Rows out = start_of(c);
  check_refused<Invalid>("an end before all", [&] { step.end(out); });
  check(values(out) == values(start_of(c)), "a refused end leaves its target alone");
  Rows narrow(c.x.rows(), kInputs - 1);
  narrow.set_rows(c.x.rows());
  std::vector<int32_t> rest;
  for (const MoeStep::Group& group : step.groups()) {
    if (group.expert != first) rest.push_back(group.expert);
  }
  run(step, layer, rest);
  check_refused<Invalid>("a target of another width", [&] { step.end(narrow); });
  step.end(out);
  check(values(out) == wanted, "refusals change no bit");

  std::vector<int32_t> beyond = c.ids;
  beyond.front() = static_cast<int32_t>(kExperts);
  check_refused<std::out_of_range>("a choice that does not exist", [&] {
    const Expert& like = *layer.experts.front();
    step.begin(c.x, {beyond.data(), c.weights.data(), c.num_choices}, kExperts,
               {&like.gate_up(), nullptr}, like);
  });
  check_refused<Invalid>("a run of a step that has not begun", [&] { run(step, layer, {first}); });
  check(in_parts(step, random, c, layer) == wanted, "after a failed begin comes a good one");
}

}  // namespace

const coli::KernelTable& coli::kernels() { return *g_kernels; }

int main() {
  check_bits();
  check_refusals();
  return report();
}
