// Integer products with AMX byte tiles, on the planes of the AVX-512 variant.
//
// The packed codes of a kernel group, [inputs / 4][16][4], are the right operand of TDPBSSD once
// their middle is zero (4-bit ones after widening), and 16 activation rows the left one. Tiles are
// as deep as one kernel group (64, 32 or 16 inputs), so that the exact sums stop where scales
// change. The tile unit works in order and its sums leave it through memory, so three groups are
// under way at a time: one is multiplied, one stored, and the vector units scale a third into
// accumulators that stay in registers. Few rows leave most of a tile empty and go the AVX-512 way.
#include "ops/matmul_int/blocks.h"
#include "ops/matmul_int/matmul_int.h"
#include "ops/matmul_int/segment_amx.h"
#include "ops/matmul_int/tile_amx.h"
#include "ops/matmul_int/tile_avx512.h"

namespace coli {
namespace {

constexpr int64_t kMinRows = 8;             // below, AVX-512 is as fast
constexpr int64_t kPanelBytes = 768 << 10;  // activations kept in the L2 cache (2 MiB)

// Exact sums of 16 rows by 16 outputs over the kernel group at `at`, into one turn's registers.
#define COLI_MULTIPLY(first_sums, second_sums)                         \
  do {                                                                 \
    _tile_loadd(COLI_ROWS_FIRST, rows.planes[0] + at, rows.stride);    \
    _tile_loadd(COLI_CODES, codes + at * kTile, 64);                   \
    _tile_zero(first_sums);                                            \
    _tile_dpbssd(first_sums, COLI_ROWS_FIRST, COLI_CODES);             \
    if (kPlanes == 2) {                                                \
      _tile_loadd(COLI_ROWS_SECOND, rows.planes[1] + at, rows.stride); \
      _tile_zero(second_sums);                                         \
      _tile_dpbssd(second_sums, COLI_ROWS_SECOND, COLI_CODES);         \
    }                                                                  \
  } while (false)

template <int kPlanes, int kTurn>
COLI_INLINE void multiply_group(const RowTile& rows, const uint8_t* codes, int64_t at) {
  if (kTurn == 0) {
    COLI_MULTIPLY(COLI_SUMS_0_FIRST, COLI_SUMS_0_SECOND);
  } else {
    COLI_MULTIPLY(COLI_SUMS_1_FIRST, COLI_SUMS_1_SECOND);
  }
}
#undef COLI_MULTIPLY

template <int kPlanes, int kTurn>
COLI_INLINE void store_sums(Scratch& scratch) {
  if (kTurn == 0) {
    _tile_stored(COLI_SUMS_0_FIRST, scratch.sums[0][0], 64);
    if (kPlanes == 2) _tile_stored(COLI_SUMS_0_SECOND, scratch.sums[0][1], 64);
  } else {
    _tile_stored(COLI_SUMS_1_FIRST, scratch.sums[1][0], 64);
    if (kPlanes == 2) _tile_stored(COLI_SUMS_1_SECOND, scratch.sums[1][1], 64);
  }
  COLI_TILE_FENCE();
}

// One weight tile's scales, stepped along with its kernel groups.
struct Scales {
  const uint8_t* scales;
  const uint8_t* mins;
  Group group;
};

// Adds the stored sums of the kernel group at `at` of the segment.
template <int kBits, int kPlanes, Offset kOffset, int kTurn>
COLI_INLINE void add_group(const Product& p, Scales& w, int64_t at, const Scratch& scratch,
                           __m512 (&acc)[kTileRows]) {
  const bool is_half = p.w.scale_f16 != 0;
  const int64_t index = w.group.scale_index * kTile;
  const float* act_scales = scratch.scales[at >> p.act_shift];
  const int32_t* row_sums = scratch.row_sums[at / p.size];
  const int32_t offset = middle(kBits) - (kOffset == Offset::kMins ? 0 : p.w.zero);
  const __m512 scales = load_scales(w.scales, index, is_half);
  __m512 mins = scales;
  if (kOffset == Offset::kMins) mins = load_scales(w.mins, index, is_half);
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
  step_group(p, w.group);
}

// One turn: the group after next is multiplied, the next one stored, this one added.
template <int kBits, int kPlanes, Offset kOffset, int kTurn>
COLI_INLINE void take_turn(const Product& p, const RowTile& rows, const uint8_t* codes, Scales& w,
                           int64_t at, int64_t count, Scratch& scratch, __m512 (&acc)[kTileRows]) {
  const int64_t next = at + p.size;
  if (next + p.size < count) multiply_group<kPlanes, kTurn>(rows, codes, next + p.size);
  if (next < count) store_sums<kPlanes, 1 - kTurn>(scratch);
  add_group<kBits, kPlanes, kOffset, kTurn>(p, w, at, scratch, acc);
}

// One weight tile over a segment, on top of the results so far. Returns the kernel group after.
template <int kBits, int kPlanes, Offset kOffset>
Group multiply_tile(const Job& job, int64_t t, const RowTile& rows, const Group& group,
                    int64_t count, Scratch& scratch) {
  const Product& p = job.p;
  const uint8_t* codes = scratch.codes[t];
  Scales w = {tile_stream(p.w, p.w.scales, job.tile + t), tile_stream(p.w, p.w.mins, job.tile + t),
              group};
  __m512 acc[kTileRows];
  float (*results)[kTile] = scratch.results[t] + rows.first;
#pragma GCC unroll 16
  for (int64_t r = 0; r < kTileRows; ++r) acc[r] = _mm512_load_ps(results[r]);
  COLI_TILE_FENCE();
  multiply_group<kPlanes, 0>(rows, codes, 0);
  if (p.size < count) multiply_group<kPlanes, 1>(rows, codes, p.size);
  store_sums<kPlanes, 0>(scratch);
  int64_t at = 0;
  for (; at + p.size < count; at += 2 * p.size) {
    take_turn<kBits, kPlanes, kOffset, 0>(p, rows, codes, w, at, count, scratch, acc);
    take_turn<kBits, kPlanes, kOffset, 1>(p, rows, codes, w, at + p.size, count, scratch, acc);
  }
  if (at < count) add_group<kBits, kPlanes, kOffset, 0>(p, w, at, scratch, acc);
#pragma GCC unroll 16
  for (int64_t r = 0; r < kTileRows; ++r) _mm512_store_ps(results[r], acc[r]);
  return w.group;
}

template <int kBits, int kPlanes, Offset kOffset>
void multiply_job(const Job& job) {
  const Product& p = job.p;
  Scratch scratch;
  for (int64_t t = 0; t < job.num_tiles; ++t) {
    // Also rows there are not, up to a whole tile.
    for (float (&row)[kTile] : scratch.results[t]) _mm512_store_ps(row, _mm512_setzero_ps());
  }
  for (float (&row)[kTileRows] : scratch.scales) _mm512_store_ps(row, _mm512_setzero_ps());
  Group group = first_group(p);
  while (group.begin < p.w.padded_inputs) {
    const int64_t left = p.w.padded_inputs - group.begin;
    const Span span = {group.begin, left < kSegment ? left : kSegment};
    for (int64_t t = 0; t < job.num_tiles; ++t) widen_codes<kBits>(job, t, span, scratch);
    Group next = group;
    for (int64_t first = 0; first < job.num_rows; first += job.rows_per_tile) {
      const RowTile rows = prepare_rows<kPlanes, kOffset>(job, first, span, scratch);
      for (int64_t t = 0; t < job.num_tiles; ++t) {
        next = multiply_tile<kBits, kPlanes, kOffset>(job, t, rows, group, span.count, scratch);
      }
    }
    group = next;
  }
  for (int64_t r = 0; r < job.num_rows; ++r) {
    for (int64_t t = 0; t < job.num_tiles; ++t) {
      store_outputs(p.w, p.range, job.tile + t, job.row + r, _mm512_load_ps(scratch.results[t][r]));
    }
  }
}

// Rows [begin, end), a multiple of `rows_per_tile` of them, against all tiles of the range.
template <int kBits, int kPlanes, Offset kOffset>
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
        multiply_job<kBits, kPlanes, kOffset>({p, tile, num_tiles, at, count, rows_per_tile});
      }
    }
  }
  // Without live tiles the kernel has less to save when it switches threads.
  _tile_release();
}

template <int kBits, int kPlanes, Offset kOffset>
void multiply_range(const Product& p) {
  const MatmulRange& range = p.range;
  const int64_t num_rows = range.row_end - range.row_begin;
  const int64_t last_rows = num_rows % kTileRows;
  const int64_t full_end = range.row_end - last_rows;
  if (full_end > range.row_begin) {
    multiply_rows<kBits, kPlanes, kOffset>(p, range.row_begin, full_end, kTileRows);
  }
  if (last_rows >= kMinRows) {
    multiply_rows<kBits, kPlanes, kOffset>(p, full_end, range.row_end, last_rows);
  } else if (last_rows > 0) {
    MatmulRange last = range;
    last.row_begin = full_end;
    matmul_int_avx512(p.w, p.a, last);
  }
}

template <int kBits, int kPlanes>
void multiply_kind(const Product& p) {
  if (p.w.mins != nullptr) {
    multiply_range<kBits, kPlanes, Offset::kMins>(p);
  } else if (p.w.zero != middle(kBits)) {
    multiply_range<kBits, kPlanes, Offset::kZero>(p);
  } else {
    multiply_range<kBits, kPlanes, Offset::kNone>(p);
  }
}

}  // namespace

void quantize_row_amx(const float* x, int64_t num_inputs, int64_t padded_inputs, Numerics numerics,
                      uint8_t* data, float* scales, int32_t* sums) {
  quantize_row_avx512(x, num_inputs, padded_inputs, numerics, data, scales, sums);
}

void matmul_int_amx(const IntMatrix& w, const QuantRows& a, const MatmulRange& range) {
  if (is_empty(range)) return;
  if (w.has_levels != 0) return matmul_int_avx512(w, a, range);
  const Product p = describe_product(w, a, range);
  const bool is_fast = a.numerics == Numerics::kFast;
  if (w.bits == 4) {
    is_fast ? multiply_kind<4, 1>(p) : multiply_kind<4, 2>(p);
  } else {
    is_fast ? multiply_kind<8, 1>(p) : multiply_kind<8, 2>(p);
  }
}

void matmul_int_float_amx(const IntMatrix& w, const FloatRows& a, const MatmulRange& range) {
  matmul_int_float_avx512(w, a, range);
}

}  // namespace coli
