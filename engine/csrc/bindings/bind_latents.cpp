#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "ops/indexer/index_select.h"
#include "ops/linear/head_linear.h"
#include "ops/mla/latent_attention.h"
#include "ops/mla/selection.h"
#include "ops/sequence/rotate.h"

namespace nb = nanobind;

namespace coli {
namespace {

using Scales3 = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Positions = nb::ndarray<nb::numpy, int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::shared_ptr<HeadLinear> make_head_linear(std::vector<std::shared_ptr<Matrix>> heads,
                                             const std::optional<Scales3>& input_scales,
                                             int64_t scale_outputs, const std::string& numerics) {
  std::vector<float> scales;
  if (input_scales) {
    scales.assign(input_scales->data(), input_scales->data() + input_scales->size());
  }
  return std::make_shared<HeadLinear>(std::move(heads), std::move(scales), scale_outputs,
                                      parse_numerics(numerics));
}

// A copy: the selection is overwritten by the next step.
std::optional<Positions> positions_of(const Selection& selection, int64_t row) {
  require(row >= 0 && row < selection.rows(), "positions: the selection has no such row");
  const int32_t* from = selection.positions(row);
  if (from == nullptr) return std::nullopt;
  const auto count = static_cast<size_t>(selection.count(row, 0));
  auto* copy = new int32_t[count];
  std::copy(from, from + count, copy);
  const nb::capsule owner(copy, [](void* p) noexcept { delete[] static_cast<int32_t*>(p); });
  return Positions(copy, {count}, owner);
}

void bind_head_linear(nb::module_& m) {
  nb::class_<HeadLinear>(m, "HeadLinear", "A linear layer with one matrix per head.")
      .def(nb::new_(&make_head_linear), nb::arg("heads"),
           nb::arg("input_scales").noconvert().none() = nb::none(), nb::arg("scale_outputs") = 0,
           nb::arg("numerics") = "default")
      .def_prop_ro("num_heads", &HeadLinear::num_heads)
      .def_prop_ro("num_inputs", &HeadLinear::num_inputs, "Inputs of one head.")
      .def_prop_ro("num_outputs", &HeadLinear::num_outputs, "Outputs of one head.")
      .def_prop_ro("nbytes", &HeadLinear::nbytes);
  m.def(
      "head_linear",
      [](const Rows& x, const HeadLinear& layer, Rows& out, int64_t offset) {
        head_linear(x, offset, layer, out);
      },
      nb::arg("x"), nb::arg("layer"), nb::arg("out"), nb::arg("offset") = 0,
      nb::call_guard<nb::gil_scoped_release>(),
      "out (rows, heads * outputs): each head's product with its num_inputs columns of x (rows, "
      "heads * width) from `offset` within the head on. Raises ValueError.");
}

void bind_selection(nb::module_& m) {
  nb::class_<Selection>(m, "Selection", "Which cached positions each row of a step attends to.")
      .def(nb::init<int64_t, bool>(), nb::arg("topk"), nb::arg("always_lists") = false)
      .def_prop_ro("topk", &Selection::topk)
      .def_prop_ro("rows", &Selection::rows)
      .def_rw("fixed", &Selection::fixed, "While set, layers leave the choice as it is.")
      .def("reset", &Selection::reset, nb::arg("rows"), "Let so many rows take all positions.")
      .def("keep", &Selection::keep, nb::arg("rows"),
           "Keep some rows, in ascending order, as rows 0, 1, ... Raises ValueError.")
      .def("positions", &positions_of, nb::arg("row"),
           "The positions of a row, ascending, as a new int32 array; None where it takes all.");
  nb::class_<IndexHeads>(m, "IndexHeads", "Heads of an indexer: where their weights are, a scale.")
      .def(nb::init<int64_t, int64_t, float>(), nb::arg("num_heads"), nb::arg("weights_offset"),
           nb::arg("scale"));
  m.def("index_select", &index_select, nb::arg("q"), nb::arg("weights"), nb::arg("batch"),
        nb::arg("layer"), nb::arg("heads"), nb::arg("selection"),
        nb::call_guard<nb::gil_scoped_release>(),
        "Select for every row the topk positions up to its own with the largest scores, "
        "sum_h weight_h * relu(q_h . key). Raises ValueError.");
}

}  // namespace

void bind_latents(nb::module_& m) {
  bind_head_linear(m);
  bind_selection(m);
  nb::class_<LatentHeads>(m, "LatentHeads", "Query heads of latent attention, and a score scale.")
      .def(nb::init<int64_t, float>(), nb::arg("num_heads"), nb::arg("scale"));
  m.def("rotate", &rotate_columns, nb::arg("x"), nb::arg("batch"), nb::arg("rope"),
        nb::arg("offset"), nb::arg("num_heads"), nb::arg("stride"),
        nb::call_guard<nb::gil_scoped_release>(),
        "Rotate in place the rope's channels at columns offset + h * stride of every head h.");
  m.def("store_latents", &store_latents, nb::arg("x"), nb::arg("offset"), nb::arg("batch"),
        nb::arg("layer"), nb::call_guard<nb::gil_scoped_release>(),
        "Write latent_dim columns from `offset` on into the caches. Raises ValueError.");
  m.def("store_index_keys", &store_index_keys, nb::arg("x"), nb::arg("offset"), nb::arg("batch"),
        nb::arg("layer"), nb::call_guard<nb::gil_scoped_release>(),
        "Write index_dim columns from `offset` on into the caches. Raises ValueError.");
  m.def(
      "latent_attention", &latent_attention, nb::arg("absorbed"), nb::arg("q"), nb::arg("batch"),
      nb::arg("layer"), nb::arg("heads"), nb::arg("selection").none() = nb::none(),
      nb::call_guard<nb::gil_scoped_release>(),
      "Replace each head's absorbed query (rows, heads * value_dim) by the latents it attends to; "
      "the last channels of its head of q meet the rest of the latents. Raises ValueError.");
}

}  // namespace coli
