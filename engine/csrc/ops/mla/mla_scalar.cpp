// Latent attention, one head and one number at a time: the definition the other variants equal bit
// for bit. The formula is in mla.h.
#include <cmath>

#include "core/kv_numbers.h"
#include "ops/mla/latent_rows.h"
#include "ops/mla/mla.h"
#include "ops/swiglu/exp_scalar.h"

namespace coli {
namespace {

constexpr int64_t kChains = 4;

// The m, l and o of one lane.
struct LaneState {
  float* m;
  float* l;
  float* o;
  int64_t lanes;
};

LaneState lane_state(const MlaShape& shape, float* state, int64_t lane) {
  return {state + lane, state + shape.lanes + lane, state + 2 * shape.lanes + lane, shape.lanes};
}

// A latent as floats: where it lies, or in `room`.
const float* row_of(const RowsView& latents, int64_t position, float* room) {
  const float* block = latent_block(latents, position);
  const int64_t at = latent_at(latents, position);
  if (latents.type == KvType::kF32) return block + at;
  get_numbers(latents.type, block, at, 1, latents.dim, room);
  return room;
}

void add_block(const MlaShape& shape, const float* const* rows, int64_t count, const float* q,
               const LaneState& state) {
  float p[kSoftmaxBlock];
  float m = *state.m;
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0.0F;
    for (int64_t d = 0; d < shape.dim; ++d) sum = std::fma(q[d * shape.lanes], rows[i][d], sum);
    p[i] = shape.scale * sum;
    m = p[i] > m ? p[i] : m;
  }
  const float alpha = exp_scalar(*state.m - m);
  float chains[kChains] = {};
  for (int64_t i = 0; i < count; ++i) {
    p[i] = exp_scalar(p[i] - m);
    chains[i % kChains] += p[i];
  }
  *state.m = m;
  *state.l = std::fma(*state.l, alpha, (chains[0] + chains[1]) + (chains[2] + chains[3]));
  for (int64_t c = 0; c < shape.value_dim; ++c) {
    float o = state.o[c * state.lanes] * alpha;
    for (int64_t i = 0; i < count; ++i) o = std::fma(p[i], rows[i][c], o);
    state.o[c * state.lanes] = o;
  }
}

}  // namespace

void mla_segment_scalar(const RowsView& latents, const MlaShape& shape, const MlaSegment& part) {
  for (int64_t lane = 0; lane < shape.lanes; ++lane) {
    const LaneState state = lane_state(shape, part.state, lane);
    *state.m = -HUGE_VALF;
    *state.l = 0.0F;
    for (int64_t c = 0; c < shape.value_dim; ++c) state.o[c * state.lanes] = 0.0F;
    for (int64_t begin = 0; begin < part.count; begin += kSoftmaxBlock) {
      const int64_t rest = part.count - begin;
      const int64_t count = rest < kSoftmaxBlock ? rest : kSoftmaxBlock;
      const float* rows[kSoftmaxBlock];
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = begin + i;
        rows[i] = row_of(latents, part.list != nullptr ? part.list[at] : part.first + at,
                         part.room + i * latents.dim);
      }
      add_block(shape, rows, count, part.q + lane, state);
    }
  }
}

void mla_join_scalar(const MlaShape& shape, float* state, const float* next) {
  for (int64_t lane = 0; lane < shape.lanes; ++lane) {
    const LaneState to = lane_state(shape, state, lane);
    const float next_m = next[lane];
    const float m = next_m > *to.m ? next_m : *to.m;
    const float a1 = exp_scalar(*to.m - m);
    const float a2 = exp_scalar(next_m - m);
    *to.m = m;
    for (int64_t r = 0; r <= shape.value_dim; ++r) {  // l, then o
      float* sum = to.l + r * to.lanes;
      *sum = std::fma(next[(1 + r) * to.lanes + lane], a2, *sum * a1);
    }
  }
}

void mla_divide_scalar(const MlaShape& shape, float* state) {
  for (int64_t lane = 0; lane < shape.lanes; ++lane) {
    const LaneState at = lane_state(shape, state, lane);
    for (int64_t c = 0; c < shape.value_dim; ++c) at.o[c * at.lanes] /= *at.l;
  }
}

}  // namespace coli
