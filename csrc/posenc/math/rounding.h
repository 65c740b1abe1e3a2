#pragma once

#include <cstdint>
#include <type_traits>

#include <posenc/macros.h>
#include <posenc/math/bits.h>
#include <posenc/math/float16.h>

namespace posenc::math {

namespace detail {

/// `value` cut to 24 significant bits, the last one set if anything was cut off ("round to odd").
///
/// The result is a float, exactly. Rounding it to 8 or 11 bits gives what rounding `value` itself would give: 24 bits
/// are more than two bits longer, and an odd last bit is never a tie. A conversion by way of the nearest float would
/// round twice. Below 2^-126, which no sine or cosine of a non-zero 64-bit phase reaches, the float is a rounded
/// subnormal. A NaN stays one: the bits cut off leave their mark in the bit above.
POSENC_HOST_DEVICE inline float to_float_odd(double value) {
  constexpr std::uint64_t kCut = (std::uint64_t{1} << 29) - 1;  // 53 - 24 bits
  std::uint64_t bits = bit_cast<std::uint64_t>(value);
  bits |= (bits & kCut) + kCut;
  bits &= ~kCut;
  return static_cast<float>(bit_cast<double>(bits));
}

}  // namespace detail

/// The one rounding that ends an encoding: `value`, a sine or cosine that may exceed 1 by an ulp, as scalar_t (double,
/// float, BFloat16 or Float16), nearest, ties to even. double clamps to [-1, 1] instead. NaN passes.
template <typename scalar_t>
POSENC_HOST_DEVICE inline scalar_t round_to(double value) {
  if constexpr (std::is_same_v<scalar_t, double>) {
    if (value > 1.0) return 1.0;
    if (value < -1.0) return -1.0;
    return value;
  } else if constexpr (std::is_same_v<scalar_t, float>) {
    return static_cast<float>(value);
  } else if constexpr (std::is_same_v<scalar_t, BFloat16>) {
    return to_bfloat16(detail::to_float_odd(value));
  } else {
    static_assert(std::is_same_v<scalar_t, Float16>);
    return to_float16(detail::to_float_odd(value));
  }
}

/// What a float computation stores as scalar_t (float, BFloat16 or Float16): nearest, ties to even.
template <typename scalar_t>
POSENC_HOST_DEVICE inline scalar_t store_as(float value) {
  if constexpr (std::is_same_v<scalar_t, float>) {
    return value;
  } else if constexpr (std::is_same_v<scalar_t, BFloat16>) {
    return to_bfloat16(value);
  } else {
    static_assert(std::is_same_v<scalar_t, Float16>, "a double result needs a double computation");
    return to_float16(value);
  }
}

/// What a double computation stores as double: itself.
template <typename scalar_t>
POSENC_HOST_DEVICE inline scalar_t store_as(double value) {
  static_assert(std::is_same_v<scalar_t, double>, "a double computation stores doubles only");
  return value;
}

}  // namespace posenc::math
