#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "core/kv_rows.h"
#include "ops/sconv/short_conv.h"
#include "ops/sequence/sequence.h"

namespace nb = nanobind;

namespace coli {
namespace {

using Vector1 = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix2 = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void bind_attention(nb::module_& m) {
  nb::class_<AttentionOptions>(
      m, "AttentionOptions", "What a layer has beyond plain causal attention; all of it optional.")
      .def(
          "__init__",
          [](AttentionOptions* self, int64_t window, const std::optional<Vector1>& sinks,
             const std::optional<Matrix2>& profiles, double log_floor, double log_alpha) {
            std::vector<float> values;
            if (sinks) values.assign(sinks->data(), sinks->data() + sinks->size());
            RelativeProfiles bank{};
            if (profiles) {
              bank = {profiles->data(), static_cast<int64_t>(profiles->shape(0)),
                      static_cast<int64_t>(profiles->shape(1))};
            }
            new (self)
                AttentionOptions(window, std::move(values), bank, LogScaling{log_floor, log_alpha});
          },
          nb::kw_only(), nb::arg("window") = 0, nb::arg("sinks").noconvert().none() = nb::none(),
          nb::arg("profiles").noconvert().none() = nb::none(), nb::arg("log_floor") = 0.0,
          nb::arg("log_alpha") = 0.0,
          "window: how many keys are seen, the query's own included; 0 for all. sinks (heads,): a "
          "score whose key has no value. profiles (P, extent): biases by distance, mixed by P "
          "weights per head that follow k and v in a row. log_floor: queries are scaled by "
          "1 + log_alpha ln((position + 1) / log_floor) beyond it. Raises ValueError.");
  m.def("store_kv", &store_kv, nb::arg("rows"), nb::arg("batch"), nb::arg("layer"),
        nb::arg("offset"), nb::call_guard<nb::gil_scoped_release>(),
        "Write k and v, side by side from column `offset` on, into the caches. Raises ValueError.");
  m.def(
      "attention",
      [](const Rows& qkv, const Batch& batch, int64_t layer, int64_t num_heads, float scale,
         Rows& out, const AttentionOptions* options) {
        attention(qkv, batch, {layer, num_heads, scale, options}, out);
      },
      nb::arg("qkv"), nb::arg("batch"), nb::arg("layer"), nb::arg("num_heads"), nb::arg("scale"),
      nb::arg("out"), nb::arg("options").none() = nb::none(),
      nb::call_guard<nb::gil_scoped_release>(),
      "out (rows, num_heads * head_dim) = causal attention of qkv's queries. Raises ValueError.");
}

}  // namespace

namespace {

void bind_layout(nb::module_& m) {
  nb::class_<LayerLayout>(m, "LayerLayout", "What one layer keeps of the past; 0: none of a kind.")
      .def(
          "__init__",
          [](LayerLayout* self, int64_t num_kv_heads, int64_t head_dim, int64_t latent_dim,
             int64_t index_dim, int64_t state_dim) {
            new (self) LayerLayout{num_kv_heads, head_dim, latent_dim, index_dim, state_dim};
          },
          nb::kw_only(), nb::arg("num_kv_heads") = 0, nb::arg("head_dim") = 0,
          nb::arg("latent_dim") = 0, nb::arg("index_dim") = 0, nb::arg("state_dim") = 0)
      .def_ro("num_kv_heads", &LayerLayout::num_kv_heads)
      .def_ro("head_dim", &LayerLayout::head_dim)
      .def_ro("latent_dim", &LayerLayout::latent_dim, "Floats per position of latent attention.")
      .def_ro("index_dim", &LayerLayout::index_dim, "Floats per position of an indexer's key.")
      .def_ro("state_dim", &LayerLayout::state_dim, "Floats of recurrent state.");
}

using StateOut = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
// Rows may lie inside wider records, so only their own numbers must be side by side.
using RowsIn = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;
using RowsOut = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;

template <typename Array>
int64_t row_stride(const Array& rows, int64_t dim) {
  if (static_cast<int64_t>(rows.shape(1)) != dim || rows.stride(1) != 1 || rows.stride(0) < dim) {
    throw std::invalid_argument("rows must have " + std::to_string(dim) + " floats side by side");
  }
  return rows.stride(0);
}

KvType kv_type(const std::string& dtype) {
  if (dtype == "f32") return KvType::kF32;
  if (dtype == "bf16") return KvType::kBf16;
  throw std::invalid_argument("rows are kept as f32 or bf16, not " + dtype);
}

void check_state_size(size_t size, int64_t dim) {
  if (static_cast<int64_t>(size) != dim) {
    throw std::invalid_argument("a state has " + std::to_string(dim) + " floats");
  }
}

void bind_rows(nb::class_<KvCache>& cache, nb::module_& m) {
  cache
      .def_prop_ro(
          "layouts",
          [](const KvCache& self) {
            std::vector<LayerLayout> layouts;
            for (int64_t i = 0; i < self.num_layers(); ++i) layouts.push_back(self.layout(i));
            return layouts;
          },
          "What each layer keeps.")
      .def_prop_ro("row_dim", &KvCache::row_dim, "Floats of one position, all layers.")
      .def_prop_ro("state_dim", &KvCache::state_dim, "Floats of recurrent state, all layers.")
      .def(
          "append_rows",
          [](KvCache& self, const RowsIn& rows) {
            const int64_t stride = row_stride(rows, self.row_dim());
            const auto count = static_cast<int64_t>(rows.shape(0));
            const nb::gil_scoped_release unlocked;
            self.append_rows(rows.data(), count, stride);
          },
          nb::arg("rows").noconvert(),
          "Append positions from rows (n, row_dim) float32 as KvReader gives them, rounded to the "
          "cache's dtype. With recurrent state, put_state follows. Raises ValueError, or "
          "MemoryError with nothing changed.")
      .def(
          "put_state",
          [](KvCache& self, int64_t length, const Vector1& state) {
            check_state_size(state.size(), self.state_dim());
            self.put_state(length, state.data());
          },
          nb::arg("length"), nb::arg("state").noconvert(),
          "Declare the recurrent state (state_dim,) of a length, which becomes restorable. "
          "Raises ValueError.");
  nb::class_<KvReader>(m, "KvReader",
                       "What a cache holds now, for any thread while its owner appends; rows are "
                       "not to be read once the owner has truncated below them.")
      .def(
          "__init__",
          [](KvReader* self, std::shared_ptr<KvCache> cache) {
            new (self) KvReader(std::move(cache));
          },
          nb::arg("cache"))
      .def_prop_ro("length", &KvReader::length, "Positions.")
      .def_prop_ro("row_dim", &KvReader::row_dim, "Floats of one position, all layers.")
      .def_prop_ro("state_dim", &KvReader::state_dim, "Floats of recurrent state, all layers.")
      .def_prop_ro("state_lengths", &KvReader::state_lengths,
                   "Lengths whose recurrent state is known, ascending.")
      .def(
          "read_rows",
          [](const KvReader& self, int64_t begin, const RowsOut& out) {
            const int64_t stride = row_stride(out, self.row_dim());
            const auto count = static_cast<int64_t>(out.shape(0));
            const nb::gil_scoped_release unlocked;
            self.read_rows(begin, count, out.data(), stride);
          },
          nb::arg("begin"), nb::arg("out").noconvert(),
          "Fill out (n, row_dim) float32 with rows from position `begin` on: layer by layer keys "
          "of all heads, values, latent, index key, each exactly. Raises ValueError.")
      .def(
          "read_state",
          [](const KvReader& self, int64_t length, const StateOut& out) {
            check_state_size(out.size(), self.state_dim());
            self.read_state(length, out.data());
          },
          nb::arg("length"), nb::arg("out").noconvert(),
          "Fill out (state_dim,) with the recurrent state of a length. Raises ValueError.");
}

void bind_short_conv(nb::module_& m) {
  nb::class_<ShortConv>(m, "ShortConv", "A causal convolution of a few taps for each channel.")
      .def(
          "__init__",
          [](ShortConv* self, const Matrix2& weights, int64_t column, int64_t state_offset) {
            new (self) ShortConv(weights.data(), static_cast<int64_t>(weights.shape(0)),
                                 static_cast<int64_t>(weights.shape(1)), {column, state_offset});
          },
          nb::arg("weights").noconvert(), nb::kw_only(), nb::arg("column") = 0,
          nb::arg("state_offset") = 0,
          "weights (channels, taps) float32, the current input's last. column: of the first "
          "channel "
          "in a row. state_offset: of its earlier inputs in the layer's state. Raises ValueError.")
      .def_prop_ro("state_dim", &ShortConv::state_dim, "Floats of state it needs.");
  m.def(
      "short_conv", &short_conv, nb::arg("x"), nb::arg("conv"), nb::arg("batch"), nb::arg("layer"),
      nb::arg("residual").none() = nb::none(), nb::call_guard<nb::gil_scoped_release>(),
      "Add to the channels of x their convolution, in place; with `residual` (rows, channels) add "
      "both to that and leave x. Raises ValueError.");
}

}  // namespace

void bind_sequences(nb::module_& m) {
  bind_layout(m);
  nb::class_<KvCache> cache(m, "KvCache", "The past of one sequence, all layers.");
  cache
      .def(
          "__init__",
          [](KvCache* self, std::vector<LayerLayout> layers, const std::string& dtype) {
            new (self) KvCache(std::move(layers), kv_type(dtype));
          },
          nb::arg("layers"), nb::arg("dtype") = "f32",
          "dtype: what keys, values, latents and index keys are kept as, \"f32\" or \"bf16\" "
          "(rounded as they are written). Raises ValueError.")
      .def_prop_ro("dtype",
                   [](const KvCache& self) { return self.type() == KvType::kF32 ? "f32" : "bf16"; })
      .def_prop_ro("length", &KvCache::length, "Positions written.")
      .def_prop_ro("capacity", &KvCache::capacity, "Positions that fit without growing.")
      .def_prop_ro("nbytes", &KvCache::nbytes)
      .def_prop_ro("has_state", &KvCache::has_state,
                   "Whether there is recurrent state, which belongs to one length.")
      .def("reserve", &KvCache::reserve, nb::arg("positions"),
           "Make room. Raises MemoryError, keeping what is there.")
      .def("restorable", &KvCache::restorable, nb::arg("length"),
           "The largest length up to `length` that truncate and copy_prefix accept: itself, unless "
           "there is recurrent state, which is known at the current length, at snapshots and at 0.")
      .def("snapshot", &KvCache::snapshot,
           "Keep the recurrent state, if any, so that this length stays restorable.")
      .def("truncate", &KvCache::truncate, nb::arg("length"),
           "Forget positions from `length` on. Raises ValueError where that is not restorable.")
      .def("copy_prefix", &KvCache::copy_prefix, nb::arg("other"), nb::arg("length"),
           "Become a copy of the first positions, a restorable length, of a cache of the same "
           "layers.");
  bind_rows(cache, m);
  nb::class_<Batch>(m, "Batch", "Which sequence and position each row of a step belongs to.")
      .def(nb::init<>())
      .def(
          "set",
          [](Batch& batch,
             std::vector<std::tuple<std::shared_ptr<KvCache>, int64_t, int64_t>> segments) {
            std::vector<Batch::Segment> list;
            list.reserve(segments.size());
            int64_t row = 0;
            for (auto& [cache, start, rows] : segments) {
              list.push_back({std::move(cache), start, rows, row});
              row += rows;
            }
            batch.set(std::move(list));
          },
          nb::arg("segments"),
          "Take segments (cache, start position, rows) and reserve their room. "
          "Raises ValueError, MemoryError.")
      .def("commit", &Batch::commit, "Declare the rows of every segment written.")
      .def_prop_ro("rows", &Batch::num_rows)
      .def_prop_ro("end_position", &Batch::end_position, "One past the last position of any row.");
  nb::class_<Rope>(m, "Rope", "Rotary embedding; interleaved rotates (2j, 2j+1), else (j, j+d/2).")
      .def(nb::init<int64_t, std::vector<double>, double, bool>(), nb::arg("rotated"),
           nb::arg("inv_freq"), nb::arg("scale") = 1.0, nb::arg("interleaved") = false);
  m.def("rope_store", &rope_store, nb::arg("qkv"), nb::arg("batch"), nb::arg("layer"),
        nb::arg("rope"), nb::arg("num_heads"), nb::call_guard<nb::gil_scoped_release>(),
        "Rotate q and k of qkv (rows, q + k + v) in place; write k and v into the caches.");
  bind_attention(m);
  bind_short_conv(m);
}

}  // namespace coli
