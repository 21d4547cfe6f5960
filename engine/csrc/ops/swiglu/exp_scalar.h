// exp for the scalar kernels: the definition in exp.h, one value at a time.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "ops/swiglu/exp.h"

namespace coli {

// Returns exp(x); see exp.h for range and accuracy.
static inline float exp_scalar(float x) {
  if (x != x) return x;
  if (x < kExpMin) return 0.0F;
  if (x > kExpMax) return HUGE_VALF;
  const float t = std::fma(x, kExpLog2e, kExpRound);
  const float n = t - kExpRound;
  float r = std::fma(n, kExpMinusLn2Hi, x);
  r = std::fma(n, kExpMinusLn2Lo, r);
  float p = std::fma(kExpC6, r, kExpC5);
  p = std::fma(p, r, kExpC4);
  p = std::fma(p, r, kExpC3);
  p = std::fma(p, r, kExpC2);
  p = std::fma(p, r, 1.0F);
  p = std::fma(p, r, 1.0F);
  uint32_t t_bits;
  uint32_t p_bits;
  std::memcpy(&t_bits, &t, sizeof t_bits);
  std::memcpy(&p_bits, &p, sizeof p_bits);
  p_bits += t_bits << kExpShift;
  float y;
  std::memcpy(&y, &p_bits, sizeof y);
  return y;
}

}  // namespace coli
