#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

#include <posenc/math/accuracy.h>

#include "exact.h"
#include "kernel_case.h"

namespace posenc::exactness {

using posenc::testing::Format;

inline const char* order_name(const Convention& convention) {
  return posenc::testing::kOrderNames[static_cast<int>(convention.order)];
}

inline const char* odd_name(const Convention& convention) {
  return posenc::testing::kOddNames[static_cast<int>(convention.odd)];
}

inline Encoding encoding_of(const kernels::testing::Setting& setting) {
  const Convention& convention = setting.convention;
  return {setting.d_model,           convention.base,        convention.freq_shift,
          convention.position_scale, order_name(convention), odd_name(convention)};
}

/// Judges results of one dtype and one kind of position by their exact values and keeps count.
class Judge {
 public:
  /// `bound` is what accuracy.h claims for the value before its one rounding.
  Judge(const Format& format, const char* positions, double bound)
      : format_(format), positions_(positions), bound_(bound) {}

  /// False if the result breaks the contract.
  bool check(double result, const Exact& exact) {
    ++count_;
    bool good = std::fabs(result) <= 1.0 && (!exact.is_zero || (result == 0.0 && !std::signbit(result)));
    if (!exact.in_range) {
      ++beyond_;
    } else {
      const double error = std::fabs((result - exact.value.value) - exact.value.rest);
      const double half_gap = half_gap_towards(exact.value, result);
      // At least this far from the exact value was what got rounded; nothing is known to round in float64.
      const double before = is_float64() ? error : std::max(error - half_gap, 0.0);
      worst_ = std::max(worst_, error);
      worst_before_ = std::max(worst_before_, before);
      if (error > half_gap) ++misrounded_[band(exact.value.value)];
      good = good && before <= math::kContractBound;
    }
    if (!good) ++outside_;
    return good;
  }

  static void print_header() {
    std::printf("%-8s %-9s %11s %10s %10s %10s %8s   not nearest: >= 2^-8   >= 2^-24   smaller\n", "dtype", "positions",
                "elements", "over 2^64", "worst", "unrounded", "outside");
  }

  void print() const {
    std::printf("%-8s %-9s %11lld %10lld %10.3g %10.3g %8lld   %20lld %10lld %9lld\n", format_.name, positions_, count_,
                beyond_, worst_, worst_before_, outside_, misrounded_[0], misrounded_[1], misrounded_[2]);
  }

  /// False, with a message, if an element broke the contract or one was further off than accuracy.h says.
  bool passes() const {
    const bool tight = worst_before_ <= bound_;
    if (!tight)
      std::fprintf(stderr, "%s, %s: %g is over the bound %g\n", format_.name, positions_, worst_before_, bound_);
    return tight && outside_ == 0 && count_ > 0;
  }

 private:
  bool is_float64() const { return format_.digits == posenc::testing::kFloat64.digits; }

  /// Half the distance from the result to its neighbour on the side of the exact value.
  double half_gap_towards(const Sum& exact, double result) const {
    const bool inwards = std::fabs(exact.value) < std::fabs(result) ||
                         (exact.value == result && std::signbit(exact.rest) != std::signbit(result));
    const int exponent = result == 0.0 ? format_.min_exponent : std::max(std::ilogb(result), format_.min_exponent);
    const bool at_power = std::fabs(result) == std::ldexp(1.0, exponent) && exponent > format_.min_exponent;
    return std::ldexp(1.0, exponent - format_.digits - (inwards && at_power ? 1 : 0));
  }

  static int band(double value) { return std::fabs(value) >= 0x1p-8 ? 0 : std::fabs(value) >= 0x1p-24 ? 1 : 2; }

  Format format_;
  const char* positions_;
  double bound_;
  long long count_ = 0;
  long long beyond_ = 0;
  long long outside_ = 0;
  long long misrounded_[3] = {};
  double worst_ = 0.0;
  double worst_before_ = 0.0;
};

}  // namespace posenc::exactness
