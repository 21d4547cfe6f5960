#include "ops/sequence/rotate.h"

#include "core/thread_team.h"
#include "dispatch.h"

namespace coli {
namespace {

constexpr int64_t kRowGrain = 8;

}  // namespace

void rotate_columns(Rows& x, const Batch& batch, Rope& rope, int64_t offset, int64_t num_heads,
                    int64_t stride) {
  require(x.rows() == batch.num_rows(), "the batch and the rows differ");
  // Divided, not multiplied: the product of what a caller sends may not fit.
  require(offset >= 0 && num_heads >= 1 && stride >= 1 && rope.rotated() <= x.width() &&
              offset <= x.width() - rope.rotated() &&
              num_heads - 1 <= (x.width() - rope.rotated() - offset) / stride,
          "rotate_columns: the heads lie outside the rows");
  rope.ensure(batch.end_position());
  const KernelTable& k = kernels();
  const auto rotate = rope.interleaved() ? k.rope_interleaved_row : k.rope_half_row;
  for (const Batch::Segment& segment : batch.segments()) {
    ThreadTeam::instance().run(segment.rows, kRowGrain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t position = segment.start + r;
        float* row = x.row(segment.first_row + r) + offset;
        for (int64_t h = 0; h < num_heads; ++h) {
          rotate(row + h * stride, rope.cos(position), rope.sin(position), rope.rotated());
        }
      }
    });
  }
}

}  // namespace coli
