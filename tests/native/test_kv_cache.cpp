// The cache of a sequence: growth, truncation and copies of every kind of layer, and the recurrent
// state that only some lengths can be taken back to.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/resource.h>
#endif

#include "core/kv_cache.h"
#include "core/kv_rows.h"
#include "float_testing.h"

namespace {

using coli::KvCache;
using coli::KvLayerView;
using coli::KvReader;
using coli::LayerLayout;
using coli::RowsView;

constexpr int64_t kBlock = KvCache::kBlockPositions;

template <typename Error, typename Call>
bool throws(Call call) {
  try {
    call();
  } catch (const Error&) {
    return true;
  }
  return false;
}

std::vector<LayerLayout> heads_only(int64_t num_layers, int64_t num_kv_heads, int64_t head_dim) {
  return std::vector<LayerLayout>(static_cast<size_t>(num_layers), {num_kv_heads, head_dim});
}

// Every kind of layer, alone and together, with dimensions that are no multiple of anything.
std::vector<LayerLayout> mixed() {
  LayerLayout heads{2, 48};
  LayerLayout latents;
  latents.latent_dim = 40;
  LayerLayout indexed;
  indexed.latent_dim = 41;
  indexed.index_dim = 7;
  LayerLayout all{1, 16, 5, 3};
  return {heads, latents, indexed, all};
}

enum Kind { kKey, kValue, kLatent, kIndexKey };

// Where a cache keeps one number.
float* find(const KvCache& cache, int64_t layer, Kind kind, int64_t head, int64_t t, int64_t d) {
  const auto transposed = [&](float* const* blocks, int64_t offset, int64_t dim) {
    return blocks[t / kBlock] + offset + t % kBlock / 16 * dim * 16 + d * 16 + t % 16;
  };
  if (kind == kKey || kind == kValue) {
    const KvLayerView view = cache.view(layer);
    const int64_t side = head * view.head_dim * kBlock;
    if (kind == kKey) return transposed(view.blocks, view.key_offset + side, view.head_dim);
    return view.blocks[t / kBlock] + view.value_offset + side + t % kBlock * view.head_dim + d;
  }
  const RowsView view = kind == kLatent ? cache.latents(layer) : cache.index_keys(layer);
  if (kind == kIndexKey) return transposed(view.blocks, view.offset, view.dim);
  return view.blocks[t / kBlock] + view.offset + t % kBlock * view.dim + d;
}

// Calls visit(place, number that belongs there) for every number of positions [begin, end).
template <typename Visit>
void each_number(const KvCache& cache, int64_t begin, int64_t end, Visit visit) {
  for (int64_t layer = 0; layer < cache.num_layers(); ++layer) {
    const LayerLayout& layout = cache.layout(layer);
    const int64_t dims[] = {layout.head_dim, layout.head_dim, layout.latent_dim, layout.index_dim};
    for (const Kind kind : {kKey, kValue, kLatent, kIndexKey}) {
      const int64_t heads = kind == kKey || kind == kValue ? layout.num_kv_heads : 1;
      for (int64_t head = 0; head < heads; ++head) {
        for (int64_t t = begin; t < end; ++t) {
          for (int64_t d = 0; d < dims[kind]; ++d) {
            const int64_t number = (((layer * 4 + kind) * 7 + head) * 4099 + t) * 67 % 99991 + d;
            visit(find(cache, layer, kind, head, t, d), static_cast<float>(1 + number));
          }
        }
      }
    }
  }
}

void fill(KvCache& cache, int64_t begin, int64_t end) {
  each_number(cache, begin, end, [](float* at, float number) { *at = number; });
  cache.commit(end);
}

// True when positions [0, filled) hold their numbers and the rest of the capacity is zero.
bool holds(const KvCache& cache, int64_t filled) {
  bool ok = true;
  each_number(cache, 0, filled, [&](const float* at, float number) { ok = ok && *at == number; });
  each_number(cache, filled, cache.capacity(),
              [&](const float* at, float) { ok = ok && *at == 0.0F; });
  return ok;
}

void check_growth(const std::vector<LayerLayout>& layers) {
  KvCache cache(layers);
  check(cache.length() == 0 && cache.capacity() == 0 && cache.nbytes() == 0, "new cache is empty");
  cache.reserve(1);
  check(cache.capacity() == 256, "one position reserves one block");
  check(holds(cache, 0), "fresh memory is zero");
  fill(cache, 0, 200);
  const float* first = find(cache, 0, kKey, 0, 0, 0);
  cache.reserve(257);
  check(cache.capacity() == 512 && cache.length() == 200, "growth by whole blocks");
  check(find(cache, 0, kKey, 0, 0, 0) == first, "growth does not move blocks");
  check(holds(cache, 200), "growth keeps contents");
  fill(cache, 200, 512);
  check(holds(cache, 512), "blocks, layers and heads do not overlap");
  for (int64_t t : {0, 256}) {
    const auto address = reinterpret_cast<uintptr_t>(find(cache, 0, kKey, 0, t, 0));
    check(address % 64 == 0, "blocks are aligned");
  }
  check(cache.restorable(77) == 77, "without state every length can be restored");
  cache.truncate(10);
  check(cache.length() == 10 && cache.capacity() == 512, "truncate keeps capacity");
  check(throws<std::invalid_argument>([&] { cache.truncate(11); }), "truncate cannot grow");
  check(throws<std::invalid_argument>([&] { cache.truncate(-1); }), "truncate below zero");
  check(throws<std::invalid_argument>([&] { cache.commit(513); }), "length over capacity");
  check(throws<std::invalid_argument>([&] { cache.reserve(-1); }), "negative reserve");
  check(throws<std::invalid_argument>([&] { cache.view(9); }), "layer out of range");
  check(throws<std::invalid_argument>([&] { cache.state(0); }), "state where there is none");
}

void check_dimensions() {
  KvCache cache(heads_only(3, 2, 48));
  cache.reserve(1);
  check(cache.nbytes() == size_t{2} * 3 * 2 * 48 * 256 * sizeof(float), "nbytes of one block");
  check(throws<std::invalid_argument>([&] { cache.latents(0); }), "latents where there are none");
  check(throws<std::invalid_argument>([&] { cache.index_keys(0); }), "nor index keys");
  const KvCache latents(std::vector<LayerLayout>{{0, 0, 576}});
  check(throws<std::invalid_argument>([&] { latents.view(0); }), "keys where there are none");

  const auto refused = [](const LayerLayout& layout) {
    return throws<std::invalid_argument>([&] { KvCache({{1, 16}, layout}); });
  };
  const int64_t huge = std::numeric_limits<int64_t>::max();
  check(throws<std::invalid_argument>([] { KvCache(std::vector<LayerLayout>{}); }), "no layers");
  check(refused({1, 24}), "head_dim not of 16");
  check(refused({1, 272}), "head_dim over 256");
  check(refused({1, 0}) && refused({0, 16}), "heads without head_dim, and the reverse");
  check(refused({}), "a layer that keeps nothing");
  check(refused({-1, 16}) && refused({0, 0, -1}) && refused({0, 0, 8, -1}), "negative sizes");
  check(refused({huge, 64}) && refused({0, 0, huge}) && refused({0, 0, 1, huge}), "overflow");
  check(refused({0, 0, 1, 0, huge}), "overflow of the state");
  check(throws<std::invalid_argument>([] { KvCache(std::vector<LayerLayout>{{0, 0, 0, 0, 8}}); }),
        "nothing per position");
}

void check_copies(const std::vector<LayerLayout>& layers) {
  KvCache source(layers);
  source.reserve(700);
  fill(source, 0, 700);
  for (int64_t n : {0, 1, 15, 16, 17, 255, 256, 257, 512, 700}) {
    KvCache copy(layers);
    copy.copy_prefix(source, n);
    check(copy.length() == n && copy.capacity() == (n + 255) / 256 * 256 && holds(copy, n),
          "copy of a prefix of " + std::to_string(n));
  }
  KvCache other(layers);
  other.reserve(600);
  other.copy_prefix(source, 300);
  check(other.capacity() == 768 && other.length() == 300 && holds(other, 300),
        "copy keeps a larger capacity");
  source.copy_prefix(source, 17);
  check(source.length() == 17 && holds(source, 700), "copy of itself only truncates");
  check(throws<std::invalid_argument>([&] { other.copy_prefix(source, 18); }), "prefix too long");
  KvCache different(heads_only(1, 3, 32));
  check(throws<std::invalid_argument>([&] { different.copy_prefix(source, 1); }),
        "copy between dimensions");
}

// Rows leave one cache and enter another, in pieces that end anywhere, inside wider records.
void check_rows(const std::vector<LayerLayout>& layers) {
  const auto source = std::make_shared<KvCache>(layers);
  source->reserve(700);
  fill(*source, 0, 700);
  const int64_t dim = source->row_dim();
  const int64_t stride = dim + 3;
  const KvReader reader(source);
  check(reader.length() == 700 && reader.row_dim() == dim, "a reader's sizes");
  source->reserve(5000);  // moves the list of blocks
  for (const int64_t piece : {1, 16, 100, 255, 256, 257, 700}) {
    KvCache copy(layers);
    for (int64_t begin = 0; begin < 700; begin += piece) {
      const int64_t count = std::min(piece, 700 - begin);
      std::vector<float> rows(static_cast<size_t>(count * stride), -1.0F);
      reader.read_rows(begin, count, rows.data(), stride);
      for (int64_t i = 0; i < count; ++i) {
        check(rows[static_cast<size_t>(i * stride + dim)] == -1.0F, "no number beyond a row");
      }
      copy.append_rows(rows.data(), count, stride);
      check(copy.length() == begin + count, "appended rows count");
    }
    check(holds(copy, 700), "rows in pieces of " + std::to_string(piece));
  }
  std::vector<float> row(static_cast<size_t>(dim));
  check(throws<std::invalid_argument>([&] { reader.read_rows(700, 1, row.data(), dim); }) &&
            throws<std::invalid_argument>([&] { reader.read_rows(-1, 1, row.data(), dim); }) &&
            throws<std::invalid_argument>([&] { reader.read_rows(0, 1, row.data(), dim - 1); }),
        "rows outside, or too close");
  KvCache other(layers);
  check(throws<std::invalid_argument>([&] { other.append_rows(row.data(), -1, dim); }) &&
            throws<std::invalid_argument>([&] { other.append_rows(row.data(), 1, dim - 1); }),
        "no negative number of rows, none that overlap");
  const int64_t huge = std::numeric_limits<int64_t>::max();
  check(throws<coli::KvAllocationError>([&] { other.append_rows(row.data(), huge, dim); }),
        "rows beyond any memory");
  check(other.length() == 0 && other.capacity() == 0, "and nothing happened");
  const KvReader last(std::move(source));  // the reader keeps the memory
  last.read_rows(699, 1, row.data(), dim);
}

void check_failed_growth() {
  KvCache cache(heads_only(2, 1, 64));
  cache.reserve(100);
  fill(cache, 0, 100);
  const int64_t huge = std::numeric_limits<int64_t>::max();
  check(throws<coli::KvAllocationError>([&] { cache.reserve(huge); }), "absurd size is refused");
  check(throws<std::bad_alloc>([&] { cache.reserve(huge); }), "and as std::bad_alloc");
#if defined(__linux__) && defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  const rlimit tight{rlim_t{512} << 20, before.rlim_max};
  setrlimit(RLIMIT_AS, &tight);
  std::string message;
  try {
    cache.reserve(1 << 20);  // 1 GiB
  } catch (const coli::KvAllocationError& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_AS, &before);
  check(message.find("1048576 positions") != std::string::npos, "out of memory names the size");
#endif
  check(cache.capacity() == 256 && cache.length() == 100 && holds(cache, 100),
        "a failed growth loses nothing");
  cache.reserve(300);
  check(cache.capacity() == 512 && holds(cache, 100), "and the next growth works");
}

// ---- recurrent state ----------------------------------------------------------------------------

// Two layers with a state each; the number stored is the length it belongs to.
struct Recurrent {
  KvCache cache{std::vector<LayerLayout>{{1, 16, 0, 0, 3}, {0, 0, 8}, {0, 0, 0, 0, 5}}};

  // A step that ends at `length`, or, uncommitted, one that failed.
  void step(int64_t length, bool committed = true) {
    cache.reserve(length);
    for (int64_t layer : {0, 2}) {
      float* next = cache.next_state(layer);
      for (int64_t i = 0; i < cache.layout(layer).state_dim; ++i) {
        next[i] = static_cast<float>(length * 10 + layer);
      }
    }
    if (committed) cache.commit(length);
  }

  bool is_at(int64_t length) const {
    bool ok = cache.length() == length;
    for (int64_t layer : {0, 2}) {
      for (int64_t i = 0; i < cache.layout(layer).state_dim; ++i) {
        const float want = length == 0 ? 0.0F : static_cast<float>(length * 10 + layer);
        ok = ok && cache.state(layer)[i] == want;
      }
    }
    return ok;
  }
};

void check_steps_of_state() {
  Recurrent a;
  check(throws<std::invalid_argument>([&] { a.cache.state(0); }), "no state before any room");
  a.cache.reserve(1);
  check(a.is_at(0), "the first state is zero");
  check(throws<std::invalid_argument>([&] { a.cache.state(1); }), "a layer without state");
  a.step(7);
  check(a.is_at(7), "commit makes the next state current");
  a.step(9, false);
  check(a.is_at(7), "a failed step changes nothing");
  a.step(12);
  check(a.is_at(12), "and the step after it counts");
  check(a.cache.nbytes() == 256 * (32 + 8) * sizeof(float) + 2 * 8 * sizeof(float),
        "nbytes holds both states");
}

void check_restoring() {
  Recurrent a;
  a.step(10);
  check(a.cache.restorable(10) == 10 && a.cache.restorable(9) == 0, "the current length, and zero");
  check(throws<std::invalid_argument>([&] { a.cache.restorable(11); }), "not the future");
  a.cache.snapshot();
  a.cache.snapshot();  // of the same length: nothing new
  a.step(20);
  a.cache.snapshot();
  a.step(30);
  check(a.cache.restorable(29) == 20 && a.cache.restorable(19) == 10 && a.cache.restorable(9) == 0,
        "the nearest snapshot below");
  check(throws<std::invalid_argument>([&] { a.cache.truncate(15); }) && a.is_at(30),
        "no truncation in between, and nothing is lost by asking");
  a.cache.truncate(20);
  check(a.is_at(20), "truncated to a snapshot");
  a.step(31);
  a.cache.truncate(10);
  check(a.is_at(10), "and to an earlier one");
  a.step(25);
  check(a.cache.restorable(24) == 10, "snapshots beyond a truncation are gone");
  a.cache.truncate(0);
  check(a.is_at(0), "back to the beginning");
  for (int64_t length = 1; length <= 6; ++length) {
    a.step(length);
    a.cache.snapshot();
  }
  check(a.cache.restorable(2) == 0 && a.cache.restorable(3) == 3, "the oldest snapshots go first");
}

void check_copies_of_state() {
  Recurrent a;
  a.step(10);
  a.cache.snapshot();
  a.step(20);
  Recurrent b;
  b.step(3);
  b.cache.snapshot();
  b.cache.copy_prefix(a.cache, 10);
  check(b.is_at(10), "copy at a snapshot");
  check(b.cache.restorable(9) == 0, "the copy's own snapshots are gone");
  b.cache.copy_prefix(a.cache, 20);
  check(b.is_at(20), "copy at the current length");
  check(throws<std::invalid_argument>([&] { b.cache.copy_prefix(a.cache, 15); }) && b.is_at(20),
        "no copy in between");
  b.cache.copy_prefix(a.cache, 0);
  check(b.is_at(0), "copy of nothing");
  a.cache.copy_prefix(a.cache, 10);
  check(a.is_at(10), "copy of itself");
}

void check_state_of_rows() {
  const auto source = std::make_shared<KvCache>(
      std::vector<LayerLayout>{{1, 16, 0, 0, 3}, {0, 0, 8}, {0, 0, 0, 0, 5}});
  Recurrent a;
  a.step(10);
  a.cache.snapshot();
  a.step(20);
  a.cache.snapshot();
  source->copy_prefix(a.cache, 20);
  source->snapshot();
  const KvReader reader(source);
  check(reader.state_dim() == 8, "floats of the state");
  check(reader.state_lengths() == std::vector<int64_t>{20}, "a copy knows its own end");
  std::vector<float> state(8);
  source->truncate(0);  // the reader's snapshots stay
  reader.read_state(20, state.data());
  check(state[0] == 200 && state[7] == 202, "the state of a snapshot, layer by layer");
  check(throws<std::invalid_argument>([&] { reader.read_state(19, state.data()); }), "no other");

  Recurrent b;
  const std::vector<float> rows(static_cast<size_t>(20 * b.cache.row_dim()));
  b.cache.append_rows(rows.data(), 20, b.cache.row_dim());
  std::vector<float> early(8, 7.0F);
  b.cache.put_state(5, early.data());
  b.cache.put_state(20, state.data());
  check(b.is_at(20) && b.cache.restorable(19) == 5, "states come back with their lengths");
  check(throws<std::invalid_argument>([&] { b.cache.put_state(20, state.data()); }) &&
            throws<std::invalid_argument>([&] { b.cache.put_state(21, state.data()); }) &&
            throws<std::invalid_argument>([&] { b.cache.put_state(0, state.data()); }),
        "not twice, not beyond the end, not of nothing");
  b.cache.truncate(5);
  check(b.cache.state(0)[0] == 7 && b.cache.length() == 5, "and can be gone back to");
  KvCache plain({{1, 16}});
  check(throws<std::invalid_argument>([&] { plain.put_state(0, state.data()); }), "where none is");
}

}  // namespace

int main() {
  for (const std::vector<LayerLayout>& layers : {heads_only(3, 2, 48), mixed()}) {
    check_growth(layers);
    check_copies(layers);
    check_rows(layers);
  }
  check_dimensions();
  check_failed_growth();
  check_steps_of_state();
  check_restoring();
  check_copies_of_state();
  check_state_of_rows();
  return report();
}
