#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

/// An independent model of the 16-bit types: the list of their values. Rounding is a search in it.
namespace posenc::math::testing {

/// A format with 1 sign bit, `exponent_bits` and `fraction_bits`, as in IEEE 754.
struct Format16 {
  int exponent_bits;
  int fraction_bits;

  std::uint16_t infinity() const { return static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << fraction_bits); }

  /// The value of a pattern without sign; the pattern of infinity gives the power of two that would come next.
  double value(std::uint16_t pattern) const {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = pattern >> fraction_bits;
    const int fraction = pattern & ((1 << fraction_bits) - 1);
    if (exponent == 0) return std::ldexp(fraction, 1 - bias - fraction_bits);
    return std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  }

  /// The point from which on `pattern + 1` is nearer than `pattern`; exact in double.
  double tie_above(std::uint16_t pattern) const {
    return (value(pattern) + value(static_cast<std::uint16_t>(pattern + 1))) / 2;
  }

  /// The pattern nearest to a number that is not NaN, ties to even, sign included.
  std::uint16_t nearest(double x) const {
    const double magnitude = std::fabs(x);
    std::uint16_t low = 0;  // value(low) <= magnitude: bisection over patterns, whose order is that of the values
    for (std::uint16_t step = 0x4000; step != 0; step = static_cast<std::uint16_t>(step >> 1)) {
      const std::uint16_t next = static_cast<std::uint16_t>(low + step);
      if (next <= infinity() && value(next) <= magnitude) low = next;
    }
    if (low != infinity()) {
      const double tie = tie_above(low);
      if (magnitude > tie || (magnitude == tie && low % 2 == 1)) ++low;
    }
    return static_cast<std::uint16_t>(low | (std::signbit(x) ? 0x8000 : 0));
  }
};

inline constexpr Format16 kFloat16Format = {5, 10};
inline constexpr Format16 kBFloat16Format = {8, 7};

}  // namespace posenc::math::testing
