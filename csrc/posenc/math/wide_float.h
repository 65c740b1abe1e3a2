#pragma once

#include <cstdint>

#include <posenc/math/bits.h>

namespace posenc::math {

/// A signed number with 256 significant bits, for the set-up of frequency tables. Host only.
///
/// Value: (limbs[3]:limbs[2]:limbs[1]:limbs[0]) / 2^256 * 2^exponent. The top bit of limbs[3] is set; zero is all 0.
/// Every operation cuts bits off: the error is below 2^-254 of the result, of a sum below 2^-254 of its larger term.
/// Exponents saturate at +-kLimit, about 10^(3 * 10^11).
struct WideFloat {
  static constexpr std::int64_t kLimit = std::int64_t{1} << 40;

  std::uint64_t limbs[4] = {0, 0, 0, 0};
  std::int64_t exponent = 0;
  bool negative = false;

  bool is_zero() const { return limbs[3] == 0; }
};

namespace detail {

/// Compares the limbs as integers.
inline bool less(const std::uint64_t (&a)[4], const std::uint64_t (&b)[4]) {
  for (int i = 3; i > 0; --i) {
    if (a[i] != b[i]) return a[i] < b[i];
  }
  return a[0] < b[0];
}

/// a += b; returns the carry.
inline std::uint64_t add_limbs(std::uint64_t (&a)[4], const std::uint64_t (&b)[4]) {
  std::uint64_t carry = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t first = add_to(a[i], b[i]);
    carry = first + add_to(a[i], carry);
  }
  return carry;
}

/// a -= b modulo 2^256.
inline void subtract_limbs(std::uint64_t (&a)[4], const std::uint64_t (&b)[4]) {
  std::uint64_t borrow = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t difference = a[i] - b[i];
    const std::uint64_t next = (a[i] < b[i] ? 1u : 0u) | (difference < borrow ? 1u : 0u);
    a[i] = difference - borrow;
    borrow = next;
  }
}

/// a <<= count, 0 <= count < 256.
inline void shift_left(std::uint64_t (&a)[4], int count) {
  const int words = count / 64;
  const int bits = count % 64;
  for (int i = 3; i >= 0; --i) {
    const std::uint64_t high = i >= words ? a[i - words] : 0;
    const std::uint64_t low = i > words ? a[i - words - 1] : 0;
    a[i] = bits == 0 ? high : high << bits | low >> (64 - bits);
  }
}

/// a >>= count, 0 <= count < 256.
inline void shift_right(std::uint64_t (&a)[4], int count) {
  const int words = count / 64;
  const int bits = count % 64;
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t low = i + words < 4 ? a[i + words] : 0;
    const std::uint64_t high = i + words < 3 ? a[i + words + 1] : 0;
    a[i] = bits == 0 ? low : low >> bits | high << (64 - bits);
  }
}

/// a <<= 1.
inline void double_limbs(std::uint64_t (&a)[4]) {
  for (int i = 3; i > 0; --i) a[i] = a[i] << 1 | a[i - 1] >> 63;
  a[0] <<= 1;
}

/// Moves the leading bit to the top and keeps the exponent within its limits.
inline WideFloat normalize(WideFloat x) {
  if ((x.limbs[3] >> 63) == 0) {
    int words = 0;
    while (words < 4 && x.limbs[3 - words] == 0) ++words;
    if (words == 4) return {};
    const int count = 64 * words + count_leading_zeros(x.limbs[3 - words]);
    shift_left(x.limbs, count);
    x.exponent -= count;
  }
  if (x.exponent > WideFloat::kLimit) x.exponent = WideFloat::kLimit;
  if (x.exponent < -WideFloat::kLimit) x.exponent = -WideFloat::kLimit;
  return x;
}

}  // namespace detail

/// Exact.
inline WideFloat wide_from(std::uint64_t value) { return detail::normalize({{0, 0, 0, value}, 64, false}); }

/// Exact; `value` is finite.
inline WideFloat wide_from(double value) {
  const DoubleParts parts = decompose(value < 0 ? -value : value);
  return detail::normalize({{0, 0, 0, parts.integer}, 64 + parts.exponent, value < 0});
}

inline WideFloat operator-(WideFloat x) {
  x.negative = !x.is_zero() && !x.negative;
  return x;
}

/// x * 2^power.
inline WideFloat scale_by_power(WideFloat x, std::int64_t power) {
  x.exponent += power;
  return detail::normalize(x);
}

inline WideFloat operator+(WideFloat a, WideFloat b) {
  if (a.is_zero()) return b;
  if (b.is_zero()) return a;
  if (a.exponent < b.exponent || (a.exponent == b.exponent && detail::less(a.limbs, b.limbs))) {
    const WideFloat larger = b;
    b = a;
    a = larger;
  }
  const std::int64_t distance = a.exponent - b.exponent;
  if (distance >= 256) return a;
  detail::shift_right(b.limbs, static_cast<int>(distance));
  if (a.negative != b.negative) {
    detail::subtract_limbs(a.limbs, b.limbs);
  } else if (detail::add_limbs(a.limbs, b.limbs) != 0) {
    detail::shift_right(a.limbs, 1);
    a.limbs[3] |= std::uint64_t{1} << 63;
    ++a.exponent;
  }
  return detail::normalize(a);
}

inline WideFloat operator-(const WideFloat& a, const WideFloat& b) { return a + -b; }

inline WideFloat operator*(const WideFloat& a, const WideFloat& b) {
  if (a.is_zero() || b.is_zero()) return {};
  std::uint64_t product[8] = {};
  for (int i = 0; i < 4; ++i) {
    std::uint64_t carry = 0;
    for (int j = 0; j < 4; ++j) {
      // a b + product + carry fits 128 bits: (2^64 - 1)^2 + 2 (2^64 - 1) = 2^128 - 1.
      std::uint64_t high = multiply_high(a.limbs[i], b.limbs[j]);
      high += add_to(product[i + j], a.limbs[i] * b.limbs[j]);
      high += add_to(product[i + j], carry);
      carry = high;
    }
    product[i + 4] = carry;
  }
  WideFloat result = {
      {product[4], product[5], product[6], product[7]}, a.exponent + b.exponent, a.negative != b.negative};
  if ((product[7] >> 63) == 0) {  // a product of two halves starts one bit lower
    detail::double_limbs(result.limbs);
    result.limbs[0] |= product[3] >> 63;
    --result.exponent;
  }
  return detail::normalize(result);
}

/// a / divisor by short division in half limbs; divisor > 0.
inline WideFloat operator/(WideFloat a, std::uint32_t divisor) {
  // 32 more bits below, so that the quotient keeps 256 bits after it is normalised.
  std::uint64_t quotient[5] = {};
  std::uint64_t rest = 0;
  for (int i = 4; i >= 0; --i) {
    const std::uint64_t limb = i > 0 ? a.limbs[i - 1] : 0;
    const std::uint64_t upper = rest << 32 | limb >> 32;
    const std::uint64_t lower = (upper % divisor) << 32 | (limb & 0xFFFFFFFFu);
    quotient[i] = upper / divisor << 32 | lower / divisor;
    rest = lower % divisor;
  }
  if (a.is_zero()) return a;
  const int count = quotient[4] == 0 ? 64 : count_leading_zeros(quotient[4]);
  WideFloat result = {{quotient[1], quotient[2], quotient[3], quotient[4]}, a.exponent - count, a.negative};
  detail::shift_left(result.limbs, count);
  result.limbs[0] |= count == 64 ? quotient[0] : count == 0 ? 0 : quotient[0] >> (64 - count);
  return detail::normalize(result);
}

/// a / b by long division, bit by bit; b != 0.
inline WideFloat operator/(const WideFloat& a, const WideFloat& b) {
  if (a.is_zero()) return {};
  WideFloat result = {{0, 0, 0, 0}, a.exponent - b.exponent + 1, a.negative != b.negative};
  std::uint64_t rest[4] = {a.limbs[0], a.limbs[1], a.limbs[2], a.limbs[3]};
  std::uint64_t overflow = 0;  // bit 256 of rest; rest < 2 b always
  for (int i = 0; i < 256; ++i) {
    detail::double_limbs(result.limbs);
    if (overflow != 0 || !detail::less(rest, b.limbs)) {
      detail::subtract_limbs(rest, b.limbs);
      result.limbs[0] |= 1;
    }
    overflow = rest[3] >> 63;
    detail::double_limbs(rest);
  }
  return detail::normalize(result);  // the first bit of the quotient may be 0: 255 bits are sure
}

}  // namespace posenc::math
