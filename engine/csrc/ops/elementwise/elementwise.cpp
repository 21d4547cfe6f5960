#include "ops/elementwise/elementwise.h"

#include <stdexcept>
#include <string>

#include "core/thread_team.h"
#include "dispatch.h"

namespace coli {
namespace {

// Below this much work per row range a second thread costs more than it brings.
constexpr int64_t kGrainValues = 16384;

int64_t row_grain(int64_t width) { return width >= kGrainValues ? 1 : kGrainValues / width; }

}  // namespace

void rms_norm(const Rows& x, const float* weight, float eps, Rows& out) {
  require(x.width() == out.width(), "rms_norm: x and out differ in width");
  out.set_rows(x.rows());
  const KernelTable& k = kernels();
  ThreadTeam::instance().run(x.rows(), row_grain(x.width()), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      k.rms_norm_row(x.row(r), weight, x.width(), eps, out.row(r));
    }
  });
}

void rms_norm_heads(Rows& x, int64_t offset, int64_t num_heads, int64_t head_dim,
                    const float* weight, float eps) {
  // Divided, not multiplied: the product of what a caller sends may not fit.
  require(offset >= 0 && offset <= x.width() && num_heads >= 0 && head_dim >= 1 &&
              num_heads <= (x.width() - offset) / head_dim,
          "rms_norm_heads: the heads lie outside the row");
  const KernelTable& k = kernels();
  ThreadTeam::instance().run(x.rows(), row_grain(x.width()), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t h = 0; h < num_heads; ++h) {
        float* head = x.row(r) + offset + h * head_dim;
        k.rms_norm_row(head, weight, head_dim, eps, head);
      }
    }
  });
}

void swiglu(const Rows& gate_up, Rows& out) {
  require(gate_up.width() == 2 * out.width(), "swiglu: gate_up must be twice as wide as out");
  out.set_rows(gate_up.rows());
  const KernelTable& k = kernels();
  const int64_t width = out.width();
  ThreadTeam::instance().run(out.rows(), row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      k.swiglu_row(gate_up.row(r), gate_up.row(r) + width, width, out.row(r));
    }
  });
}

void embed(const Matrix& table, const int32_t* ids, int64_t count, Rows& out) {
  require(table.num_inputs() == out.width(), "embed: the table and out differ in width");
  out.set_rows(count);
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= table.num_outputs()) {
      throw std::out_of_range("token id " + std::to_string(ids[i]) + " is outside 0.." +
                              std::to_string(table.num_outputs() - 1));
    }
    table.unpack_row(ids[i], out.row(i));
  }
}

}  // namespace coli
