// Integer products with AMX byte tiles, on the planes of the AVX-512 variant.
//
// The packed codes of a kernel group, [inputs / 4][16][4], are the right operand of TDPBSUD as
// they stand (4-bit ones after widening), and 16 activation rows the left one. Tiles are as deep as
// one kernel group (64, 32 or 16 inputs), so that the exact sums stop where scales change. Few
// rows leave most of a tile empty and go the AVX-512 way.
#include "ops/matmul_int/blocks.h"
#include "ops/matmul_int/matmul_int.h"
#include "ops/matmul_int/tile_amx.h"
#include "ops/matmul_int/tile_avx512.h"

namespace coli {
namespace {

constexpr int64_t kTileRows = 16;           // activation rows per tile register
constexpr int64_t kBlockRows = 64;          // rows that share one widening of the codes
constexpr int64_t kSegment = 1024;          // inputs widened at a time, a bound for the stack
constexpr int64_t kMinRows = 8;             // below, AVX-512 is at memory speed already
constexpr int64_t kPanelBytes = 768 << 10;  // activations kept in the L2 cache (2 MiB)

// Up to 64 rows against one or two weight tiles.
struct Job {
  const Product& p;
  int64_t tile;
  int64_t num_tiles;  // 1 or 2
  int64_t row;
  int64_t num_rows;
  int64_t rows_per_tile;  // as configured: 16, or fewer in the last rows
};

// Everything a job accumulates into, on the stack.
struct alignas(64) Scratch {
  uint8_t codes[2][kSegment * kTile];
  uint8_t rows[2][kTileRows][kInputPad];
  int32_t sums[2][2][kTileRows][kTile];  // [weight tile][plane]
  float results[kBlockRows][2][kTile];
};

// One plane of 16 rows at one kernel group, with the distance of its rows.
struct RowTile {
  const uint8_t* planes[2];
  int64_t stride;
};

// Whether the activation rows of a tile follow each other, as a tile load needs them.
bool is_run(const Job& job, int64_t first) {
  const int64_t source = source_row(job.p.range, job.row + first);
  for (int64_t r = 1; r < job.rows_per_tile; ++r) {
    if (source_row(job.p.range, job.row + first + r) != source + r) return false;
  }
  return true;
}

RowTile locate_rows(const Job& job, int64_t first, int64_t begin) {
  const QuantRows& a = job.p.a;
  const int64_t row_bytes = 2 * a.padded_inputs;
  const uint8_t* base = a.data + source_row(job.p.range, job.row + first) * row_bytes + begin;
  return {{base, base + a.padded_inputs}, row_bytes};
}

// Copies scattered rows together.
template <int kPlanes>
RowTile gather_rows(const Job& job, int64_t first, int64_t begin, Scratch& scratch) {
  const QuantRows& a = job.p.a;
  for (int64_t r = 0; r < job.rows_per_tile; ++r) {
    const int64_t source = source_row(job.p.range, job.row + first + r);
    const uint8_t* base = a.data + source * 2 * a.padded_inputs + begin;
    for (int plane = 0; plane < kPlanes; ++plane) {
      for (int64_t i = 0; i < job.p.size; i += 16) {
        const uint8_t* at = base + plane * a.padded_inputs + i;
        _mm_store_si128(reinterpret_cast<__m128i*>(&scratch.rows[plane][r][i]),
                        _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
      }
    }
  }
  return {{scratch.rows[0][0], scratch.rows[1][0]}, kInputPad};
}

// Codes of a segment as bytes: in place at 8 bits, widened at 4.
template <int kBits>
const uint8_t* widen_codes(const Job& job, int64_t t, int64_t segment, int64_t count,
                           Scratch& scratch) {
  const uint8_t* codes = tile_codes(job.p.w, job.tile + t);
  if (kBits == 8) return codes + segment * kTile;
  for (int64_t k = 0; k < count; k += 8) {
    __m512i pair[2];
    load_codes<kBits>(codes, segment + k, pair);
    _mm512_store_si512(&scratch.codes[t][k * kTile], pair[0]);
    _mm512_store_si512(&scratch.codes[t][k * kTile + 64], pair[1]);
  }
  return scratch.codes[t];
}

// Exact sums of 16 rows by 16 outputs over one kernel group, for each plane and weight tile.
template <int kPlanes>
void sum_group(const RowTile& rows, const uint8_t* const* codes, int64_t num_tiles,
               Scratch& scratch) {
  COLI_TILE_FENCE();
  _tile_loadd(COLI_ROWS_FIRST, rows.planes[0], rows.stride);
  _tile_loadd(COLI_CODES_0, codes[0], 64);
  _tile_zero(COLI_SUMS_0_FIRST);
  _tile_dpbsud(COLI_SUMS_0_FIRST, COLI_ROWS_FIRST, COLI_CODES_0);
  if (kPlanes == 2) {
    _tile_loadd(COLI_ROWS_SECOND, rows.planes[1], rows.stride);
    _tile_zero(COLI_SUMS_0_SECOND);
    _tile_dpbsud(COLI_SUMS_0_SECOND, COLI_ROWS_SECOND, COLI_CODES_0);
  }
  if (num_tiles == 2) {
    _tile_loadd(COLI_CODES_1, codes[1], 64);
    _tile_zero(COLI_SUMS_1_FIRST);
    _tile_dpbsud(COLI_SUMS_1_FIRST, COLI_ROWS_FIRST, COLI_CODES_1);
    if (kPlanes == 2) {
      _tile_zero(COLI_SUMS_1_SECOND);
      _tile_dpbsud(COLI_SUMS_1_SECOND, COLI_ROWS_SECOND, COLI_CODES_1);
      _tile_stored(COLI_SUMS_1_SECOND, scratch.sums[1][1], 64);
    }
    _tile_stored(COLI_SUMS_1_FIRST, scratch.sums[1][0], 64);
  }
  if (kPlanes == 2) _tile_stored(COLI_SUMS_0_SECOND, scratch.sums[0][1], 64);
  _tile_stored(COLI_SUMS_0_FIRST, scratch.sums[0][0], 64);
}

// Adds one kernel group's sums to the results of one weight tile, row by row.
template <int kPlanes>
void add_group(const Job& job, int64_t t, int64_t first, const Group& group, Scratch& scratch) {
  const Product& p = job.p;
  const bool is_half = p.w.scale_f16 != 0;
  const bool has_mins = p.w.mins != nullptr;
  const int64_t index = group.scale_index * kTile;
  const int64_t act_groups = p.a.padded_inputs >> p.act_shift;
  const uint8_t* mins_stream = tile_stream(p.w, p.w.mins, job.tile + t);
  const __m512 scales = load_scales(tile_stream(p.w, p.w.scales, job.tile + t), index, is_half);
  const __m512 mins = has_mins ? load_scales(mins_stream, index, is_half) : scales;
  for (int64_t r = 0; r < job.rows_per_tile; ++r) {
    const int64_t source = source_row(p.range, job.row + first + r);
    const int32_t* sums = p.a.sums + source * (p.a.padded_inputs / kSumGroup);
    const int32_t row_sum = sum_values(sums, group.begin, p.size);
    const __m512 act_scale =
        _mm512_set1_ps(p.a.scales[source * act_groups + (group.begin >> p.act_shift)]);
    __m512i sum = _mm512_load_si512(scratch.sums[t][kPlanes - 1][r]);
    if (kPlanes == 2) {
      const __m512i high = _mm512_load_si512(scratch.sums[t][0][r]);
      sum = _mm512_add_epi32(_mm512_slli_epi32(high, 8), sum);
    }
    // The zero point stays out of the tiles: sum (c - z) v = sum c v - z sum v, all exact.
    if (!has_mins) sum = _mm512_sub_epi32(sum, _mm512_set1_epi32(p.w.zero * row_sum));
    float* out = scratch.results[first + r][t];
    __m512 acc = _mm512_load_ps(out);
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scales, act_scale), acc);
    if (has_mins) {
      const __m512 min = _mm512_mul_ps(mins, act_scale);
      acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_set1_epi32(row_sum)), min, acc);
    }
    _mm512_store_ps(out, acc);
  }
}

// One segment of inputs for 16 rows, from its first kernel group on; returns the next segment's.
template <int kPlanes>
Group multiply_segment(const Job& job, int64_t first, Group group, int64_t end,
                       const uint8_t* const* codes, Scratch& scratch) {
  const Product& p = job.p;
  const int64_t begin = group.begin;
  const bool needs_copy = !is_run(job, first);
  while (group.begin < end) {
    const RowTile rows = needs_copy ? gather_rows<kPlanes>(job, first, group.begin, scratch)
                                    : locate_rows(job, first, group.begin);
    const int64_t offset = (group.begin - begin) * kTile;
    const uint8_t* at[2] = {codes[0] + offset, codes[1] + offset};
    sum_group<kPlanes>(rows, at, job.num_tiles, scratch);
    for (int64_t t = 0; t < job.num_tiles; ++t) {
      add_group<kPlanes>(job, t, first, group, scratch);
    }
    step_group(p, group);
  }
  return group;
}

template <int kBits, int kPlanes>
void multiply_job(const Job& job) {
  const Product& p = job.p;
  Scratch scratch;
  for (int64_t i = 0; i < job.num_rows * 2; ++i) {
    _mm512_store_ps(scratch.results[i / 2][i % 2], _mm512_setzero_ps());
  }
  Group group = first_group(p);
  while (group.begin < p.w.padded_inputs) {
    const int64_t left = p.w.padded_inputs - group.begin;
    const int64_t count = left < kSegment ? left : kSegment;
    const uint8_t* codes[2];
    for (int64_t t = 0; t < 2; ++t) {
      // A missing second tile is not read.
      codes[t] =
          t < job.num_tiles ? widen_codes<kBits>(job, t, group.begin, count, scratch) : codes[0];
    }
    Group next = group;
    for (int64_t first = 0; first < job.num_rows; first += job.rows_per_tile) {
      next = multiply_segment<kPlanes>(job, first, group, group.begin + count, codes, scratch);
    }
    group = next;
  }
  for (int64_t r = 0; r < job.num_rows; ++r) {
    for (int64_t t = 0; t < job.num_tiles; ++t) {
      store_outputs(p.w, p.range, job.tile + t, job.row + r, _mm512_load_ps(scratch.results[r][t]));
    }
  }
}

// Rows [begin, end), a multiple of `rows_per_tile` of them, against all tiles of the range.
template <int kBits, int kPlanes>
void multiply_rows(const Product& p, int64_t begin, int64_t end, int64_t rows_per_tile) {
  configure_tiles(p.size, rows_per_tile);
  int64_t panel = kPanelBytes / (kPlanes * p.a.padded_inputs) / kBlockRows * kBlockRows;
  if (panel < kBlockRows) panel = kBlockRows;
  for (int64_t row = begin; row < end; row += panel) {
    const int64_t panel_end = row + panel < end ? row + panel : end;
    for (int64_t tile = p.range.tile_begin; tile < p.range.tile_end; tile += 2) {
      const int64_t num_tiles = p.range.tile_end - tile > 1 ? 2 : 1;
      for (int64_t at = row; at < panel_end; at += kBlockRows) {
        const int64_t left = panel_end - at;
        const int64_t count = left < kBlockRows ? left : kBlockRows;
        multiply_job<kBits, kPlanes>({p, tile, num_tiles, at, count, rows_per_tile});
      }
    }
  }
  // Without live tiles the kernel has less to save when it switches threads.
  _tile_release();
}

template <int kBits, int kPlanes>
void multiply_range(const Product& p) {
  const MatmulRange& range = p.range;
  const int64_t num_rows = range.row_end - range.row_begin;
  const int64_t last_rows = num_rows % kTileRows;
  const int64_t full_end = range.row_end - last_rows;
  if (full_end > range.row_begin) {
    multiply_rows<kBits, kPlanes>(p, range.row_begin, full_end, kTileRows);
  }
  if (last_rows >= kMinRows) {
    multiply_rows<kBits, kPlanes>(p, full_end, range.row_end, last_rows);
  } else if (last_rows > 0) {
    MatmulRange last = range;
    last.row_begin = full_end;
    matmul_int_avx512(p.w, p.a, last);
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
  const bool is_fast = a.numerics == Numerics::kFast;
  if (w.bits == 4) {
    is_fast ? multiply_range<4, 1>(p) : multiply_range<4, 2>(p);
  } else {
    is_fast ? multiply_range<8, 1>(p) : multiply_range<8, 2>(p);
  }
}

void matmul_int_float_amx(const IntMatrix& w, const FloatRows& a, const MatmulRange& range) {
  matmul_int_float_avx512(w, a, range);
}

}  // namespace coli
