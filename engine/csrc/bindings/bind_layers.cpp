#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "ops/linear/linear.h"
#include "ops/moe/moe.h"
#include "ops/moe/moe_step.h"
#include "ops/moe/topk.h"

namespace nb = nanobind;

namespace coli {

Numerics parse_numerics(const std::string& name) {
  if (name == "default") return Numerics::kDefault;
  if (name == "fast") return Numerics::kFast;
  require(name == "float", "numerics must be default, fast or float");
  return Numerics::kFloat;
}

namespace {

using Vector1 = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Scoring parse_scoring(const std::string& name) {
  if (name == "sigmoid") return Scoring::kSigmoid;
  if (name == "softmax") return Scoring::kSoftmax;
  require(name == "top_softmax", "scoring must be sigmoid, softmax or top_softmax");
  return Scoring::kTopSoftmax;
}

std::vector<float> values_of(const std::optional<Vector1>& array) {
  if (!array) return {};
  return std::vector<float>(array->data(), array->data() + array->size());
}

struct Router {
  RouterRule rule;
  std::vector<float> bias;
  std::vector<int64_t> counts;  // selections of each expert since the start
};

// Where route() writes and moe() reads; grows to the largest step.
struct ChoiceBuffer {
  std::vector<int32_t> ids;
  std::vector<float> weights;
  int64_t rows = 0;
  int64_t num_choices = 0;
};

template <typename T>
auto choice_view(nb::handle self, std::vector<T> ChoiceBuffer::* member) {
  ChoiceBuffer& buffer = nb::cast<ChoiceBuffer&>(self);
  return nb::ndarray<nb::numpy, T, nb::ndim<2>, nb::c_contig, nb::device::cpu>(
      (buffer.*member).data(),
      {static_cast<size_t>(buffer.rows), static_cast<size_t>(buffer.num_choices)}, self);
}

void run_route(const Rows& logits, Router& router, ChoiceBuffer& out) {
  check_rule(router.rule, logits.width());
  require(router.bias.empty() ||
              static_cast<int64_t>(router.bias.size()) == logits.width() - router.rule.num_shared,
          "the router's bias and the logits differ in width");
  if (router.counts.empty()) router.counts.resize(static_cast<size_t>(logits.width()));
  require(static_cast<int64_t>(router.counts.size()) == logits.width(),
          "the router was used with another number of experts");
  out.rows = logits.rows();
  out.num_choices = router.rule.row_size();
  const auto size = static_cast<size_t>(out.rows * out.num_choices);
  if (out.ids.size() < size) {
    out.ids.resize(size);
    out.weights.resize(size);
  }
  route(logits, router.bias.empty() ? nullptr : router.bias.data(), router.rule, out.ids.data(),
        out.weights.data());
  for (size_t i = 0; i < size; ++i) ++router.counts[static_cast<size_t>(out.ids[i])];
}

void bind_router(nb::module_& m) {
  nb::class_<Router>(m, "Router", "How a row's experts follow from its router logits.")
      .def(
          "__init__",
          [](Router* self, int64_t num_choices, const std::string& scoring, bool normalize,
             float scale, const std::optional<Vector1>& bias, int64_t num_groups,
             int64_t kept_groups, int64_t num_shared) {
            new (self) Router{{parse_scoring(scoring), num_choices, normalize, scale, num_groups,
                               kept_groups, num_shared},
                              values_of(bias),
                              {}};
          },
          nb::arg("num_choices"), nb::kw_only(), nb::arg("scoring"), nb::arg("normalize"),
          nb::arg("scale"), nb::arg("bias").noconvert().none(), nb::arg("num_groups") = 1,
          nb::arg("kept_groups") = 1, nb::arg("num_shared") = 0,
          "scoring: sigmoid; softmax over all experts; or top_softmax, where logits choose and the "
          "weights are the softmax over the chosen. num_shared: the last experts, which every row "
          "takes besides those it chooses, all weighed together.")
      .def_prop_ro(
          "num_choices", [](const Router& self) { return self.rule.num_choices; },
          "Experts a row chooses, the shared ones not counted.")
      .def(
          "ranking",
          [](const Router& self, int64_t num_choices, int64_t num_experts) {
            Router found{self.rule, self.bias, {}};
            const int64_t most = num_experts / self.rule.num_groups * self.rule.kept_groups;
            found.rule.num_choices = std::min(num_choices, most);
            return found;
          },
          nb::arg("num_choices"), nb::arg("num_experts"),
          "A router that chooses more or fewer of num_experts experts, as far as it may, in the "
          "same order, counting for itself.")
      .def_prop_ro(
          "counts",
          [](nb::handle self) {
            Router& router = nb::cast<Router&>(self);
            return nb::ndarray<nb::numpy, int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>(
                router.counts.data(), {router.counts.size()}, self);
          },
          "How often each expert was chosen; empty before the first route().");
  nb::class_<ChoiceBuffer>(m, "Choices", "Experts chosen for each row, and their weights.")
      .def(nb::init<>())
      .def_prop_ro(
          "ids", [](nb::handle self) { return choice_view(self, &ChoiceBuffer::ids); },
          "(rows, num_choices + num_shared) int32, best first, then the shared; a view until the "
          "next "
          "route().")
      .def_prop_ro(
          "weights", [](nb::handle self) { return choice_view(self, &ChoiceBuffer::weights); },
          "(rows, num_choices + num_shared) float32; a view until the next route().");
  m.def("route", &run_route, nb::arg("logits"), nb::arg("router"), nb::arg("out"),
        nb::call_guard<nb::gil_scoped_release>(),
        "Choose experts for every row of logits (rows, experts). Raises ValueError.");
}

// What a step wants of its input when all experts of the layer are of one form.
StepInputs inputs_of(const Expert& like) {
  const Linear* gate_up = &like.gate_up();
  return gate_up->rotation() == nullptr ? StepInputs{gate_up, nullptr}
                                        : StepInputs{nullptr, gate_up};
}

void bind_step(nb::module_& m) {
  nb::class_<MoeStep>(m, "MoeStep", "A mixture in parts; see moe(), whose bits it gives.")
      .def(nb::init<>())
      .def(
          "begin",
          [](MoeStep& self, const Rows& x, const ChoiceBuffer& choices, int64_t num_experts,
             const Expert& like) {
            require(choices.rows == x.rows(), "moe: the choices and x differ in rows");
            self.begin(x, {choices.ids.data(), choices.weights.data(), choices.num_choices},
                       num_experts, inputs_of(like), like);
          },
          nb::arg("x"), nb::arg("choices"), nb::arg("num_experts"), nb::arg("like"),
          nb::call_guard<nb::gil_scoped_release>(),
          "Group the rows by expert. x stays as it is until the last run(); `like` is any expert "
          "of the layer. Raises ValueError, IndexError.")
      .def_prop_ro(
          "ids",
          [](const MoeStep& self) {
            std::vector<int32_t> ids;
            for (const MoeStep::Group& group : self.groups()) ids.push_back(group.expert);
            return ids;
          },
          "The experts that rows chose, ascending.")
      .def(
          "run",
          [](MoeStep& self, const std::vector<int32_t>& ids,
             const std::vector<std::shared_ptr<Expert>>& experts) {
            require(ids.size() == experts.size(), "moe: ids and experts differ in number");
            std::vector<const Expert*> plain;
            for (const auto& expert : experts) {
              require(expert != nullptr, "moe: an expert is missing");
              plain.push_back(expert.get());
            }
            self.run(ids.data(), plain.data(), static_cast<int64_t>(ids.size()));
          },
          nb::arg("ids"), nb::arg("experts"), nb::call_guard<nb::gil_scoped_release>(),
          "Compute some of the chosen experts, in any order. Raises ValueError for one that nobody "
          "chose or that was computed before.")
      .def("end", &MoeStep::end, nb::arg("out"), nb::call_guard<nb::gil_scoped_release>(),
           "out += weighted sum of each row's experts. Raises ValueError when one is missing.");
}

}  // namespace

void bind_layers(nb::module_& m) {
  nb::class_<Linear>(m, "Linear", "One or more matrices over the same inputs, outputs joined.")
      .def(
          "__init__",
          [](Linear* self, std::vector<std::shared_ptr<Matrix>> parts,
             const std::optional<Vector1>& bias, const std::string& numerics) {
            new (self) Linear(std::move(parts), values_of(bias), parse_numerics(numerics));
          },
          nb::arg("parts"), nb::arg("bias").noconvert().none() = nb::none(),
          nb::arg("numerics") = "default")
      .def_prop_ro("num_inputs", &Linear::num_inputs)
      .def_prop_ro("num_outputs", &Linear::num_outputs)
      .def_prop_ro("nbytes", &Linear::nbytes);
  m.def("linear", &linear, nb::arg("x"), nb::arg("layer"), nb::arg("out"), nb::arg("add") = false,
        nb::call_guard<nb::gil_scoped_release>(),
        "out (rows, outputs) = x W^T + bias, added to out with `add`. Raises ValueError.");
  nb::class_<Expert>(m, "Expert", "A gated feed-forward block: down(silu(gate x) * up x).")
      .def(
          "__init__",
          [](Expert* self, std::shared_ptr<Linear> gate_up, std::shared_ptr<Linear> down,
             const std::optional<std::tuple<float, float>>& clamp) {
            std::optional<SwigluClamp> pair;
            if (clamp) pair = SwigluClamp{std::get<0>(*clamp), std::get<1>(*clamp)};
            new (self) Expert(std::move(gate_up), std::move(down), pair);
          },
          nb::arg("gate_up"), nb::arg("down"), nb::arg("clamp").none() = nb::none(),
          "clamp (limit, alpha): g = min(gate x, limit) and u = up x within +-limit give "
          "down((u + 1) * g * sigmoid(alpha g)). Raises ValueError.");
  m.def("mlp", &mlp, nb::arg("x"), nb::arg("expert"), nb::arg("out"), nb::arg("add") = true,
        nb::call_guard<nb::gil_scoped_release>(),
        "out = expert(x), added to out with `add`. Raises ValueError.");
  nb::class_<ExpertTable>(m, "ExpertTable", "The experts of one layer, all of one shape.")
      .def(nb::init<std::vector<std::shared_ptr<Expert>>>(), nb::arg("experts"))
      .def("__len__", &ExpertTable::size);
  bind_router(m);
  bind_step(m);
  m.def(
      "moe",
      [](const Rows& x, const ExpertTable& experts, const ChoiceBuffer& choices, Rows& out) {
        require(choices.rows == x.rows(), "moe: the choices and x differ in rows");
        moe(x, experts, {choices.ids.data(), choices.weights.data(), choices.num_choices}, out);
      },
      nb::arg("x"), nb::arg("experts"), nb::arg("choices"), nb::arg("out"),
      nb::call_guard<nb::gil_scoped_release>(),
      "out += weighted sum of each row's chosen experts. Raises ValueError, IndexError.");
}

}  // namespace coli
