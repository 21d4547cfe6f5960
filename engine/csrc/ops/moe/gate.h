// The gated unit between an expert's two products.
#pragma once

#include <cstdint>
#include <optional>

#include "ops/swiglu/swiglu.h"

namespace coli {

class Expert;

// gate_up (rows, 2 * width) -> hidden (rows, width) as `expert` does it, on the thread team.
void gate_rows(const Expert& expert, const float* gate_up, int64_t rows, float* hidden);

// Whether two gated units are the same.
bool same_unit(const std::optional<SwigluClamp>& a, const std::optional<SwigluClamp>& b);

}  // namespace coli
