#include <posenc/math/frequency.h>

#include <posenc/math/wide_float.h>

namespace posenc::math {
namespace {

// Constants to 256 bits, truncated.
constexpr WideFloat kOne = {{0, 0, 0, 0x8000000000000000u}, 1, false};
constexpr WideFloat kLn2 = {  // ln 2
    {0x8A0D175B8BAAFA2Bu, 0x40F343267298B62Du, 0xC9E3B39803F2F6AFu, 0xB17217F7D1CF79ABu},
    0,
    false};
constexpr WideFloat kTwoOverLn2 = {  // 2 / ln 2
    {0x8B25166CD1A13247u, 0xEB577AA8DD695A58u, 0xBE87FED0691D3E88u, 0xB8AA3B295C17F0BBu},
    2,
    false};
constexpr WideFloat kTurnsPerRadian = {  // 1 / (2 pi)
    {0xFE5163ABDEBBC561u, 0xDB6295993C439041u, 0xFC2757D1F534DDC0u, 0xA2F9836E4E441529u},
    -2,
    false};

/// log2 of a finite x > 0: x = 2^e m with m in [1/sqrt(2), sqrt(2)), log2 m = 2 / ln 2 * atanh((m - 1) / (m + 1)).
WideFloat log2(double x) {
  constexpr std::uint64_t kUnit = std::uint64_t{1} << 52;
  constexpr std::uint64_t kSqrt2 = 0x16A09E667F3BCDu;  // in units of 2^-52
  DoubleParts parts = decompose(x);
  const int leading_zeros = count_leading_zeros(parts.integer) - 11;  // of 53 bits; not 0 for subnormals only
  parts.integer <<= leading_zeros;
  std::int64_t e = parts.exponent - leading_zeros + 52;
  std::uint64_t one = kUnit;  // what stands for 1 in the units of parts.integer
  if (parts.integer >= kSqrt2) {
    one = 2 * kUnit;
    ++e;
  }
  const WideFloat z = (wide_from(parts.integer) - wide_from(one)) / wide_from(parts.integer + one);

  // atanh z = z (1 + z^2/3 + z^4/5 + ..); z^2 < 2^-5.08, so 51 terms leave 2^-259 of the sum.
  const WideFloat z_squared = z * z;
  WideFloat sum;
  for (std::uint32_t n = 51; n > 0; --n) sum = sum * z_squared + kOne / (2 * n - 1);
  const WideFloat whole = e < 0 ? -wide_from(static_cast<std::uint64_t>(-e)) : wide_from(static_cast<std::uint64_t>(e));
  return whole + kTwoOverLn2 * z * sum;
}

/// 2^y; saturates like every WideFloat.
WideFloat exp2(const WideFloat& y) {
  if (y.exponent > 40) return scale_by_power(kOne, y.negative ? -WideFloat::kLimit : WideFloat::kLimit);

  // |y| = whole + fraction.
  const int whole_bits = y.exponent > 0 ? static_cast<int>(y.exponent) : 0;
  const std::int64_t whole = whole_bits == 0 ? 0 : static_cast<std::int64_t>(y.limbs[3] >> (64 - whole_bits));
  WideFloat fraction = y;
  if (whole_bits != 0) fraction.limbs[3] &= ~std::uint64_t{0} >> whole_bits;
  fraction = detail::normalize(fraction);

  // 2^fraction = (e^x)^256 with |x| < 2^-8.5: 24 terms of the series leave 2^-280, eight squarings undo the division.
  const WideFloat x = scale_by_power(fraction * kLn2, -8);
  WideFloat power = kOne;
  for (std::uint32_t n = 24; n >= 1; --n) power = kOne + x * power / n;
  for (int i = 0; i < 8; ++i) power = power * power;
  return scale_by_power(power, y.negative ? -whole : whole);
}

/// The nearest Float128, exponent saturated at +-kMaxExponent; x >= 0.
Float128 to_float128(const WideFloat& x) {
  if (x.is_zero()) return {0, 0, 0};
  Float128 result = {x.limbs[3], x.limbs[2], 0};
  std::int64_t exponent = x.exponent;
  const std::uint64_t round_up = x.limbs[1] >> 63;
  result.hi += add_to(result.lo, round_up);
  if (result.hi == 0) {  // all ones became 2^128
    result.hi = std::uint64_t{1} << 63;
    ++exponent;
  }
  if (exponent > kMaxExponent) exponent = kMaxExponent;
  if (exponent < -kMaxExponent) exponent = -kMaxExponent;
  result.exponent = static_cast<std::int32_t>(exponent);
  return result;
}

/// rho = base^(-2 / (width - 2 freq_shift)).
WideFloat frequency_ratio(double base, std::int64_t width, double freq_shift) {
  // wide_from(double) and the difference are exact unless the terms are more than 2^190 apart.
  const WideFloat denominator = wide_from(static_cast<std::uint64_t>(width)) - scale_by_power(wide_from(freq_shift), 1);
  if (denominator.is_zero()) return kOne;  // callers refuse this convention; do not divide by zero in any case
  return exp2(-scale_by_power(log2(base), 1) / denominator);
}

}  // namespace

FrequencyTables make_frequency_tables(double base, std::int64_t width, double freq_shift, double position_scale,
                                      std::int64_t num_freqs) {
  FrequencyTables tables = {};
  const WideFloat first = wide_from(position_scale < 0 ? -position_scale : position_scale) * kTurnsPerRadian;
  tables.num_digits = 1;
  tables.factors[0][0] = to_float128(first);
  if (num_freqs <= 1) return tables;

  WideFloat ratio = frequency_ratio(base, width, freq_shift);  // of neighbours in the table at hand
  std::int64_t last_digits = num_freqs - 1;
  WideFloat power = first;
  for (int n = 0;; ++n) {
    tables.num_digits = n + 1;
    for (int j = 0; j < kRadix; ++j) {
      tables.factors[n][j] = to_float128(power);
      power = power * ratio;
    }
    last_digits >>= kRadixBits;
    if (last_digits == 0 || n + 1 == kMaxDigits) return tables;
    for (int i = 0; i < kRadixBits; ++i) ratio = ratio * ratio;
    power = kOne;
  }
}

}  // namespace posenc::math
