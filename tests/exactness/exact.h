#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

/// The exact value of an element, from the definition in section 1 of docs/formula.md and from nothing else: no header
/// of the library, no table, no formula of it.
///
/// A frequency is exp and log of 384 bits, made for each pair by itself; an angle of 2^64 rad keeps 300 bits of its
/// turn. The sine is a Taylor series of 127-bit fixed-point numbers. Errors stay below 1e-31, which check_reference.py
/// compares with mpmath.

namespace posenc::exactness {

__extension__ typedef unsigned __int128 uint128;
__extension__ typedef __int128 int128;

// ---- Real numbers of 384 bits ----

/// sign * digits * 2^exponent, least digit first; the top bit of the last digit is set, or all are 0.
struct Real {
  static constexpr std::size_t kDigits = 6;
  static constexpr std::int64_t kBits = 64 * kDigits;

  bool negative = false;
  std::int64_t exponent = 0;
  std::array<std::uint64_t, kDigits> digits{};

  bool is_zero() const { return digits.back() == 0; }
};

/// The leading bits of a long integer times 2^exponent; the others are cut off.
template <std::size_t n>
Real make_real(bool negative, const std::array<std::uint64_t, n>& integer, std::int64_t exponent) {
  std::size_t top = n;
  while (top > 0 && integer[top - 1] == 0) --top;
  if (top == 0) return {};
  const int shift = __builtin_clzll(integer[top - 1]);
  const auto digit = [&](std::size_t below_top) { return below_top < top ? integer[top - 1 - below_top] : 0; };
  Real result{negative, exponent + 64 * static_cast<std::int64_t>(top) - Real::kBits - shift, {}};
  for (std::size_t i = 0; i < Real::kDigits; ++i) {
    const std::uint64_t carried = shift == 0 ? 0 : digit(i + 1) >> (64 - shift);
    result.digits[Real::kDigits - 1 - i] = digit(i) << shift | carried;
  }
  return result;
}

inline Real real_from(std::uint64_t value) { return make_real<1>(false, {value}, 0); }

/// Exact; `value` is finite.
inline Real real_from(double value) {
  int exponent = 0;
  const double mantissa = std::frexp(std::fabs(value), &exponent);
  return make_real<1>(std::signbit(value), {static_cast<std::uint64_t>(std::ldexp(mantissa, 53))}, exponent - 53);
}

/// Within 2^-51 of the value, relatively; what double cannot hold becomes 0 or infinite.
inline double to_double(const Real& a) {
  const std::int64_t exponent = a.exponent + Real::kBits - 64;
  const int clamped = exponent > 9999 ? 9999 : exponent < -9999 ? -9999 : static_cast<int>(exponent);
  const double magnitude = std::ldexp(static_cast<double>(a.digits.back()), clamped);
  return a.negative ? -magnitude : magnitude;
}

inline Real operator-(Real a) {
  a.negative = !a.negative;
  return a;
}

inline Real times_power_of_two(Real a, std::int64_t exponent) {
  a.exponent += exponent;
  return a;
}

inline Real operator*(const Real& a, const Real& b) {
  std::array<std::uint64_t, 2 * Real::kDigits> product{};
  for (std::size_t i = 0; i < Real::kDigits; ++i) {
    std::uint64_t carry = 0;
    for (std::size_t j = 0; j < Real::kDigits; ++j) {
      const uint128 sum = static_cast<uint128>(a.digits[i]) * b.digits[j] + product[i + j] + carry;
      product[i + j] = static_cast<std::uint64_t>(sum);
      carry = static_cast<std::uint64_t>(sum >> 64);
    }
    product[i + Real::kDigits] = carry;
  }
  return make_real(a.negative != b.negative, product, a.exponent + b.exponent);
}

inline Real operator+(const Real& a, const Real& b) {
  if (a.is_zero()) return b;
  if (b.is_zero()) return a;
  // Lined up 384 bits below the larger one, where neither loses a bit.
  const std::int64_t apart = a.exponent - b.exponent;
  if (apart < 0) return b + a;
  if (apart > Real::kBits) return a;
  std::array<std::uint64_t, 2 * Real::kDigits + 1> x{};
  std::array<std::uint64_t, 2 * Real::kDigits + 1> y{};
  const std::size_t place = static_cast<std::size_t>(Real::kBits - apart);
  const int bits = static_cast<int>(place % 64);
  for (std::size_t i = 0; i < Real::kDigits; ++i) {
    x[i + Real::kDigits] = a.digits[i];
    y[i + place / 64] |= b.digits[i] << bits;
    if (bits != 0) y[i + place / 64 + 1] = b.digits[i] >> (64 - bits);
  }
  const bool subtract = a.negative != b.negative;
  bool smaller = false;  // x < y
  for (std::size_t i = x.size(); i-- > 0;) {
    if (x[i] == y[i]) continue;
    smaller = x[i] < y[i];
    break;
  }
  if (smaller) x.swap(y);
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const uint128 sum =
        subtract ? static_cast<uint128>(x[i]) - y[i] - carry : static_cast<uint128>(x[i]) + y[i] + carry;
    x[i] = static_cast<std::uint64_t>(sum);
    carry = (sum >> 64) != 0 ? 1 : 0;
  }
  return make_real(smaller ? b.negative : a.negative, x, a.exponent - Real::kBits);
}

inline Real operator-(const Real& a, const Real& b) { return a + -b; }

inline Real operator/(const Real& a, std::uint64_t n) {
  std::array<std::uint64_t, Real::kDigits + 1> quotient{};
  std::uint64_t rest = 0;
  for (std::size_t i = quotient.size(); i-- > 0;) {
    const uint128 part = static_cast<uint128>(rest) << 64 | (i > 0 ? a.digits[i - 1] : 0);
    quotient[i] = static_cast<std::uint64_t>(part / n);
    rest = static_cast<std::uint64_t>(part % n);
  }
  return make_real(a.negative, quotient, a.exponent - 64);
}

/// Newton's iteration for 1 / b: 50, 100, 200, 400 bits.
inline Real operator/(const Real& a, const Real& b) {
  const std::int64_t scale = b.exponent + Real::kBits;  // b = [1/2, 1) * 2^scale
  const Real divisor = times_power_of_two(b, -scale);
  Real inverse = real_from(1.0 / to_double(divisor));
  for (int i = 0; i < 3; ++i) inverse = inverse + inverse * (real_from(1.0) - divisor * inverse);
  return times_power_of_two(a * inverse, -scale);
}

// ---- exp, log, pi ----

/// e^x for abs(x) < 1: Taylor at x / 256, then 8 squarings.
inline Real exp_near_zero(const Real& x) {
  const Real y = times_power_of_two(x, -8);
  Real sum = real_from(1.0);
  for (std::uint64_t n = 40; n > 0; --n) sum = real_from(1.0) + y * sum / n;
  for (int i = 0; i < 8; ++i) sum = sum * sum;
  return sum;
}

/// ln m for a double m in [1/2, 2]: Halley's iteration for e^y = m, 50, 150, 450 bits and once more.
inline Real log_near_one(double m) {
  Real y = real_from(std::log(m));
  for (int i = 0; i < 3; ++i) {
    const Real power = exp_near_zero(y);
    y = y + times_power_of_two((real_from(m) - power) / (real_from(m) + power), 1);
  }
  return y;
}

inline Real arctan_of_inverse(std::uint64_t n) {
  Real power = real_from(1.0) / n;
  Real sum = power;
  for (std::uint64_t k = 3; k < 180; k += 2) {
    power = -power / (n * n);
    sum = sum + power / k;
  }
  return sum;
}

inline const Real& ln2() {
  static const Real value = log_near_one(2.0);
  return value;
}

inline const Real& pi() {  // Machin
  static const Real value = times_power_of_two(times_power_of_two(arctan_of_inverse(5), 2) - arctan_of_inverse(239), 2);
  return value;
}

inline Real log(double base) {
  int exponent = 0;
  double m = std::frexp(base, &exponent);
  if (m < 0.7) {  // so that nothing cancels where the base is near 1
    m *= 2.0;
    --exponent;
  }
  return log_near_one(m) + real_from(static_cast<double>(exponent)) * ln2();
}

/// Powers beyond 2^(2^40) come out as such a power: no position turns them into an angle.
inline Real exp(const Real& x) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const double halvings = to_double(x / ln2());
  if (std::fabs(halvings) > static_cast<double>(kMost)) {
    return times_power_of_two(real_from(1.0), halvings < 0 ? -kMost : kMost);
  }
  const double n = std::nearbyint(halvings);
  return times_power_of_two(exp_near_zero(x - real_from(n) * ln2()), static_cast<std::int64_t>(n));
}

// ---- Sine and cosine of turns ----

/// floor(frac(turns) * 2^128): the 128 bits below the point. `turns` >= 0.
inline uint128 fraction_of_turn(const Real& turns) {
  const auto digit = [&](std::int64_t i) {
    return i < 0 || i >= static_cast<std::int64_t>(Real::kDigits) ? 0 : turns.digits[static_cast<std::size_t>(i)];
  };
  const auto word = [&](std::int64_t bit) {  // 64 bits from this one on
    const std::int64_t i = bit >> 6;
    const int shift = static_cast<int>(bit & 63);
    return shift == 0 ? digit(i) : digit(i) >> shift | digit(i + 1) << (64 - shift);
  };
  const std::int64_t lowest = -turns.exponent - 128;
  return static_cast<uint128>(word(lowest + 64)) << 64 | word(lowest);
}

/// An unevaluated sum: value is the nearest double.
struct Sum {
  double value;
  double rest;
};

namespace fixed {

inline constexpr uint128 kOne = static_cast<uint128>(1) << 127;  // numbers in [0, 2) as multiples of 2^-127

inline uint128 multiply(uint128 a, uint128 b) {
  const auto low = [](uint128 x) { return static_cast<uint128>(static_cast<std::uint64_t>(x)); };
  const uint128 cross = (a >> 64) * low(b) + (low(a) * low(b) >> 64);
  const uint128 other = low(a) * (b >> 64) + low(cross);
  const uint128 high = (a >> 64) * (b >> 64) + (cross >> 64) + (other >> 64);
  return high << 1 | (other >> 63 & 1);
}

/// 1 - z/(n(n+1)) + z^2/(n(n+1)(n+2)(n+3)) - ..: cos x for n = 1, sin x / x for n = 2; z = x^2 < 0.62.
inline uint128 series(uint128 z, int n) {
  static const auto inverses = [] {
    std::array<uint128, 40> result{};
    for (unsigned k = 1; k < result.size(); ++k) result[k] = kOne / (k * (k + 1));
    return result;
  }();
  uint128 sum = kOne;
  for (int k = n + 34; k >= n; k -= 2) {
    sum = kOne - multiply(multiply(z, inverses[static_cast<std::size_t>(k)]), sum);
  }
  return sum;
}

inline Sum to_sum(uint128 x, bool negative) {
  const double value = static_cast<double>(x);
  const double rest = static_cast<double>(static_cast<int128>(x - static_cast<uint128>(value)));
  const double sign = negative ? -1.0 : 1.0;
  return {sign * std::ldexp(value, -127), sign * std::ldexp(rest, -127)};
}

}  // namespace fixed

/// Sine or cosine of a fraction of a turn in 2^-128 turns.
inline Sum sine_of_turn(uint128 fraction, bool cosine) {
  static const uint128 half_pi = fraction_of_turn(times_power_of_two(pi(), -2));  // of 2: a fixed::multiply factor
  const uint128 eighth = static_cast<uint128>(1) << 125;
  const unsigned quarter = static_cast<unsigned>((fraction + eighth) >> 126) + (cosine ? 1 : 0);  // sin x+1/4 = cos x
  const uint128 rest = fraction - ((fraction + eighth) >> 126 << 126);  // from the nearest quarter, may wrap below 0
  const bool below = (rest >> 127) != 0;
  const uint128 x = fixed::multiply((below ? 0 - rest : rest) << 1, half_pi);  // abs(rest) in quarter turns, times pi/2
  const uint128 z = fixed::multiply(x, x);
  const bool odd_quarter = quarter % 2 == 1;
  const uint128 magnitude = odd_quarter ? fixed::series(z, 1) : fixed::multiply(x, fixed::series(z, 2));
  // sin (q/4 + u) = sin u, cos u, -sin u, -cos u for q = 0 to 3. For the cosine the sign of u still belongs to sin u.
  return fixed::to_sum(magnitude, (quarter & 2) / 2 != (!odd_quarter && below ? 1u : 0u));
}

// ---- The definition ----

inline constexpr double kTwoPi = 6.283185307179586;

/// A position at its exact value.
struct Position {
  bool negative;
  Real magnitude;

  static Position of(std::int64_t p) {
    const std::uint64_t bits = static_cast<std::uint64_t>(p);
    return {p < 0, real_from(p < 0 ? 0 - bits : bits)};
  }
  static Position of(double p) { return {p < 0, real_from(std::fabs(p))}; }
};

/// The exact value of an element.
struct Exact {
  Sum value;
  bool is_zero;   ///< a column of zeros, or the sine at position 0: +0.0, not a bit else
  bool in_range;  ///< the angle is at most 2^64 rad
};

/// The encoding of one convention and width. Arguments as in Python, names of orders included; odd is not "error".
class Encoding {
 public:
  Encoding(std::int64_t d_model, double base, double freq_shift, double position_scale, const std::string& order,
           const std::string& odd)
      : d_model_(d_model),
        zero_column_(d_model % 2 == 1 && odd == "zero"),
        split_(order == "split" || order == "split_cos_first"),
        cos_first_(order == "interleaved_cos_first" || order == "split_cos_first"),
        negative_scale_(position_scale < 0) {
    if (!split_ && !cos_first_ && order != "interleaved") throw std::invalid_argument("order " + order);
    if (odd != "sin" && odd != "zero" && odd != "cut") throw std::invalid_argument("odd " + odd);
    const bool is_odd = d_model % 2 == 1;
    width_ = is_odd && odd == "zero" ? d_model - 1 : is_odd && odd == "cut" ? d_model + 1 : d_model;
    num_pairs_ = (width_ + 1) / 2;
    turns_.resize(static_cast<std::size_t>(num_pairs_));
    scale_ = real_from(std::fabs(position_scale)) / times_power_of_two(pi(), 1);
    if (num_pairs_ < 2) return;
    const Real denominator =
        real_from(static_cast<std::uint64_t>(width_)) - times_power_of_two(real_from(freq_shift), 1);
    if (denominator.is_zero()) throw std::invalid_argument("the exponent divides by zero");
    log_ratio_ = times_power_of_two(-log(base), 1) / denominator;
  }

  std::int64_t num_pairs() const { return num_pairs_; }

  /// abs(position_scale) * base^(-2k / (w - 2s)) / (2 pi)
  const Real& turns_per_position(std::int64_t pair) {
    std::optional<Real>& turns = turns_[static_cast<std::size_t>(pair)];
    if (!turns) turns = pair == 0 ? scale_ : scale_ * exp(real_from(static_cast<std::uint64_t>(pair)) * log_ratio_);
    return *turns;
  }

  Exact at(const Position& position, std::int64_t column) {
    if (zero_column_ && column == d_model_ - 1) return {{0.0, 0.0}, true, true};
    const bool second = split_ ? column >= num_pairs_ : column % 2 == 1;
    const std::int64_t pair = split_ ? column - (second ? num_pairs_ : 0) : column / 2;
    const bool cosine = second != cos_first_;
    const Real turns = position.magnitude * turns_per_position(pair);
    Sum value = sine_of_turn(fraction_of_turn(turns), cosine);
    if (!cosine && position.negative != negative_scale_) value = {0.0 - value.value, 0.0 - value.rest};
    return {value, !cosine && position.magnitude.is_zero(), to_double(turns) * kTwoPi <= 0x1p64};
  }

 private:
  std::int64_t d_model_;
  std::int64_t width_;
  std::int64_t num_pairs_;
  bool zero_column_;
  bool split_;
  bool cos_first_;
  bool negative_scale_;
  Real scale_;
  Real log_ratio_;
  std::vector<std::optional<Real>> turns_;
};

}  // namespace posenc::exactness
