// Attention, one query and one number at a time: the definition the other variants equal bit for
// bit. The formula is in attention.h.
#include <cmath>

#include "ops/attention/attention.h"
#include "ops/attention/kv_rows.h"
#include "ops/swiglu/exp_scalar.h"

namespace coli {
namespace {

constexpr int kLanes = 16;

struct SoftmaxState {
  float m = -HUGE_VALF;
  float l[kLanes] = {};
  float o[kMaxHeadDim] = {};
};

// One query: its channels and mixing weights, scaled where the range says so.
struct Query {
  float q[kMaxHeadDim];
  float mix[kMaxProfiles];
  int64_t position;
};

Query take_query(const KvLayerView& kv, const AttentionRange& range, int64_t row, int64_t head) {
  Query query{};
  const float factor = range.query_scales == nullptr ? 1.0F : range.query_scales[row];
  const float* q = range.q + row * range.ldq + head * kv.head_dim;
  for (int64_t d = 0; d < kv.head_dim; ++d) query.q[d] = q[d] * factor;
  const int64_t profiles = range.mix == nullptr ? 0 : range.bank.num_profiles;
  for (int64_t j = 0; j < profiles; ++j) {
    query.mix[j] = range.mix[row * range.ldq + head * profiles + j] * factor;
  }
  query.position = range.first_position + row;
  return query;
}

float relative_bias(const RelativeBank& bank, const Query& query, int64_t distance) {
  if (distance >= bank.extent) return 0.0F;
  float sum = 0.0F;
  for (int64_t j = 0; j < bank.num_profiles; ++j) {
    const float* profile = bank.data + j * bank.stride + kBankPad;
    sum = std::fma(query.mix[j], profile[bank.extent - 1 - distance], sum);
  }
  return sum;
}

// Scores of the keys [begin, end), which lie in one softmax block.
void block_scores(const KvLayerView& kv, const AttentionRange& range, const Query& query,
                  int64_t begin, int64_t end, float* scores) {
  for (int64_t t = begin; t < end; ++t) {
    const int64_t lane = t % kKeyBlock;
    float key[kMaxHeadDim];
    get_numbers(kv.type, block_of(kv, t), key_at(kv, range.kv_head, t - lane) + lane, kKeyBlock,
                kv.head_dim, key);
    float sum = 0.0F;
    for (int64_t d = 0; d < kv.head_dim; ++d) sum = std::fma(query.q[d], key[d], sum);
    scores[t - begin] = range.scale * sum;
    if (range.mix != nullptr) {
      scores[t - begin] += relative_bias(range.bank, query, query.position - t);
    }
  }
}

// Adds the `count` keys from position `begin` on, which lie in one softmax block.
void add_block(SoftmaxState& state, const float* scores, const KvLayerView& kv, int64_t kv_head,
               int64_t begin, int64_t count) {
  const int64_t head_dim = kv.head_dim;
  float m = state.m;
  for (int64_t i = 0; i < count; ++i) m = scores[i] > m ? scores[i] : m;
  if (m != state.m) {
    const float alpha = exp_scalar(state.m - m);
    for (float& l : state.l) l *= alpha;
    for (int64_t d = 0; d < head_dim; ++d) state.o[d] *= alpha;
    state.m = m;
  }
  for (int64_t i = 0; i < count; ++i) {
    const float p = exp_scalar(scores[i] - m);
    state.l[(begin + i) % kLanes] += p;
    float value[kMaxHeadDim];
    get_numbers(kv.type, block_of(kv, begin + i), value_at(kv, kv_head, begin + i), 1, head_dim,
                value);
    for (int64_t d = 0; d < head_dim; ++d) state.o[d] = std::fma(p, value[d], state.o[d]);
  }
}

void write_result(SoftmaxState& state, int64_t head_dim, float* out) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) state.l[i] += state.l[i + width];
  }
  for (int64_t d = 0; d < head_dim; ++d) out[d] = state.o[d] / state.l[0];
}

}  // namespace

void store_keys_scalar(const KvLayerView& kv, int64_t kv_head, int64_t position, const float* key) {
  store_key_row(kv, kv_head, position, key);
}

void store_values_scalar(const KvLayerView& kv, int64_t kv_head, int64_t position,
                         const float* value) {
  store_value_row(kv, kv_head, position, value);
}

void attention_scalar(const KvLayerView& kv, const AttentionRange& range) {
  for (int64_t row = 0; row < range.num_rows; ++row) {
    const int64_t end = range.first_position + row + 1;
    const int64_t first = range.window > 0 && end > range.window ? end - range.window : 0;
    for (int64_t head = range.head_begin; head < range.head_end; ++head) {
      const Query query = take_query(kv, range, row, head);
      SoftmaxState state;
      if (range.sinks != nullptr) {
        state.m = range.sinks[head];
        state.l[0] = 1.0F;
      }
      for (int64_t begin = first; begin < end;) {
        const int64_t next = (begin / kSoftmaxBlock + 1) * kSoftmaxBlock;
        const int64_t count = (next < end ? next : end) - begin;
        float scores[kSoftmaxBlock];
        block_scores(kv, range, query, begin, begin + count, scores);
        add_block(state, scores, kv, range.kv_head, begin, count);
        begin += count;
      }
      write_result(state, kv.head_dim, range.out + row * range.ldo + head * kv.head_dim);
    }
  }
}

}  // namespace coli
