// Float products with AVX-512: a weight tile is one register, an output four accumulators.
//
// Up to six rows share each weight register (24 of 32 registers accumulate). While a block of rows
// works on one tile it asks for the next, a share in each of its passes, so that memory and
// arithmetic overlap; a single row streams and leaves that to the hardware.
#include "ops/matmul_float/matmul_float.h"

#include <immintrin.h>

namespace coli {

namespace {

constexpr int64_t kMaxRows = 6;
constexpr int64_t kRowBlock = 48;  // rows per sweep over the weights; their inputs stay in L2
constexpr int64_t kLine = 64;      // bytes per cache line

template <FloatKind kKind>
constexpr int64_t kWeightBytes = kKind == FloatKind::kF32    ? 4
                                 : kKind == FloatKind::kE4m3 ? 1
                                                             : 2;

// The outputs of one tile and up to six rows, and what to prefetch meanwhile: `prefetch_bytes`
// of every four inputs of the tile that starts at `prefetch`.
struct Block {
  const MatmulRange* range;
  int64_t num_outputs;
  int64_t tile;
  int64_t row;
  const char* prefetch;
  int64_t prefetch_bytes;
};

template <FloatKind kKind>
__m512 load_weights(const void* data, int64_t index, __m512 scales) {
  if constexpr (kKind == FloatKind::kE4m3) {
    const void* source = static_cast<const uint8_t*>(data) + index;
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(source)));
    const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(-0x4001));
    return _mm512_mul_ps(_mm512_cvtph_ps(halves), scales);
  } else if constexpr (kKind == FloatKind::kF32) {
    return _mm512_loadu_ps(static_cast<const float*>(data) + index);
  } else {
    const void* source = static_cast<const uint16_t*>(data) + index;
    const __m256i bits = _mm256_loadu_si256(static_cast<const __m256i*>(source));
    if constexpr (kKind == FloatKind::kF16) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
}

// Writes the outputs of one row: bias, sum and the ragged last tile.
void store_outputs(const Block& block, int row, __m512 result) {
  const MatmulRange& range = *block.range;
  const int64_t first = block.tile * kTile;
  const int64_t left = block.num_outputs - first;
  const __mmask16 mask =
      left >= kTile ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1U << left) - 1U);
  if (range.bias != nullptr) {
    result = _mm512_add_ps(result, _mm512_maskz_loadu_ps(mask, range.bias + first));
  }
  float* y = range.y + (block.row + row) * range.ldy + first;
  if (range.add != 0) result = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), result);
  _mm512_mask_storeu_ps(y, mask, result);
}

template <FloatKind kKind, int kRows>
void multiply_block(const FloatMatrix& w, const float* const* x, const Block& block) {
  const int64_t num_inputs = w.num_inputs;
  const int64_t run = kKind == FloatKind::kE4m3 ? w.group : num_inputs;  // inputs of one scale
  const int64_t first = block.tile * num_inputs * kTile;
  __m512 scales = _mm512_setzero_ps();
  const float* rows[kRows];
  __m512 acc[kRows][4];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    rows[r] = x[r];
    for (int q = 0; q < 4; ++q) acc[r][q] = _mm512_setzero_ps();
  }
  const auto step = [&](int64_t k, int q) {
    const __m512 weights = load_weights<kKind>(w.data, first + k * kTile, scales);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      acc[r][q] = _mm512_fmadd_ps(weights, _mm512_set1_ps(rows[r][k]), acc[r][q]);
    }
  };
  int64_t k = 0;
  for (int64_t begin = 0; begin < num_inputs; begin += run) {
    if constexpr (kKind == FloatKind::kE4m3) {
      scales = _mm512_loadu_ps(w.scales + (block.tile * w.num_groups + begin / run) * kTile);
    }
    const int64_t end = run < num_inputs - begin ? begin + run : num_inputs;
    for (; k + 4 <= end; k += 4) {
      if constexpr (kRows > 1) {
        const char* next = block.prefetch + k * kTile * kWeightBytes<kKind>;
        for (int64_t b = 0; b < block.prefetch_bytes; b += kLine) {
          _mm_prefetch(next + b, _MM_HINT_T1);
        }
      }
      step(k, 0);
      step(k + 1, 1);
      step(k + 2, 2);
      step(k + 3, 3);
    }
  }
  if (k < num_inputs) step(k, 0);
  if (k + 1 < num_inputs) step(k + 1, 1);
  if (k + 2 < num_inputs) step(k + 2, 2);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const __m512 even = _mm512_add_ps(acc[r][0], acc[r][1]);
    store_outputs(block, r, _mm512_add_ps(even, _mm512_add_ps(acc[r][2], acc[r][3])));
  }
}

template <FloatKind kKind>
void multiply_rows(const FloatMatrix& w, const float* const* x, int64_t num_rows,
                   const Block& block) {
  switch (num_rows) {
    case 1:
      return multiply_block<kKind, 1>(w, x, block);
    case 2:
      return multiply_block<kKind, 2>(w, x, block);
    case 3:
      return multiply_block<kKind, 3>(w, x, block);
    case 4:
      return multiply_block<kKind, 4>(w, x, block);
    case 5:
      return multiply_block<kKind, 5>(w, x, block);
    default:
      return multiply_block<kKind, 6>(w, x, block);
  }
}

// Rows of the next pass: six, or an even split of the last seven to eleven.
int64_t pass_rows(int64_t left) {
  if (left <= kMaxRows) return left;
  return left >= 2 * kMaxRows ? kMaxRows : (left + 1) / 2;
}

// Every tile of the range for output rows [begin, begin + num_rows), num_rows <= kRowBlock.
template <FloatKind kKind>
void multiply_sweep(const FloatMatrix& w, const float* const* x, int64_t begin, int64_t num_rows,
                    const MatmulRange& range) {
  constexpr int64_t kStepBytes = 4 * kTile * kWeightBytes<kKind>;
  const int64_t tile_bytes = w.num_inputs * kTile * kWeightBytes<kKind>;
  const int64_t num_passes = (num_rows + kMaxRows - 1) / kMaxRows;
  int64_t bytes = kStepBytes;  // of each step's prefetch: halved while there are passes to share it
  while (bytes > kLine && num_passes * bytes >= 2 * kStepBytes) bytes /= 2;
  for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
    const char* next = static_cast<const char*>(w.data) + (tile + 1) * tile_bytes;
    int64_t offset = 0;
    for (int64_t r = 0; r < num_rows;) {
      const int64_t count = pass_rows(num_rows - r);
      const Block block{&range, w.num_outputs, tile, begin + r, next + offset, bytes};
      multiply_rows<kKind>(w, x + r, count, block);
      offset = (offset + bytes) % kStepBytes;
      r += count;
    }
  }
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
    multiply_sweep<kKind>(w, x, begin, num_rows, range);
  }
}

}  // namespace

void matmul_float_avx512(const FloatMatrix& w, const FloatRows& a, const MatmulRange& range) {
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
