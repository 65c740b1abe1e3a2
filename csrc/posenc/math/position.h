#pragma once

#include <cstdint>

#include <posenc/macros.h>
#include <posenc/math/bits.h>

namespace posenc::math {

enum class PositionKind : std::uint8_t {
  kInteger,    ///< |p| is an integer of at most 2^63; this covers int64 and every double that equals an int64
  kReal,       ///< any other finite double
  kNotFinite,  ///< infinite or NaN
};

/// A position as the element function needs it: exact, sign and magnitude apart.
struct Position {
  std::uint64_t magnitude;  ///< |p| if kInteger, else 0
  double real_magnitude;    ///< |p| if kReal, else 0
  PositionKind kind;
  bool negative;  ///< p < 0; false for -0.0 and NaN
};

POSENC_HOST_DEVICE inline Position position_from(std::int64_t p) {
  const std::uint64_t bits = static_cast<std::uint64_t>(p);
  return {p < 0 ? 0 - bits : bits, 0.0, PositionKind::kInteger, p < 0};
}

/// A double that equals an int64 gives the same Position. So does 2^63, the mirror image of the smallest int64.
POSENC_HOST_DEVICE inline Position position_from(double p) {
  constexpr double kTwo63 = 9223372036854775808.0;
  const std::uint64_t bits = bit_cast<std::uint64_t>(p) & 0x7FFFFFFFFFFFFFFFu;
  if (bits >= 0x7FF0000000000000u) return {0, 0.0, PositionKind::kNotFinite, p < 0};
  const double magnitude = bit_cast<double>(bits);
  if (magnitude <= kTwo63) {
    const std::uint64_t integer = static_cast<std::uint64_t>(magnitude);
    if (static_cast<double>(integer) == magnitude) return {integer, 0.0, PositionKind::kInteger, p < 0};
  }
  return {0, magnitude, PositionKind::kReal, p < 0};
}

}  // namespace posenc::math
