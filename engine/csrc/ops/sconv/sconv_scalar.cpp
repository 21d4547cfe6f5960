// Short convolution: the definition every other variant matches bit for bit.
#include "ops/sconv/sconv.h"

#include <cmath>

namespace coli {

void sconv_row_scalar(const ConvRow& row) {
  for (int64_t c = 0; c < row.count; ++c) {
    float sum = 0.0F;
    for (int64_t j = 0; j < row.num_taps; ++j) {
      sum = std::fma(row.weight[j * row.ldw + c], row.inputs[j][c], sum);
    }
    const float y = row.inputs[row.num_taps - 1][c] + sum;
    row.out[c] = row.base == nullptr ? y : row.base[c] + y;
  }
}

}  // namespace coli
