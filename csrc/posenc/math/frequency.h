#pragma once

#include <cstdint>

#include <posenc/macros.h>
#include <posenc/math/bits.h>

namespace posenc::math {

// Frequencies in turns per position, made and multiplied by integer arithmetic only: 128 bits keep an angle of 2^64 rad
// exact to 2^-62 turns, and integers give the same bits on every platform, which libm does not.

/// (hi:lo) / 2^128 * 2^exponent: a non-negative number with 128 significant bits. The top bit of hi is set; zero has
/// all members 0.
struct Float128 {
  std::uint64_t hi;
  std::uint64_t lo;
  std::int32_t exponent;
};

/// A number in [0, 1) as a multiple (hi:lo) of 2^-128: the part of a frequency that an integer position can see.
struct TurnFraction {
  std::uint64_t hi;
  std::uint64_t lo;
};

inline constexpr int kRadixBits = 5;
inline constexpr int kRadix = 1 << kRadixBits;
inline constexpr int kMaxDigits = 7;  // pairs up to 2^35

/// Exponents of table entries saturate here: far outside what a finite position can turn into a phase, and products of
/// kMaxDigits entries stay far inside int32.
inline constexpr std::int32_t kMaxExponent = 1 << 24;

/// What the frequencies of all pairs are made of. With rho = base^(-2 / (width - 2 freq_shift)):
///   factors[0][j] = |position_scale| / (2 pi) * rho^j,   factors[n][j] = rho^(j * 32^n)   for n >= 1,
/// each the nearest Float128. Plain data, valid in kernel arguments.
struct FrequencyTables {
  std::int32_t num_digits;  ///< tables in use: base-32 digits of the last pair
  Float128 factors[kMaxDigits][kRadix];
};

/// The tables of a convention for pairs 0 to num_freqs - 1 (at most 2^35). `width` is the w of the angle formula in
/// convention.h; base finite and > 0, freq_shift and position_scale finite. The sign of position_scale is not in the
/// tables. With num_freqs <= 1 neither base nor the denominator is used. Host only; takes 10 to 20 us.
FrequencyTables make_frequency_tables(double base, std::int64_t width, double freq_shift, double position_scale,
                                      std::int64_t num_freqs);

/// a * b, truncated to 128 bits: relative error below 2^-127.
POSENC_HOST_DEVICE inline Float128 multiply(Float128 a, Float128 b) {
  if (a.hi == 0 || b.hi == 0) return {0, 0, 0};
  // Words 1 to 3 of the 256-bit product of the mantissas. Word 0 cannot carry into them and is cut off.
  std::uint64_t w1 = multiply_high(a.lo, b.lo);
  std::uint64_t w2 = multiply_high(a.hi, b.lo);
  std::uint64_t w3 = multiply_high(a.hi, b.hi);
  std::uint64_t carry = add_to(w1, a.hi * b.lo);
  carry += add_to(w1, a.lo * b.hi);
  w3 += add_to(w2, carry);
  w3 += add_to(w2, multiply_high(a.lo, b.hi));
  w3 += add_to(w2, a.hi * b.hi);
  const std::int32_t exponent = a.exponent + b.exponent;
  if ((w3 >> 63) != 0) return {w3, w2, exponent};
  return {w3 << 1 | w2 >> 63, w2 << 1 | w1 >> 63, exponent - 1};  // a product of two halves starts one bit lower
}

/// Turns per position of pair k, 0 <= k < the num_freqs of the tables: the product of one entry for each base-32 digit.
/// With n digits the relative error is below (3n - 2) * 2^-128.
POSENC_HOST_DEVICE inline Float128 frequency(const FrequencyTables& tables, std::int64_t k) {
  std::uint64_t digits = static_cast<std::uint64_t>(k);
  Float128 result = tables.factors[0][digits % kRadix];
  for (int n = 1; n < tables.num_digits; ++n) {
    digits >>= kRadixBits;
    const std::uint64_t digit = digits % kRadix;
    if (digit != 0) result = multiply(result, tables.factors[n][digit]);  // rho^0 = 1 would only cost a product
  }
  return result;
}

/// floor(frac(g) * 2^128).
POSENC_HOST_DEVICE inline TurnFraction turn_fraction(Float128 g) {
  if (g.exponent >= 128 || g.exponent <= -128) return {0, 0};  // only whole turns, or less than 2^-128
  if (g.exponent >= 64) return {g.lo << (g.exponent - 64), 0};
  if (g.exponent > 0) return {g.hi << g.exponent | g.lo >> (64 - g.exponent), g.lo << g.exponent};
  if (g.exponent == 0) return {g.hi, g.lo};
  if (g.exponent > -64) return {g.hi >> -g.exponent, g.lo >> -g.exponent | g.hi << (64 + g.exponent)};
  return {0, g.hi >> (-g.exponent - 64)};
}

/// The phase of an integer position, in 2^-64 turns: magnitude * f modulo one turn, exact but for the bits cut off.
POSENC_HOST_DEVICE inline std::uint64_t phase_of_integer(std::uint64_t magnitude, TurnFraction f) {
  return magnitude * f.hi + multiply_high(magnitude, f.lo);
}

/// The phase of any finite position >= 0, in 2^-64 turns: floor(magnitude * g * 2^64) modulo 2^64, exactly.
POSENC_HOST_DEVICE inline std::uint64_t phase_of_real(double magnitude, Float128 g) {
  const DoubleParts m = decompose(magnitude);
  // The 181 bits of the product of both integers; magnitude * g = (w2:w1:w0) * 2^(m.exponent + g.exponent - 128).
  const std::uint64_t w0 = m.integer * g.lo;
  std::uint64_t w1 = multiply_high(m.integer, g.lo);
  std::uint64_t w2 = multiply_high(m.integer, g.hi);
  w2 += add_to(w1, m.integer * g.hi);
  const std::int32_t shift = m.exponent + g.exponent - 64;
  if (shift >= 64 || shift <= -192) return 0;  // only whole turns, or less than 2^-64
  if (shift >= 0) return w0 << shift;
  const int words = -shift / 64;
  const int bits = -shift % 64;
  const std::uint64_t low = words == 0 ? w0 : words == 1 ? w1 : w2;
  const std::uint64_t high = words == 0 ? w1 : words == 1 ? w2 : 0;
  return bits == 0 ? low : low >> bits | high << (64 - bits);
}

/// g in radians per position, within 0.51 ulp; infinity above the range of double, subnormals below it.
POSENC_HOST_DEVICE inline double to_radians(Float128 g) {
  constexpr Float128 kTwoPi = {0xC90FDAA22168C234u, 0xC4C6628B80DC1CD1u, 3};
  const Float128 w = multiply(g, kTwoPi);
  if (w.hi == 0 || w.exponent < -1074) return 0.0;
  if (w.exponent > 1024) return bit_cast<double>(std::uint64_t{0x7FF0000000000000u});
  // A double in [2^(e-1), 2^e) is a multiple of 2^(e-53), or of 2^-1074 if subnormal: `kept` bits of hi remain.
  const int kept = w.exponent >= -1021 ? 53 : w.exponent + 1074;
  const std::uint64_t integer = kept == 0 ? 0 : w.hi >> (64 - kept);
  const std::uint64_t rest = w.hi << kept;
  const std::uint64_t half = std::uint64_t{1} << 63;
  const bool up = rest > half || (rest == half && (w.lo != 0 || (integer & 1) != 0));
  const std::uint64_t exponent = w.exponent >= -1021 ? static_cast<std::uint64_t>(w.exponent + 1021) : 0;
  // The leading bit of `integer` adds 1 to the exponent field, as does a carry from rounding; 2^1024 becomes infinity.
  return bit_cast<double>((exponent << 52) + integer + (up ? 1u : 0u));
}

}  // namespace posenc::math
