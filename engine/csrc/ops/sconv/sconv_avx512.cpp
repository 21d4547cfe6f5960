// Short convolution, 16 channels at a time.
#include "ops/sconv/sconv.h"

#include <immintrin.h>

namespace coli {

namespace {

__mmask16 lane_mask(int64_t left) {
  return left >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1U << left) - 1U);
}

}  // namespace

void sconv_row_avx512(const ConvRow& row) {
  for (int64_t c = 0; c < row.count; c += 16) {
    const __mmask16 mask = lane_mask(row.count - c);
    __m512 sum = _mm512_setzero_ps();
    __m512 input = sum;
    for (int64_t j = 0; j < row.num_taps; ++j) {
      input = _mm512_maskz_loadu_ps(mask, row.inputs[j] + c);
      sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, row.weight + j * row.ldw + c), input, sum);
    }
    __m512 y = _mm512_add_ps(input, sum);
    if (row.base != nullptr) y = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, row.base + c), y);
    _mm512_mask_storeu_ps(row.out + c, mask, y);
  }
}

}  // namespace coli
