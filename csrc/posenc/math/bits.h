#pragma once

#include <cstdint>

#include <posenc/macros.h>

namespace posenc::math {

/// The bytes of `value` as another type of the same size. std::bit_cast, which nvcc refuses in device code.
template <typename to_t, typename from_t>
POSENC_HOST_DEVICE constexpr to_t bit_cast(const from_t& value) {
  static_assert(sizeof(to_t) == sizeof(from_t));
  return __builtin_bit_cast(to_t, value);
}

/// The upper 64 bits of the 128-bit product a * b.
POSENC_HOST_DEVICE inline std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#elif defined(__SIZEOF_INT128__)
  __extension__ typedef unsigned __int128 uint128;
  return static_cast<std::uint64_t>((static_cast<uint128>(a) * b) >> 64);
#else
  const std::uint64_t mask = 0xFFFFFFFFu;
  const std::uint64_t low = (a & mask) * (b & mask);
  const std::uint64_t cross = (a >> 32) * (b & mask) + (low >> 32);  // cannot overflow: (2^32-1)^2 + 2^32-1 < 2^64
  const std::uint64_t other = (a & mask) * (b >> 32) + (cross & mask);
  return (a >> 32) * (b >> 32) + (cross >> 32) + (other >> 32);
#endif
}

/// Number of zero bits above the highest set bit; `value` must not be 0.
POSENC_HOST_DEVICE inline int count_leading_zeros(std::uint64_t value) {
#if defined(__CUDA_ARCH__)
  return __clzll(static_cast<long long>(value));
#else
  return __builtin_clzll(value);
#endif
}

/// a += b; returns the carry, 0 or 1.
POSENC_HOST_DEVICE inline std::uint64_t add_to(std::uint64_t& a, std::uint64_t b) {
  a += b;
  return a < b ? 1u : 0u;
}

/// -value or value. By its sign bit: a negation of its own is a double operation on a GPU.
POSENC_HOST_DEVICE inline double negate_if(bool negative, double value) {
  return bit_cast<double>(bit_cast<std::uint64_t>(value) ^ (negative ? std::uint64_t{1} << 63 : 0));
}

/// A finite double >= 0 as integer * 2^exponent; `integer` < 2^53, 0 for 0.
struct DoubleParts {
  std::uint64_t integer;
  std::int32_t exponent;
};

POSENC_HOST_DEVICE inline DoubleParts decompose(double magnitude) {
  const std::uint64_t bits = bit_cast<std::uint64_t>(magnitude);
  const std::uint64_t fraction = bits & 0x000FFFFFFFFFFFFFu;
  const std::int32_t biased = static_cast<std::int32_t>(bits >> 52 & 0x7FFu);
  if (biased == 0) return {fraction, -1074};  // subnormal
  return {fraction | 0x0010000000000000u, biased - 1075};
}

/// value - half as the nearest double, for value < 2^58 and half = 2^57. On the host by two exact additions of halves
/// and one rounding, which vectorise where a conversion of 64-bit integers does not.
POSENC_HOST_DEVICE inline double nearest_double_of_rest(std::uint64_t value) {
#if defined(__CUDA_ARCH__)
  return static_cast<double>(static_cast<std::int64_t>(value) - (std::int64_t{1} << 57));
#else
  const double high = bit_cast<double>(value >> 32 | 0x4530000000000000u);           // 2^84 + high * 2^32
  const double low = bit_cast<double>((value & 0xFFFFFFFFu) | 0x4330000000000000u);  // 2^52 + low
  return (high - (0x1p84 + 0x1p57 + 0x1p52)) + low;
#endif
}

}  // namespace posenc::math
