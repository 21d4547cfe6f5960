// Short convolution, 8 channels at a time.
#include "ops/sconv/sconv.h"

#include <immintrin.h>

namespace coli {

namespace {

// Lanes below `left` have their sign bit set.
__m256i lane_mask(int64_t left) {
  const __m256i iota = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const int32_t count = left >= 8 ? 8 : static_cast<int32_t>(left);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), iota);
}

}  // namespace

void sconv_row_avx2(const ConvRow& row) {
  for (int64_t c = 0; c < row.count; c += 8) {
    const __m256i mask = lane_mask(row.count - c);
    __m256 sum = _mm256_setzero_ps();
    __m256 input = sum;
    for (int64_t j = 0; j < row.num_taps; ++j) {
      input = _mm256_maskload_ps(row.inputs[j] + c, mask);
      sum = _mm256_fmadd_ps(_mm256_maskload_ps(row.weight + j * row.ldw + c, mask), input, sum);
    }
    __m256 y = _mm256_add_ps(input, sum);
    if (row.base != nullptr) y = _mm256_add_ps(_mm256_maskload_ps(row.base + c, mask), y);
    _mm256_maskstore_ps(row.out + c, mask, y);
  }
}

}  // namespace coli
