// Integer products with AMX byte tiles, on the planes of the AVX-512 variant.
//
// The packed codes of a kernel group, [inputs / 4][16][4], are the right operand of TDPBSSD once
// their middle is zero (4-bit ones after widening, levels in place of their numbers), and 16 activation rows the left one. Tiles are
// as deep as one kernel group (64, 32 or 16 inputs), so that the exact sums stop where scales
// change. The tile unit works in order and its sums leave it through memory, so several groups are
// under way at a time, across the borders of weight tiles: one is multiplied, the one two before it
// stored, and the vector units scale the one before that into accumulators that stay in registers.
// Few rows leave most of a tile empty and go the AVX-512 way.
#include "ops/matmul_int/blocks.h"
#include "ops/matmul_int/matmul_int.h"
#include "ops/matmul_int/segment_amx.h"
#include "ops/matmul_int/tile_amx.h"
#include "ops/matmul_int/tile_avx512.h"

namespace coli {
namespace {

constexpr int64_t kMinRows = 8;             // below, AVX-512 is as fast
constexpr int64_t kPanelBytes = 768 << 10;  // activations kept in the L2 cache (2 MiB)

// Stores what was multiplied two turns ago and, while groups are left, multiplies the next: exact
// sums of 16 rows by 16 outputs over the kernel group at `at` of the segment.
#define COLI_TAKE_TURN(first_sums, second_sums, turn)                                    \
  do {                                                                                   \
    if (is_live) {                                                                       \
      _tile_loadd(COLI_ROWS_FIRST, rows.planes[0] + at, rows.stride);                    \
      _tile_loadd(COLI_CODES, codes + at * kTile, 64);                                   \
      if (kPlanes == 2) _tile_loadd(COLI_ROWS_SECOND, rows.planes[1] + at, rows.stride); \
    }                                                                                    \
    _tile_stored(first_sums, scratch.sums[turn][0], 64);                                 \
    if (is_live) {                                                                       \
      _tile_zero(first_sums);                                                            \
      _tile_dpbssd(first_sums, COLI_ROWS_FIRST, COLI_CODES);                             \
    }                                                                                    \
    if (kPlanes == 2) _tile_stored(second_sums, scratch.sums[turn][1], 64);              \
    if (kPlanes == 2 && is_live) {                                                       \
      _tile_zero(second_sums);                                                           \
      _tile_dpbssd(second_sums, COLI_ROWS_SECOND, COLI_CODES);                           \
    }                                                                                    \
  } while (false)

template <int kPlanes, int kTurn>
COLI_INLINE void take_turn(const RowTile& rows, const uint8_t* codes, int64_t at, bool is_live,
                           Scratch& scratch) {
  if (kTurn == 0) {
    COLI_TAKE_TURN(COLI_SUMS_0_FIRST, COLI_SUMS_0_SECOND, 0);
  } else {
    COLI_TAKE_TURN(COLI_SUMS_1_FIRST, COLI_SUMS_1_SECOND, 1);
  }
  COLI_TILE_FENCE();
}
#undef COLI_TAKE_TURN

// Adds one kernel group's sums to the results: scale product, then fused multiply-add.
template <Code kCode, int kPlanes, Offset kOffset, int kTurn>
COLI_INLINE void add_group(const Product& p, Added& added, const Scratch& scratch,
                           __m512 (&acc)[kTileRows]) {
  const int64_t index = added.group.scale_index * kTile;
  const float* act_scales = scratch.scales[added.at >> p.act_shift];
  const int32_t* row_sums = scratch.row_sums[added.at / p.size];
  const int32_t offset = middle(kCode) - (kOffset == Offset::kMins ? 0 : p.w.zero);
  const __m512 scales = load_group_scales<kCode>(p.w, added.scales, index);
  __m512 mins = scales;
  if (kOffset == Offset::kMins) mins = load_group_scales<kCode>(p.w, added.mins, index);
#pragma GCC unroll 16
  for (int64_t r = 0; r < kTileRows; ++r) {
    const __m512 act_scale = _mm512_set1_ps(act_scales[r]);
    __m512i sum = _mm512_load_si512(scratch.sums[kTurn][kPlanes - 1][r]);
    if (kPlanes == 2) {
      const __m512i high = _mm512_load_si512(scratch.sums[kTurn][0][r]);
      sum = _mm512_add_epi32(_mm512_slli_epi32(high, 8), sum);
    }
    if (kOffset != Offset::kNone) {
      // Exact: sum (c - z) v = sum (c - middle) v + (middle - z) sum v.
      sum = _mm512_add_epi32(sum, _mm512_set1_epi32(offset * row_sums[r]));
    }
    acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scales, act_scale), acc[r]);
    if (kOffset == Offset::kMins) {
      const __m512 row_sum = _mm512_cvtepi32_ps(_mm512_set1_epi32(row_sums[r]));
      acc[r] = _mm512_fmadd_ps(row_sum, _mm512_mul_ps(mins, act_scale), acc[r]);
    }
  }
  added.at += p.size;
  step_group(p, added.group);
}

// The weight tiles of a job over a segment, on top of the results so far.
template <Code kCode, int kPlanes, Offset kOffset>
void multiply_tiles(const Job& job, const RowTile& rows, const Group& group, int64_t count,
                    Scratch& scratch) {
  const Product& p = job.p;
  __m512 acc[kTileRows];
  Added added = {};
  const auto begin_tile = [&](int64_t t) __attribute__((always_inline)) {
    added = {tile_stream(p.w, p.w.scales, job.tile + t), tile_stream(p.w, p.w.mins, job.tile + t),
             group, 0};
    const float (*results)[kTile] = scratch.results[t] + rows.first;
#pragma GCC unroll 16
    for (int64_t r = 0; r < kTileRows; ++r) acc[r] = _mm512_load_ps(results[r]);
  };
  const auto end_tile = [&](int64_t t) __attribute__((always_inline)) {
    float (*results)[kTile] = scratch.results[t] + rows.first;
#pragma GCC unroll 16
    for (int64_t r = 0; r < kTileRows; ++r) _mm512_store_ps(results[r], acc[r]);
  };
  int64_t tile = 0;  // whose groups are multiplied
  int64_t at = 0;
  int64_t done = 0;  // tiles whose sums are all added
  begin_tile(0);
  for (int64_t turn = 0; done < job.num_tiles; ++turn) {
    const bool is_live = tile < job.num_tiles;
    const uint8_t* codes = scratch.codes[is_live ? tile : 0];
    // What is added was stored in the turn before, under the other number.
    if (turn % 2 == 0) {
      take_turn<kPlanes, 0>(rows, codes, at, is_live, scratch);
      if (turn >= kLag) add_group<kCode, kPlanes, kOffset, 1>(p, added, scratch, acc);
    } else {
      take_turn<kPlanes, 1>(rows, codes, at, is_live, scratch);
      if (turn >= kLag) add_group<kCode, kPlanes, kOffset, 0>(p, added, scratch, acc);
    }
    at += p.size;
    if (at == count) {
      at = 0;
      ++tile;
    }
    if (added.at == count) {
      end_tile(done);
      if (++done < job.num_tiles) begin_tile(done);
    }
  }
}

template <Code kCode, int kPlanes, Offset kOffset>
void multiply_job(const Job& job) {
  const Product& p = job.p;
  Scratch scratch;
  for (int64_t t = 0; t < job.num_tiles; ++t) {
    // Also rows there are not, up to a whole tile.
    for (int64_t r = 0; r < job.num_rows; r += kTileRows) {
      __builtin_memset(scratch.results[t][r], 0, sizeof scratch.results[t][r] * kTileRows);
    }
  }
  for (float (&row)[kTileRows] : scratch.scales) _mm512_store_ps(row, _mm512_setzero_ps());
  Group group = first_group(p);
  const int64_t size = segment_size(p.w.padded_inputs);
  while (group.begin < p.w.padded_inputs) {
    const int64_t left = p.w.padded_inputs - group.begin;
    const Span span = {group.begin, left < size ? left : size};
    for (int64_t t = 0; t < job.num_tiles; ++t) widen_codes<kCode>(job, t, span, scratch);
    for (int64_t first = 0; first < job.num_rows; first += job.rows_per_tile) {
      const RowTile rows = prepare_rows<kPlanes, kOffset>(job, first, span, scratch);
      multiply_tiles<kCode, kPlanes, kOffset>(job, rows, group, span.count, scratch);
    }
    for (int64_t at = 0; at < span.count; at += p.size) step_group(p, group);
  }
  for (int64_t r = 0; r < job.num_rows; ++r) {
    for (int64_t t = 0; t < job.num_tiles; ++t) {
      store_outputs(p.w, p.range, job.tile + t, job.row + r, _mm512_load_ps(scratch.results[t][r]));
    }
  }
}

// Rows [begin, end), a multiple of `rows_per_tile` of them, against all tiles of the range.
template <Code kCode, int kPlanes, Offset kOffset>
void multiply_rows(const Product& p, int64_t begin, int64_t end, int64_t rows_per_tile) {
  configure_tiles(p.size, rows_per_tile);
  int64_t panel = kPanelBytes / (kPlanes * p.a.padded_inputs) / kBlockRows * kBlockRows;
  if (panel < kBlockRows) panel = kBlockRows;
  for (int64_t row = begin; row < end; row += panel) {
    const int64_t panel_end = row + panel < end ? row + panel : end;
    for (int64_t tile = p.range.tile_begin; tile < p.range.tile_end; tile += kJobTiles) {
      const int64_t tiles_left = p.range.tile_end - tile;
      const int64_t num_tiles = tiles_left < kJobTiles ? tiles_left : kJobTiles;
      for (int64_t at = row; at < panel_end; at += kBlockRows) {
        const int64_t left = panel_end - at;
        const int64_t count = left < kBlockRows ? left : kBlockRows;
        multiply_job<kCode, kPlanes, kOffset>({p, tile, num_tiles, at, count, rows_per_tile});
      }
    }
  }
  // Without live tiles the kernel has less to save when it switches threads.
  _tile_release();
}

template <Code kCode, int kPlanes, Offset kOffset>
void multiply_range(const Product& p, int64_t end) {
  const int64_t begin = p.range.row_begin;
  const int64_t full_end = end - (end - begin) % kTileRows;
  if (full_end > begin) {
    multiply_rows<kCode, kPlanes, kOffset>(p, begin, full_end, kTileRows);
  }
  if (end > full_end) {
    multiply_rows<kCode, kPlanes, kOffset>(p, full_end, end, end - full_end);
  }
}

template <Code kCode, int kPlanes>
void multiply_kind(const Product& p, int64_t end) {
  if (p.w.mins != nullptr) {
    multiply_range<kCode, kPlanes, Offset::kMins>(p, end);
  } else if (p.w.zero != middle(kCode)) {
    multiply_range<kCode, kPlanes, Offset::kZero>(p, end);
  } else {
    multiply_range<kCode, kPlanes, Offset::kNone>(p, end);
  }
}

// The rows of the range up to `end`.
template <int kPlanes>
void multiply_to(const Product& p, int64_t end) {
  switch (code_of(p.w)) {
    case Code::kNibble:
      return multiply_kind<Code::kNibble, kPlanes>(p, end);
    case Code::kByte:
      return multiply_kind<Code::kByte, kPlanes>(p, end);
    case Code::kLevel:
      return multiply_kind<Code::kLevel, kPlanes>(p, end);
  }
}

}  // namespace

void quantize_row_amx(const float* x, int64_t num_inputs, int64_t padded_inputs, Numerics numerics,
                      uint8_t* data, float* scales, int32_t* sums) {
  quantize_row_avx512(x, num_inputs, padded_inputs, numerics, data, scales, sums);
}

void matmul_int_amx(const IntMatrix& w, const QuantRows& a, const MatmulRange& range) {
  if (is_empty(range)) return;
  const Product p = describe_product(w, a, range);
  const int64_t last_rows = (range.row_end - range.row_begin) % kTileRows;
  const int64_t end = range.row_end - (last_rows < kMinRows ? last_rows : 0);
  if (end > range.row_begin) {
    a.numerics == Numerics::kFast ? multiply_to<1>(p, end) : multiply_to<2>(p, end);
  }
  if (end < range.row_end) {
    MatmulRange last = range;
    last.row_begin = end;
    matmul_int_avx512(w, a, last);
  }
}

void matmul_int_float_amx(const IntMatrix& w, const FloatRows& a, const MatmulRange& range) {
  matmul_int_float_avx512(w, a, range);
}

}  // namespace coli
