#include "ops/sequence/attention_options.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/rows.h"

namespace coli {
namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 24;

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace

AttentionOptions::AttentionOptions(int64_t window, std::vector<float> sinks,
                                   const RelativeProfiles& profiles, const LogScaling& scaling)
    : window_(window),
      sinks_(std::move(sinks)),
      num_profiles_(profiles.num_profiles),
      extent_(profiles.extent),
      scaling_(scaling) {
  require(window_ >= 0, "attention: a window cannot be negative");
  require(all_finite(sinks_), "attention: a sink is not finite");
  require(num_profiles_ >= 0 && num_profiles_ <= kMaxProfiles,
          "attention: more relative profiles than 64");
  require(num_profiles_ == 0 || (extent_ >= 1 && extent_ <= kMaxExtent),
          "attention: relative profiles need at least one distance");
  require(std::isfinite(scaling_.floor) && scaling_.floor >= 0.0 && std::isfinite(scaling_.alpha),
          "attention: the query scaling must be finite, its floor not negative");
  const int64_t stride = extent_ + 2 * kBankPad;
  bank_.resize(static_cast<size_t>(num_profiles_ == 0 ? 0 : num_profiles_ * stride));
  for (int64_t j = 0; j < num_profiles_; ++j) {
    const float* from = profiles.values + j * extent_;
    std::reverse_copy(from, from + extent_, bank_.begin() + j * stride + kBankPad);
  }
}

RelativeBank AttentionOptions::bank() const {
  if (num_profiles_ == 0) return {};
  return {bank_.data(), num_profiles_, extent_, extent_ + 2 * kBankPad};
}

bool AttentionOptions::scales_queries(int64_t end_position) const {
  return scaling_.floor > 0.0 && static_cast<double>(end_position) > scaling_.floor;
}

float AttentionOptions::query_scale(int64_t position) const {
  const double ratio = static_cast<double>(position + 1) / scaling_.floor;
  return static_cast<float>(1.0 + scaling_.alpha * std::log(std::max(ratio, 1.0)));
}

}  // namespace coli
