#include "ops/norm/layer_norm.h"

#include <cmath>

#include "core/thread_team.h"

namespace coli {
namespace {

constexpr int64_t kRowGrain = 32;

void normalize(float* x, int64_t n, const float* weight, const float* bias, double eps) {
  const auto count = static_cast<double>(n);
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
  const double mean = sum / count;
  double squares = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    const double from_mean = static_cast<double>(x[i]) - mean;
    squares += from_mean * from_mean;
  }
  const double r = 1.0 / std::sqrt(squares / count + eps);
  for (int64_t i = 0; i < n; ++i) {
    const double normed = (static_cast<double>(x[i]) - mean) * r;
    x[i] =
        static_cast<float>(normed * static_cast<double>(weight[i]) + static_cast<double>(bias[i]));
  }
}

}  // namespace

void layer_norm_columns(Rows& x, int64_t offset, int64_t n, const float* weight, const float* bias,
                        double eps) {
  require(n >= 1 && offset >= 0 && offset <= x.width() && n <= x.width() - offset,
          "layer_norm_columns: the columns lie outside the rows");
  ThreadTeam::instance().run(x.rows(), kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) normalize(x.row(r) + offset, n, weight, bias, eps);
  });
}

}  // namespace coli
