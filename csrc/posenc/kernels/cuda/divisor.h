#pragma once

#include <cstdint>

#include <posenc/macros.h>
#include <posenc/math/bits.h>

namespace posenc::kernels::cuda {

/// Divides by a number that the host knows, by one multiplication. A GPU has no integer division: 64 bits by 64 cost it
/// a call of over a hundred instructions that starts from an approximate reciprocal.
///
/// With l = ceil(log2 d) and m = ceil(2^(63 + l) / d) the quotient is floor(n m / 2^(63 + l)) for every n < 2^63:
/// m = (2^(63 + l) + e) / d with 0 <= e < d <= 2^l, so n m / 2^(63 + l) exceeds n / d by n e / 2^(63 + l) / d < 1 / d,
/// too little to reach the next integer. m < 2^64, since d > 2^(l - 1) or d = 1.
class Divisor {
 public:
  Divisor() = default;

  /// `divisor` >= 1.
  explicit Divisor(std::int64_t divisor) {
    const std::uint64_t d = static_cast<std::uint64_t>(divisor);
    if (d > 1) shift_ = 64 - math::count_leading_zeros(d - 1);
    // 2^(63 + l) / d bit by bit, from bit 63 on.
    std::uint64_t rest = std::uint64_t{1} << shift_;  // below 2 d, here and after each round
    multiplier_ = 0;
    for (int bit = 63; bit >= 0; --bit) {
      if (rest >= d) {
        rest -= d;
        multiplier_ |= std::uint64_t{1} << bit;
      }
      rest <<= 1;
    }
    if (rest != 0) ++multiplier_;
  }

  /// n / divisor, for n >= 0.
  POSENC_HOST_DEVICE std::int64_t divide(std::int64_t n) const {
    return static_cast<std::int64_t>(math::multiply_high(static_cast<std::uint64_t>(n) << 1, multiplier_) >> shift_);
  }

 private:
  std::uint64_t multiplier_ = std::uint64_t{1} << 63;  ///< m; that of 1
  int shift_ = 0;                                      ///< l
};

}  // namespace posenc::kernels::cuda
