#pragma once

#include <cstdint>

#include <posenc/macros.h>
#include <posenc/math/bits.h>

namespace posenc::math {

// 16-bit floating types as bare bits. Conversions are integer arithmetic only, so that CPU and CUDA give the same bits
// whatever the hardware offers, subnormals included, and flush-to-zero modes do not matter.

/// IEEE binary16: 1 sign bit, 5 exponent bits (bias 15), 10 fraction bits. Same bits as c10::Half and __half.
struct Float16 {
  std::uint16_t bits;
};

/// The upper half of a float: 1 sign bit, 8 exponent bits, 7 fraction bits. Same bits as c10::BFloat16.
struct BFloat16 {
  std::uint16_t bits;
};

/// Exact.
POSENC_HOST_DEVICE inline float to_float(BFloat16 value) {
  return bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Exact; a NaN keeps its payload.
POSENC_HOST_DEVICE inline float to_float(Float16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t exponent = value.bits >> 10 & 0x1Fu;
  std::uint32_t fraction = value.bits & 0x3FFu;
  if (exponent == 0x1Fu) return bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  if (exponent != 0) return bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);  // rebias: 127 - 15
  if (fraction == 0) return bit_cast<float>(sign);
  // A subnormal, fraction * 2^-24: move its leading bit to where a float hides it.
  std::uint32_t biased = 113;
  while ((fraction & 0x400u) == 0) {
    fraction <<= 1;
    --biased;
  }
  return bit_cast<float>(sign | biased << 23 | (fraction & 0x3FFu) << 13);
}

// Code that is generic in the element type widens what it loads by to_float; these two are wide enough.
POSENC_HOST_DEVICE inline float to_float(float value) { return value; }
POSENC_HOST_DEVICE inline double to_float(double value) { return value; }

namespace detail {

/// value / 2^shift to the nearest integer, ties to even; 1 <= shift <= 31. `value` < 2^31.
POSENC_HOST_DEVICE inline std::uint32_t shift_right_to_even(std::uint32_t value, int shift) {
  const std::uint32_t odd = value >> shift & 1u;
  const std::uint32_t below_half = (1u << (shift - 1)) - 1u;
  return (value + below_half + odd) >> shift;
}

}  // namespace detail

/// Nearest, ties to even; overflow gives infinity, every NaN gives 0x7FC0 (as c10 does).
POSENC_HOST_DEVICE inline BFloat16 to_bfloat16(float value) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {0x7FC0u};
  // A carry out of the fraction moves to the next exponent, out of the largest exponent to infinity: both are right.
  const std::uint32_t rounded = detail::shift_right_to_even(magnitude, 16);
  return {static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | rounded)};
}

/// Nearest, ties to even, subnormals included; overflow gives infinity, NaN gives sign | 0x7E00 (as c10 does).
POSENC_HOST_DEVICE inline Float16 to_float16(float value) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t rounded = 0;
  if (magnitude > 0x7F800000u) {
    rounded = 0x7E00u;
  } else if (magnitude >= 0x47800000u) {  // 2^16 and above
    rounded = 0x7C00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14 and above: normal; 65520 and above carries into infinity
    rounded = detail::shift_right_to_even(magnitude - (112u << 23), 13);
  } else if (magnitude >= 0x33000000u) {  // 2^-25 and above: a multiple of 2^-24, or the tie that rounds to 0
    const std::uint32_t fraction = (magnitude & 0x007FFFFFu) | 0x00800000u;
    rounded = detail::shift_right_to_even(fraction, 126 - static_cast<int>(magnitude >> 23));
  }
  return {static_cast<std::uint16_t>(sign | rounded)};
}

}  // namespace posenc::math
