#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "core/rows.h"
#include "core/weights.h"
#include "ops/elementwise/elementwise.h"
#include "ops/norm/layer_norm.h"

namespace nb = nanobind;

namespace coli {
namespace {

using AnyMatrix = nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Codes = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Scales = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Vector1 = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OwnedBytes = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Values2 = nb::ndarray<nb::numpy, float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

bool is_f16(const AnyMatrix& a) {
  return a.dtype() == nb::dlpack::dtype{static_cast<uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
}

int64_t dim(const AnyMatrix& a, size_t i) { return static_cast<int64_t>(a.shape(i)); }

bool is_u8(const AnyMatrix& a) { return a.dtype() == nb::dtype<uint8_t>(); }

ScaleType scale_type_of(const AnyMatrix& a) {
  if (is_u8(a)) return ScaleType::kE8m0;
  return is_f16(a) ? ScaleType::kF16 : ScaleType::kF32;
}

ScaleType scale_type_of(int scale_bytes) {
  require(scale_bytes == 1 || scale_bytes == 2 || scale_bytes == 4, "scales take 1, 2 or 4 bytes");
  if (scale_bytes == 1) return ScaleType::kE8m0;
  return scale_bytes == 2 ? ScaleType::kF16 : ScaleType::kF32;
}

// The table of levels, null without one; it lives as long as `levels`.
const uint8_t* levels_of(const std::optional<nb::bytes>& levels) {
  if (!levels) return nullptr;
  require(levels->size() == static_cast<size_t>(kLevels), "levels must be 16 bytes");
  return static_cast<const uint8_t*>(levels->data());
}

void check_groups(const AnyMatrix& values, const AnyMatrix& scales, int64_t rows, int64_t groups) {
  require(dim(values, 0) == rows && dim(values, 1) == groups,
          "scales and mins must be (outputs, ceil(inputs / group))");
  require(values.dtype() == scales.dtype(), "scales and mins differ in type");
  require(is_u8(values) || is_f16(values) || values.dtype() == nb::dtype<float>(),
          "scales and mins must be float16 or float32, or scales uint8");
}

// How many groups a row has; a group may be as large as a number gets.
int64_t count_groups(int64_t inputs, int64_t group) {
  return inputs / group + (inputs % group != 0 ? 1 : 0);
}

std::shared_ptr<Matrix> from_codes(const Codes& codes, const AnyMatrix& scales,
                                   std::optional<int> zero, const std::optional<AnyMatrix>& mins,
                                   int bits, int64_t group, bool rotated,
                                   const std::optional<nb::bytes>& levels) {
  require(group >= 1, "group must be positive");
  require(zero.has_value() != mins.has_value(), "give either a zero point or mins");
  const auto rows = static_cast<int64_t>(codes.shape(0));
  const auto inputs = static_cast<int64_t>(codes.shape(1));
  const int64_t groups = count_groups(inputs, group);
  check_groups(scales, scales, rows, groups);
  if (mins) check_groups(*mins, scales, rows, groups);
  const CodesSource source{codes.data(),
                           scales.data(),
                           mins ? mins->data() : nullptr,
                           levels_of(levels),
                           rows,
                           inputs,
                           group,
                           bits,
                           zero.value_or(0),
                           scale_type_of(scales),
                           rotated};
  nb::gil_scoped_release release;
  return Matrix::pack_codes(source);
}

// What the caller says of packed bytes; it lives as long as they and `levels`.
PackedSource packed_source(std::pair<int64_t, int64_t> shape, std::optional<int> zero, int bits,
                           int64_t group, int scale_bytes, bool rotated,
                           const std::optional<nb::bytes>& levels, bool fp8) {
  return {nullptr, 0,    levels_of(levels), shape.first,       shape.second,
          group,   bits, zero.value_or(0),  !zero.has_value(), scale_type_of(scale_bytes),
          rotated, fp8};
}

std::shared_ptr<Matrix> from_packed(const Bytes& packed, std::pair<int64_t, int64_t> shape,
                                    std::optional<int> zero, int bits, int64_t group,
                                    int scale_bytes, bool rotated,
                                    const std::optional<nb::bytes>& levels, bool fp8) {
  PackedSource source = packed_source(shape, zero, bits, group, scale_bytes, rotated, levels, fp8);
  source.bytes = packed.data();
  source.size = packed.size();
  nb::gil_scoped_release release;
  return Matrix::copy_packed(source);
}

std::shared_ptr<Matrix> view_packed(const ArenaHandle& arena, int64_t slot, int64_t offset,
                                    std::pair<int64_t, int64_t> shape, std::optional<int> zero,
                                    int bits, int64_t group, int scale_bytes, bool rotated,
                                    const std::optional<nb::bytes>& levels, bool fp8) {
  const uint8_t* const bytes = arena.slots->slot(slot);
  require(offset >= 0 && static_cast<size_t>(offset) <= arena.slots->slot_bytes(),
          "offset is outside the slot");
  PackedSource source = packed_source(shape, zero, bits, group, scale_bytes, rotated, levels, fp8);
  source.bytes = bytes + offset;
  source.size = arena.slots->slot_bytes() - static_cast<size_t>(offset);
  return Matrix::view_packed(source, arena.slots);
}

OwnedBytes packed(const Matrix& matrix) {
  auto* bytes = new uint8_t[matrix.nbytes()];
  const nb::capsule owner(bytes, [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
  std::memcpy(bytes, matrix.bytes(), matrix.nbytes());
  return OwnedBytes(bytes, {matrix.nbytes()}, owner);
}

std::shared_ptr<Matrix> from_float(const AnyMatrix& array, bool bf16) {
  FloatKind kind = FloatKind::kF32;
  if (bf16) {
    require(array.dtype() == nb::dtype<uint16_t>(), "bf16 weights come as uint16");
    kind = FloatKind::kBf16;
  } else if (is_f16(array)) {
    kind = FloatKind::kF16;
  } else {
    require(array.dtype() == nb::dtype<float>(), "weights must be float32, float16 or bf16");
  }
  const FloatSource source{array.data(), dim(array, 0), dim(array, 1), kind};
  nb::gil_scoped_release release;
  return Matrix::pack_float(source);
}

std::shared_ptr<Matrix> from_fp8(const Codes& codes, const Scales& scales, int64_t group) {
  require(group >= 1, "group must be positive");
  const auto rows = static_cast<int64_t>(codes.shape(0));
  const auto inputs = static_cast<int64_t>(codes.shape(1));
  require(scales.shape(0) == codes.shape(0) &&
              static_cast<int64_t>(scales.shape(1)) == count_groups(inputs, group),
          "scales must be (outputs, ceil(inputs / group))");
  const Fp8Source source{codes.data(), scales.data(), rows, inputs, group};
  nb::gil_scoped_release release;
  return Matrix::pack_fp8(source);
}

// The exact values of rows [first, first + count) as a new array.
Values2 unpack(const Matrix& matrix, int64_t first, std::optional<int64_t> count) {
  require(first >= 0 && first <= matrix.num_outputs(), "unpack: rows outside the matrix");
  const int64_t rows = count.value_or(matrix.num_outputs() - first);
  require(rows >= 0 && rows <= matrix.num_outputs() - first, "unpack: rows outside the matrix");
  const auto size = static_cast<size_t>(rows * matrix.num_inputs());
  auto* values = new float[size == 0 ? 1 : size];
  const nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  for (int64_t r = 0; r < rows; ++r) {
    matrix.unpack_row(first + r, values + r * matrix.num_inputs());
  }
  return Values2(values, {static_cast<size_t>(rows), static_cast<size_t>(matrix.num_inputs())},
                 owner);
}

// A vector that operators read at every step without looking at a Python array again.
struct Vector {
  std::vector<float> values;
};

void check_norm(const Vector& weight, int64_t width) {
  require(static_cast<int64_t>(weight.values.size()) == width,
          "the norm's weight and the rows differ in width");
}

void bind_rows(nb::module_& m) {
  nb::class_<Rows>(m, "Rows", "A (capacity, width) float32 matrix; the first `rows` are in use.")
      .def(nb::init<int64_t, int64_t>(), nb::arg("capacity"), nb::arg("width"))
      .def_prop_ro("capacity", &Rows::capacity)
      .def_prop_ro("width", &Rows::width)
      .def_prop_rw("rows", &Rows::rows, &Rows::set_rows)
      .def_prop_ro(
          "array",
          [](nb::handle self) {
            Rows& rows = nb::cast<Rows&>(self);
            return Values2(rows.data(),
                           {static_cast<size_t>(rows.rows()), static_cast<size_t>(rows.width())},
                           self);
          },
          "The rows in use as a (rows, width) array; a view, valid while these rows live.");
  nb::class_<Vector>(m, "Vector", "A float32 vector: norm weights.")
      .def(
          "__init__",
          [](Vector* self, const Vector1& values) {
            new (self) Vector{std::vector<float>(values.data(), values.data() + values.size())};
          },
          nb::arg("values").noconvert())
      .def("__len__", [](const Vector& v) { return v.values.size(); })
      .def_prop_ro(
          "array",
          [](nb::handle self) {
            const Vector& v = nb::cast<const Vector&>(self);
            return nb::ndarray<nb::numpy, const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>(
                v.values.data(), {v.values.size()}, self);
          },
          "The values, (n,) float32; a view that cannot be written.");
}

void bind_matrix(nb::module_& m) {
  nb::class_<Matrix>(m, "Matrix",
                     "Packed weights, [outputs, inputs]; immutable but for views of a slot.")
      .def_static("from_codes", &from_codes, nb::arg("codes").noconvert(),
                  nb::arg("scales").noconvert(), nb::arg("zero").none(),
                  nb::arg("mins").noconvert().none(), nb::kw_only(), nb::arg("bits"),
                  nb::arg("group"), nb::arg("rotated") = false, nb::arg("levels") = nb::none(),
                  "Pack codes (O, I) uint8 with scales and, instead of a zero point, mins "
                  "(O, ceil(I / group)) float16 or float32. Layers over a `rotated` matrix rotate "
                  "their input. 4-bit codes may number 16 `levels`, bytes that stand in for them; "
                  "then scales may be uint8, s for 2^(s - 128). Raises ValueError.")
      .def_static("from_packed", &from_packed, nb::arg("packed").noconvert(), nb::arg("shape"),
                  nb::arg("zero").none(), nb::kw_only(), nb::arg("bits"), nb::arg("group"),
                  nb::arg("scale_bytes"), nb::arg("rotated") = false,
                  nb::arg("levels") = nb::none(), nb::arg("fp8") = false,
                  "Take a copy of packed bytes (see `packed()`) of an (outputs, inputs) matrix; "
                  "without a zero point they hold mins. Codes are E4M3 with `fp8`, which wants "
                  "bits 8, zero 0 and scale_bytes 4. Raises ValueError.")
      .def_static(
          "view_packed", &view_packed, nb::arg("arena"), nb::arg("slot"), nb::arg("offset"),
          nb::arg("shape"), nb::arg("zero").none(), nb::kw_only(), nb::arg("bits"),
          nb::arg("group"), nb::arg("scale_bytes"), nb::arg("rotated") = false,
          nb::arg("levels") = nb::none(), nb::arg("fp8") = false,
          "Look at packed bytes in a slot, from `offset` (a multiple of 64) on, as "
          "from_packed would copy them. What is read into the slot later is the matrix then. "
          "Raises ValueError, IndexError.")
      .def_static("from_float", &from_float, nb::arg("array").noconvert(), nb::kw_only(),
                  nb::arg("bf16") = false,
                  "Pack (O, I) float32 or float16, or bfloat16 bits as uint16. "
                  "Raises ValueError.")
      .def_static("from_fp8", &from_fp8, nb::arg("codes").noconvert(),
                  nb::arg("scales").noconvert(), nb::kw_only(), nb::arg("group"),
                  "Pack E4M3 codes (O, I) uint8, none of them a NaN, with scales "
                  "(O, ceil(I / group)) float32 from 0 to 2^110. Raises ValueError.")
      .def_prop_ro("num_outputs", &Matrix::num_outputs)
      .def_prop_ro("num_inputs", &Matrix::num_inputs)
      .def_prop_ro("kind", &Matrix::kind)
      .def_prop_ro("nbytes", &Matrix::nbytes)
      .def_prop_ro("rotated", [](const Matrix& m) { return m.rotation() != nullptr; })
      .def("has_finite_scales", &Matrix::has_finite_scales,
           nb::call_guard<nb::gil_scoped_release>(),
           "Whether every scale and minimum, and every E4M3 code, is a number.")
      .def("packed", &packed,
           "The packed bytes as a new (nbytes,) uint8 array: codes, scales, mins.")
      .def("unpack", &unpack, nb::arg("first") = 0, nb::arg("count") = nb::none(),
           "The float32 values of some rows (all by default), as a new array: exact, or where the "
           "matrix is rotated those of the plain one.");
}

}  // namespace

void bind_tensors(nb::module_& m) {
  bind_rows(m);
  bind_matrix(m);
  m.def(
      "rms_norm",
      [](const Rows& x, const Vector& weight, float eps, Rows& out) {
        check_norm(weight, x.width());
        rms_norm(x, weight.values.data(), eps, out);
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("eps"), nb::arg("out"),
      nb::call_guard<nb::gil_scoped_release>(),
      "out (rows, width) = x / rms(x) * weight; x and out may be the same rows.");
  m.def(
      "rms_norm_heads",
      [](Rows& x, int64_t offset, int64_t num_heads, const Vector& weight, float eps) {
        rms_norm_heads(x, offset, num_heads, static_cast<int64_t>(weight.values.size()),
                       weight.values.data(), eps);
      },
      nb::arg("x"), nb::arg("offset"), nb::arg("num_heads"), nb::arg("weight"), nb::arg("eps"),
      nb::call_guard<nb::gil_scoped_release>(),
      "Norm num_heads heads of len(weight) columns from `offset` on, in place.");
  m.def(
      "layer_norm",
      [](Rows& x, int64_t offset, const Vector& weight, const Vector& bias, double eps) {
        require(weight.values.size() == bias.values.size(),
                "the norm's weight and bias differ in length");
        layer_norm_columns(x, offset, static_cast<int64_t>(weight.values.size()),
                           weight.values.data(), bias.values.data(), eps);
      },
      nb::arg("x"), nb::arg("offset"), nb::arg("weight"), nb::arg("bias"), nb::arg("eps"),
      nb::call_guard<nb::gil_scoped_release>(),
      "Layer norm with bias of len(weight) columns from `offset` on, in place.");
  m.def("swiglu", &swiglu, nb::arg("gate_up"), nb::arg("out"),
        nb::call_guard<nb::gil_scoped_release>(),
        "out (rows, width) = silu(gate) * up; gate_up (rows, 2 * width) is gate, then up.");
  m.def(
      "embed",
      [](const Matrix& table, const Ids& ids, Rows& out) {
        embed(table, ids.data(), static_cast<int64_t>(ids.size()), out);
      },
      nb::arg("table"), nb::arg("ids").noconvert(), nb::arg("out"),
      "out (len(ids), width) = rows `ids` (int32) of the table. Raises IndexError.");
}

}  // namespace coli
