// What an attention layer has beyond plain causal attention. Source: docs/numerics.md, "Attention".
#pragma once

#include <cstdint>
#include <vector>

#include "core/pod.h"

namespace coli {

// Biases by distance: profiles (num_profiles, extent), which each query head mixes for itself.
struct RelativeProfiles {
  const float* values;
  int64_t num_profiles;
  int64_t extent;
};

// Queries grow with their position: 1 + alpha * ln(max((position + 1) / floor, 1)). 0: they do not.
struct LogScaling {
  double floor;
  double alpha;
};

class AttentionOptions {
 public:
  // window 0: every earlier key is seen. sinks: one score per query head, or empty. Throws
  // std::invalid_argument on a value that cannot be.
  AttentionOptions(int64_t window, std::vector<float> sinks, const RelativeProfiles& profiles,
                   const LogScaling& scaling);

  int64_t window() const { return window_; }
  const std::vector<float>& sinks() const { return sinks_; }
  int64_t num_profiles() const { return num_profiles_; }
  // Without data where there are no profiles.
  RelativeBank bank() const;
  // Whether a query before `end_position` is scaled by anything but 1.
  bool scales_queries(int64_t end_position) const;
  float query_scale(int64_t position) const;

 private:
  int64_t window_;
  std::vector<float> sinks_;
  std::vector<float> bank_;  // each profile backwards, between kBankPad zeros
  int64_t num_profiles_;
  int64_t extent_;
  LogScaling scaling_;
};

}  // namespace coli
