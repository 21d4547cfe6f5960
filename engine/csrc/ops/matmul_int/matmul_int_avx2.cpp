// Integer products with AVX2: codes and activations meet as 16-bit numbers in vpmaddwd.
//
// The byte product vpmaddubsw would saturate (255 * 127 * 2 > 32767), so 4 codes of a 32-bit lane
// are widened to the pairs (0, 2) and (1, 3) by a mask and a shift. Few rows take both halves of
// a tile at once, as one linear stream; 3 and 4 rows take one half after the other, for lack of
// registers.
#include "ops/matmul_int/blocks.h"
#include "ops/matmul_int/matmul_int.h"
#include "ops/matmul_int/tile_avx2.h"

namespace coli {
namespace {

// Activations kept in the L2 cache (256 KiB on the oldest processors) while tiles pass.
constexpr int64_t kPanelBytes = 128 << 10;

COLI_INLINE __m256i broadcast_pair(const uint8_t* row, int64_t pair) {
  int32_t word = 0;
  __builtin_memcpy(&word, row + pair * 4, sizeof word);
  return _mm256_set1_epi32(word);
}

// Code pairs of the 8 inputs at `k` for 8 output rows: inputs (0, 2), (1, 3), (4, 6), (5, 7). Of
// levels where codes number them.
template <Code kCode>
COLI_INLINE void widen_codes(const uint8_t* codes, int64_t k, __m256i levels, __m256i* pairs) {
  if (kCode == Code::kByte) {
    const __m256i mask = _mm256_set1_epi16(255);
    for (int block = 0; block < 2; ++block) {
      const __m256i bytes = load_words(codes + k * 16 + block * 64);
      pairs[2 * block] = _mm256_and_si256(bytes, mask);
      pairs[2 * block + 1] = _mm256_srli_epi16(bytes, 8);
    }
  } else if (kCode == Code::kLevel) {
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i mask = _mm256_set1_epi16(255);
    const __m256i both = load_words(codes + k * 8);
    for (int block = 0; block < 2; ++block) {
      const __m256i shifted = block == 0 ? both : _mm256_srli_epi16(both, 4);
      const __m256i bytes = _mm256_shuffle_epi8(levels, _mm256_and_si256(shifted, nibble));
      pairs[2 * block] = _mm256_and_si256(bytes, mask);
      pairs[2 * block + 1] = _mm256_srli_epi16(bytes, 8);
    }
  } else {
    const __m256i mask = _mm256_set1_epi16(15);
    const __m256i bytes = load_words(codes + k * 8);
    pairs[0] = _mm256_and_si256(bytes, mask);
    pairs[1] = _mm256_and_si256(_mm256_srli_epi16(bytes, 8), mask);
    pairs[2] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
    pairs[3] = _mm256_srli_epi16(bytes, 12);
  }
}

// Exact sums over one kernel group, on top of the start values in `sums`.
template <Code kCode, int kRows, int kHalves>
COLI_INLINE void sum_group(const Product& p, const Block<kRows>& block, int64_t begin,
                           __m256i (&sums)[kHalves][kRows]) {
  const __m256i levels = load_levels<kCode>(p.w);
  for (int64_t k = begin; k < begin + p.size; k += 8) {
    fetch_codes<kCode, kRows, 1>(block, block.codes + k * 2 * code_bits(kCode));
    for (int half = 0; half < kHalves; ++half) {
      __m256i pairs[4];
      widen_codes<kCode>(block.codes + half * 32, k, levels, pairs);
      for (int pair = 0; pair < 4; ++pair) {
        for (int r = 0; r < kRows; ++r) {
          const __m256i values = broadcast_pair(block.rows[r], k / 2 + pair);
          const __m256i product = _mm256_madd_epi16(pairs[pair], values);
          sums[half][r] = _mm256_add_epi32(sums[half][r], product);
          // Keeps the compiler from summing the products as a tree, which spills accumulators.
          asm("" : "+x"(sums[half][r]));
        }
      }
    }
  }
}

// Adds one kernel group's sums to the results: scale product, then fused multiply-add.
template <Code kCode, int kRows, int kHalves>
COLI_INLINE void add_group(const Product& p, const Block<kRows>& block, const Group& group,
                           const int32_t (&row_sums)[kRows], __m256i (&sums)[kHalves][kRows],
                           __m256 (&acc)[kHalves][kRows]) {
  const int64_t index = group.scale_index * kTile;
  const int64_t act_index = group.begin >> p.act_shift;
  fetch_scales(p, block, index);
  for (int half = 0; half < kHalves; ++half) {
    const int64_t at = index + half * kHalfTile;
    const __m256 scales = load_group_scales<kCode>(p.w, block.scales, at);
    for (int r = 0; r < kRows; ++r) {
      const __m256 scale = _mm256_mul_ps(scales, _mm256_set1_ps(block.act_scales[r][act_index]));
      const __m256 sum = _mm256_cvtepi32_ps(sums[half][r]);
      acc[half][r] = _mm256_fmadd_ps(sum, scale, acc[half][r]);
    }
    if (block.mins == nullptr) continue;
    const __m256 mins = load_group_scales<kCode>(p.w, block.mins, at);
    for (int r = 0; r < kRows; ++r) {
      const __m256 min = _mm256_mul_ps(mins, _mm256_set1_ps(block.act_scales[r][act_index]));
      const __m256 row_sum = _mm256_cvtepi32_ps(_mm256_set1_epi32(row_sums[r]));
      acc[half][r] = _mm256_fmadd_ps(row_sum, min, acc[half][r]);
    }
  }
}

template <Code kCode, int kRows, int kHalves>
COLI_INLINE void multiply_halves(const Product& p, Block<kRows> block, int64_t first_output,
                                 int64_t row) {
  // The zero point leaves the inner loop: sum (c - z) v = sum c v - z sum v, all exact.
  const int32_t factor = block.mins != nullptr ? 0 : -p.w.zero;
  Group group = first_group(p);
  __m256 acc[kHalves][kRows] = {};
  while (group.begin < p.w.padded_inputs) {
    __m256i sums[kHalves][kRows];
    int32_t row_sums[kRows];
    for (int r = 0; r < kRows; ++r) {
      row_sums[r] = sum_values(block.sums[r], group.begin, p.size);
      const __m256i start = _mm256_set1_epi32(row_sums[r] * factor);
      for (int half = 0; half < kHalves; ++half) sums[half][r] = start;
    }
    sum_group<kCode, kRows, kHalves>(p, block, group.begin, sums);
    add_group<kCode, kRows, kHalves>(p, block, group, row_sums, sums, acc);
    step_group(p, group);
  }
  for (int half = 0; half < kHalves; ++half) {
    for (int r = 0; r < kRows; ++r) {
      store_outputs(p.w, p.range, first_output + half * kHalfTile, row + r, acc[half][r]);
    }
  }
}

template <Code kCode, int kRows>
void multiply_block(const Product& p, int64_t tile, int64_t row, bool is_first) {
  Block<kRows> block = locate_block<kRows>(p, tile, row, is_first);
  if (kRows <= 2) {
    multiply_halves<kCode, kRows, 2>(p, block, tile * kTile, row);
    return;
  }
  multiply_halves<kCode, kRows, 1>(p, block, tile * kTile, row);
  block.codes += 32;
  block.scales += kHalfTile * scale_bytes(p.w);
  if (block.mins != nullptr) block.mins += kHalfTile * scale_bytes(p.w);
  block.codes_end = nullptr;
  block.scales_end = nullptr;
  multiply_halves<kCode, kRows, 1>(p, block, tile * kTile + kHalfTile, row);
}

template <Code kCode>
void multiply_rows(const Product& p, int64_t tile, int64_t row_begin, int64_t row_end) {
  int64_t row = row_begin;
  for (; row + 4 <= row_end; row += 4) multiply_block<kCode, 4>(p, tile, row, row == row_begin);
  const bool is_first = row == row_begin;
  if (row_end - row == 3) multiply_block<kCode, 3>(p, tile, row, is_first);
  if (row_end - row == 2) multiply_block<kCode, 2>(p, tile, row, is_first);
  if (row_end - row == 1) multiply_block<kCode, 1>(p, tile, row, is_first);
}

template <Code kCode>
void multiply_range(const Product& p) {
  const MatmulRange& range = p.range;
  fetch_start(p);
  int64_t panel = kPanelBytes / (2 * p.a.padded_inputs) / 4 * 4;
  if (panel < 4) panel = 4;
  for (int64_t row = range.row_begin; row < range.row_end; row += panel) {
    const int64_t row_end = row + panel < range.row_end ? row + panel : range.row_end;
    for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
      multiply_rows<kCode>(p, tile, row, row_end);
    }
  }
}

}  // namespace

void matmul_int_avx2(const IntMatrix& w, const QuantRows& a, const MatmulRange& range) {
  if (is_empty(range)) return;
  const Product p = describe_product(w, a, range);
  switch (code_of(w)) {
    case Code::kNibble:
      return multiply_range<Code::kNibble>(p);
    case Code::kByte:
      return multiply_range<Code::kByte>(p);
    case Code::kLevel:
      return multiply_range<Code::kLevel>(p);
  }
}

}  // namespace coli
