// The one exponential of the product: constants, and the formula every instruction set follows.
//
// exp(x), f32, every step rounded to nearest even, in this order:
//   t = fma(x, kExpLog2e, kExpRound)          the integer n = rint(x / ln 2) in t's low bits
//   n = t - kExpRound
//   r = fma(n, kExpMinusLn2Hi, x)             exact: kExpMinusLn2Hi has 16 significant bits
//   r = fma(n, kExpMinusLn2Lo, r)             |r| <= 0.3466
//   p = fma(... fma(kExpC6, r, kExpC5) ..., r, 1)   Horner, degree 6, last two coefficients 1
//   y = float whose bits are bits(p) + (bits(t) << 23)     that is p * 2^n, modulo 2^32
//   x < kExpMin -> 0,   x > kExpMax -> +inf,   NaN -> x itself
// Never a subnormal: p >= 1 wherever n = -126, and p < 1 wherever n = 128. exp(0) is exactly 1.
// At most 1 ulp from the true value on [kExpMin, kExpMax] (checked for every float there by
// tests/native/test_elementwise.cpp). Code that has only x <= 0 may leave the +inf step out.
//
// Coefficients: minimax fit of (exp(r) - 1 - r) / r^2 in the relative error of exp, |r| <= 0.3468;
// its error is 3.1e-9 before the coefficients are rounded to f32.
#pragma once

#include <cstdint>

namespace coli {

constexpr float kExpLog2e = 0x1.715476p+0F;         // 1 / ln 2
constexpr float kExpRound = 0x1.8p+23F;             // adding it rounds to an integer
constexpr float kExpMinusLn2Hi = -0x1.62e4p-1F;     // -(ln 2 to 16 bits)
constexpr float kExpMinusLn2Lo = -0x1.7f7d1cp-20F;  // -(ln 2 - hi)
constexpr float kExpC2 = 0x1.fffffcp-2F;
constexpr float kExpC3 = 0x1.555492p-3F;
constexpr float kExpC4 = 0x1.5558f2p-5F;
constexpr float kExpC5 = 0x1.123a20p-7F;
constexpr float kExpC6 = 0x1.6a23d0p-10F;
constexpr float kExpMin = -0x1.5d589ep+6F;  // -87.33654: below, exp(x) < the least normal float
constexpr float kExpMax = 0x1.62e42ep+6F;   // 88.72283: above, exp(x) > the largest float
constexpr int32_t kExpShift = 23;           // mantissa bits of f32

}  // namespace coli
