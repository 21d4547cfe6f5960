// What the AMX source lays out before it multiplies: a segment of the inputs, with the activation
// rows at equal distances and the weight codes as signed bytes.
#pragma once

#include "ops/matmul_int/blocks.h"
#include "ops/matmul_int/tile_avx512.h"

namespace coli {

static constexpr int64_t kTileRows = 16;    // activation rows per tile register
static constexpr int64_t kBlockRows = 512;  // rows that share one widening of the codes
static constexpr int64_t kJobTiles = 4;     // weight tiles that share one look at the rows
static constexpr int64_t kSegment = 640;    // inputs widened at a time, a bound for the stack
static constexpr int64_t kLag = 3;          // kernel groups between multiplying and adding
static constexpr int64_t kMinGroup = 16;    // the least inputs of a kernel group

// What a kernel group's sums still need besides the two scales.
enum class Offset {
  kNone,  // the codes' middle is the zero point
  kZero,  // another zero point
  kMins,  // a minimum for each weight group
};

// A few weight tiles against up to 512 rows.
struct Job {
  const Product& p;
  int64_t tile;
  int64_t num_tiles;
  int64_t row;
  int64_t num_rows;
  int64_t rows_per_tile;  // as configured: 16, or fewer in the last rows
};

// Everything a job works with, on the stack.
struct alignas(64) Scratch {
  uint8_t codes[kJobTiles][kSegment * kTile];
  uint8_t rows[2][kTileRows][kSegment];
  float scales[kSegment / 32][kTileRows];             // of activations; zero for rows there are not
  int32_t row_sums[kSegment / kMinGroup][kTileRows];  // of each kernel group, where used
  int32_t sums[2][2][kTileRows][kTile];               // [turn][plane]
  float results[kJobTiles][kBlockRows][kTile];
};

// Up to 16 activation rows from the first input of a segment on.
struct RowTile {
  const uint8_t* planes[2];
  int64_t stride;  // bytes from row to row
  int64_t first;   // in the job
};

// The inputs of a segment.
struct Span {
  int64_t begin;
  int64_t count;
};

// The weight tile and kernel group whose sums are added.
struct Added {
  const uint8_t* scales;
  const uint8_t* mins;
  Group group;
  int64_t at;  // in the segment
};

// Inputs per segment: equal parts, because a short one would keep the tile unit waiting.
static inline int64_t segment_size(int64_t padded_inputs) {
  const int64_t blocks = padded_inputs / kInputPad;
  const int64_t parts = (padded_inputs + kSegment - 1) / kSegment;
  return (blocks + parts - 1) / parts * kInputPad;
}

static constexpr int32_t middle(Code code) { return code == Code::kNibble ? 8 : 128; }

// Copies scattered rows together, since a tile load wants them at equal distances.
template <int kPlanes>
static void gather_rows(const Job& job, const Span& span, RowTile& rows, Scratch& scratch) {
  const QuantRows& a = job.p.a;
  for (int64_t r = 0; r < job.rows_per_tile; ++r) {
    const int64_t source = source_row(job.p.range, job.row + rows.first + r);
    for (int plane = 0; plane < kPlanes; ++plane) {
      const uint8_t* from = a.data + (source * 2 + plane) * a.padded_inputs + span.begin;
      for (int64_t i = 0; i < span.count; i += 64) {
        _mm512_store_si512(&scratch.rows[plane][r][i], _mm512_loadu_si512(from + i));
      }
    }
  }
  rows.planes[0] = scratch.rows[0][0];
  rows.planes[1] = scratch.rows[1][0];
  rows.stride = kSegment;
}

// Finds the rows of a tile and lays out what their scales and sums are, 16 rows side by side.
template <int kPlanes, Offset kOffset>
static RowTile prepare_rows(const Job& job, int64_t first, const Span& span, Scratch& scratch) {
  const Product& p = job.p;
  const int64_t act_groups = p.a.padded_inputs >> p.act_shift;
  const int64_t first_source = source_row(p.range, job.row + first);
  const int64_t num_scales = span.count >> p.act_shift;
  bool is_run = true;
  for (int64_t r = 0; r < job.rows_per_tile; ++r) {
    const int64_t source = source_row(p.range, job.row + first + r);
    is_run = is_run && source == first_source + r;
    const float* scales = p.a.scales + source * act_groups + (span.begin >> p.act_shift);
    for (int64_t g = 0; g < num_scales; ++g) scratch.scales[g][r] = scales[g];
    if (kOffset == Offset::kNone) continue;
    const int32_t* sums = p.a.sums + source * (p.a.padded_inputs / kSumGroup);
    for (int64_t at = 0; at < span.count; at += p.size) {
      scratch.row_sums[at / p.size][r] = sum_values(sums, span.begin + at, p.size);
    }
  }
  RowTile rows = {};
  rows.first = first;
  if (is_run) {
    rows.planes[0] = p.a.data + first_source * 2 * p.a.padded_inputs + span.begin;
    rows.planes[1] = rows.planes[0] + p.a.padded_inputs;
    rows.stride = 2 * p.a.padded_inputs;
  } else {
    gather_rows<kPlanes>(job, span, rows, scratch);
  }
  return rows;
}

// Codes of a segment as signed bytes around their middle.
template <Code kCode>
static void widen_codes(const Job& job, int64_t t, const Span& span, Scratch& scratch) {
  const uint8_t* codes = tile_codes(job.p.w, job.tile + t);
  const __m512i levels = load_levels<kCode>(job.p.w);
  const __m512i offset = _mm512_set1_epi8(static_cast<int8_t>(middle(kCode)));
  for (int64_t k = 0; k < span.count; k += 8) {
    __m512i pair[2];
    load_codes<kCode>(codes, span.begin + k, levels, pair);
    _mm512_store_si512(&scratch.codes[t][k * kTile], _mm512_sub_epi8(pair[0], offset));
    _mm512_store_si512(&scratch.codes[t][k * kTile + 64], _mm512_sub_epi8(pair[1], offset));
  }
}

}  // namespace coli
