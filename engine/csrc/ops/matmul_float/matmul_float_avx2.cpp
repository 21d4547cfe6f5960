// Float products with AVX2: half a weight tile is one register, an output four accumulators.
//
// One row takes both halves of a tile (8 accumulators hide the fma latency). More rows go three
// at a time over one half (12 of 16 registers accumulate); each half's pass asks for its share of
// the next tile, so that memory and arithmetic overlap.
#include "ops/matmul_float/matmul_float.h"

#include <immintrin.h>

namespace coli {

namespace {

constexpr int64_t kMaxRows = 3;
constexpr int64_t kRowBlock = 48;  // rows per sweep over the weights; their inputs stay in L2
constexpr int64_t kHalf = kTile / 2;
constexpr int64_t kLine = 64;  // bytes per cache line

template <FloatKind kKind>
constexpr int64_t kWeightBytes = kKind == FloatKind::kF32    ? 4
                                 : kKind == FloatKind::kE4m3 ? 1
                                                             : 2;

// The outputs of one tile, or of one half of it, for up to three rows.
struct Block {
  const MatmulRange* range;
  int64_t num_outputs;
  int64_t first_output;
  int64_t row;
};

template <FloatKind kKind>
__m256 load_weights(const void* data, int64_t index, __m256 scales) {
  if constexpr (kKind == FloatKind::kE4m3) {
    const void* source = static_cast<const uint8_t*>(data) + index;
    const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64(static_cast<const __m128i*>(source)));
    const __m128i halves = _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16(-0x4001));
    return _mm256_mul_ps(_mm256_cvtph_ps(halves), scales);
  } else if constexpr (kKind == FloatKind::kF32) {
    return _mm256_loadu_ps(static_cast<const float*>(data) + index);
  } else {
    const void* source = static_cast<const uint16_t*>(data) + index;
    const __m128i bits = _mm_loadu_si128(static_cast<const __m128i*>(source));
    if constexpr (kKind == FloatKind::kF16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
}

// Writes 8 outputs of one row: bias, sum and the ragged last tile.
void store_outputs(const Block& block, int row, int half, __m256 result) {
  const MatmulRange& range = *block.range;
  const int64_t first = block.first_output + half * kHalf;
  const int64_t left = block.num_outputs - first;
  float* y = range.y + (block.row + row) * range.ldy + first;
  if (left >= kHalf) {
    if (range.bias != nullptr) result = _mm256_add_ps(result, _mm256_loadu_ps(range.bias + first));
    if (range.add != 0) result = _mm256_add_ps(_mm256_loadu_ps(y), result);
    _mm256_storeu_ps(y, result);
    return;
  }
  float lanes[kHalf];
  _mm256_storeu_ps(lanes, result);
  for (int64_t l = 0; l < left; ++l) {
    const float biased = range.bias != nullptr ? lanes[l] + range.bias[first + l] : lanes[l];
    y[l] = range.add != 0 ? y[l] + biased : biased;
  }
}

// Asks for a half's share of inputs [k, k + 4) of the tile after the block's.
template <FloatKind kKind>
void prefetch_next(const FloatMatrix& w, const Block& block, int64_t k) {
  constexpr int64_t kShare = 2 * kTile * kWeightBytes<kKind>;
  const int64_t input = (block.first_output / kTile + 1) * w.num_inputs + k;
  const int64_t half = block.first_output % kTile / kHalf;
  const char* next = static_cast<const char*>(w.data) + input * kTile * kWeightBytes<kKind>;
  for (int64_t b = 0; b < kShare; b += kLine) {
    _mm_prefetch(next + half * kShare + b, _MM_HINT_T1);
  }
}

// kHalves half tiles (from block.first_output) times kRows rows.
template <FloatKind kKind, int kHalves, int kRows>
void multiply_block(const FloatMatrix& w, const float* const* x, const Block& block) {
  const int64_t num_inputs = w.num_inputs;
  const int64_t run = kKind == FloatKind::kE4m3 ? w.group : num_inputs;  // inputs of one scale
  const int64_t tile = block.first_output / kTile;
  const int64_t first = tile * num_inputs * kTile + block.first_output % kTile;
  __m256 scales[kHalves] = {};
  const float* rows[kRows];
  __m256 acc[kHalves][kRows][4];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    rows[r] = x[r];
    for (int h = 0; h < kHalves; ++h) {
      for (int q = 0; q < 4; ++q) acc[h][r][q] = _mm256_setzero_ps();
    }
  }
  const auto step = [&](int64_t k, int q) {
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      const int64_t index = first + k * kTile + h * kHalf;
      const __m256 weights = load_weights<kKind>(w.data, index, scales[h]);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m256 input = _mm256_broadcast_ss(rows[r] + k);
        acc[h][r][q] = _mm256_fmadd_ps(weights, input, acc[h][r][q]);
      }
    }
  };
  int64_t k = 0;
  for (int64_t begin = 0; begin < num_inputs; begin += run) {
    if constexpr (kKind == FloatKind::kE4m3) {
      const float* group = w.scales + (tile * w.num_groups + begin / run) * kTile;
      for (int h = 0; h < kHalves; ++h) {
        scales[h] = _mm256_loadu_ps(group + block.first_output % kTile + h * kHalf);
      }
    }
    const int64_t end = run < num_inputs - begin ? begin + run : num_inputs;
    for (; k + 4 <= end; k += 4) {
      if constexpr (kHalves == 1) prefetch_next<kKind>(w, block, k);
      step(k, 0);
      step(k + 1, 1);
      step(k + 2, 2);
      step(k + 3, 3);
    }
  }
  if (k < num_inputs) step(k, 0);
  if (k + 1 < num_inputs) step(k + 1, 1);
  if (k + 2 < num_inputs) step(k + 2, 2);
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; ++h) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256 even = _mm256_add_ps(acc[h][r][0], acc[h][r][1]);
      const __m256 odd = _mm256_add_ps(acc[h][r][2], acc[h][r][3]);
      store_outputs(block, r, h, _mm256_add_ps(even, odd));
    }
  }
}

// One tile for up to three rows.
template <FloatKind kKind>
void multiply_rows(const FloatMatrix& w, const float* const* x, int64_t num_rows,
                   const Block& block) {
  if (num_rows == 1) return multiply_block<kKind, 2, 1>(w, x, block);
  for (int64_t half = 0; half < 2; ++half) {
    const Block part{block.range, block.num_outputs, block.first_output + half * kHalf, block.row};
    if (part.first_output >= part.num_outputs) break;
    if (num_rows == 2) {
      multiply_block<kKind, 1, 2>(w, x, part);
    } else {
      multiply_block<kKind, 1, 3>(w, x, part);
    }
  }
}

// Rows of the next pass: three, or two and two for the last four.
int64_t pass_rows(int64_t left) {
  if (left <= kMaxRows) return left;
  return left == 4 ? 2 : kMaxRows;
}

template <FloatKind kKind>
void multiply(const FloatMatrix& w, const FloatRows& a, const MatmulRange& range) {
  const float* x[kRowBlock];
  for (int64_t begin = range.row_begin; begin < range.row_end; begin += kRowBlock) {
    const int64_t left = range.row_end - begin;
    const int64_t num_rows = left < kRowBlock ? left : kRowBlock;
    for (int64_t r = 0; r < num_rows; ++r) {
      const int64_t source = range.row_index != nullptr ? range.row_index[begin + r] : begin + r;
      x[r] = a.x + source * a.ldx;
    }
    for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
      for (int64_t r = 0; r < num_rows;) {
        const int64_t count = pass_rows(num_rows - r);
        multiply_rows<kKind>(w, x + r, count, {&range, w.num_outputs, tile * kTile, begin + r});
        r += count;
      }
    }
  }
}

}  // namespace

void matmul_float_avx2(const FloatMatrix& w, const FloatRows& a, const MatmulRange& range) {
  switch (w.kind) {
    case FloatKind::kF32:
      return multiply<FloatKind::kF32>(w, a, range);
    case FloatKind::kF16:
      return multiply<FloatKind::kF16>(w, a, range);
    case FloatKind::kBf16:
      return multiply<FloatKind::kBf16>(w, a, range);
    case FloatKind::kE4m3:
      return multiply<FloatKind::kE4m3>(w, a, range);
  }
}

}  // namespace coli
