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

/// Exact; a NaN keeps its payload. Selects, no branches, so that loops over it vectorise.
POSENC_HOST_DEVICE inline float to_float(Float16 value) {
  constexpr std::uint32_t kSmallest = 113u << 23;  // 2^-14, the smallest normal one
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(value.bits & 0x7FFFu) << 13;
  const std::uint32_t normal = magnitude + (112u << 23);  // rebias: 127 - 15
  // fraction * 2^-24 as (2^-14 + fraction * 2^-24) - 2^-14: exact, and no operand is a subnormal float.
  const std::uint32_t subnormal =
      bit_cast<std::uint32_t>(bit_cast<float>(magnitude + kSmallest) - bit_cast<float>(kSmallest));
  std::uint32_t bits = magnitude < (1u << 23) ? subnormal : normal;
  bits = magnitude >= (31u << 23) ? magnitude | 0x7F800000u : bits;
  return bit_cast<float>(sign | bits);
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

/// Nearest, ties to even; overflow gives infinity, every NaN gives 0x7FC0 (as c10 does). Selects, no branches, so that
/// loops over it vectorise; so does to_float16.
POSENC_HOST_DEVICE inline BFloat16 to_bfloat16(float value) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  // A carry out of the fraction moves to the next exponent, out of the largest exponent to infinity: both are right.
  const std::uint32_t rounded = (bits >> 16 & 0x8000u) | detail::shift_right_to_even(magnitude, 16);
  return {static_cast<std::uint16_t>(magnitude > 0x7F800000u ? 0x7FC0u : rounded)};
}

/// Nearest, ties to even, subnormals included; overflow gives infinity, NaN gives sign | 0x7E00 (as c10 does).
POSENC_HOST_DEVICE inline Float16 to_float16(float value) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  // 2^-14 and above; 65520 and above carries into infinity.
  const std::uint32_t normal = detail::shift_right_to_even(magnitude - (112u << 23), 13);
  // Below: a multiple of 2^-24. Shifts of 25 and more leave 0, so 31 stands for all that are longer.
  const std::uint32_t fraction = (magnitude & 0x007FFFFFu) | 0x00800000u;
  const int shift = 126 - static_cast<int>(magnitude >> 23);
  const std::uint32_t subnormal = detail::shift_right_to_even(fraction, shift > 31 ? 31 : (shift < 1 ? 1 : shift));
  std::uint32_t rounded = magnitude >= 0x38800000u ? normal : subnormal;
  rounded = magnitude >= 0x47800000u ? 0x7C00u : rounded;  // 2^16 and above
  rounded = magnitude > 0x7F800000u ? 0x7E00u : rounded;
  return {static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | rounded)};
}

}  // namespace posenc::math
