#pragma once

#include <cmath>
#include <cstdint>

#include <posenc/macros.h>
#include <posenc/math/bits.h>
#include <posenc/math/sincos_table.h>

namespace posenc::math {

struct SinCos {
  double sin;
  double cos;
};

namespace detail {

/// Sine and cosine of a table angle, each as an unevaluated sum of two doubles.
struct SincosRow {
  double sin;
  double sin_low;
  double cos;
  double cos_low;
};

POSENC_HOST_DEVICE inline SincosRow sincos_row(int i) {
#if defined(__CUDA_ARCH__)
  const double2* const row = reinterpret_cast<const double2*>(kDeviceSincosTable[i]);
  const double2 s = __ldg(row);
  const double2 c = __ldg(row + 1);
  return {s.x, s.y, c.x, c.y};
#else
  const double* const row = kSincosTable[i];
  return {row[0], row[1], row[2], row[3]};
#endif
}

}  // namespace detail

/// Sine and cosine of `phase` * 2^-64 turns, each within kSincosBound (accuracy.h) for every phase.
/// Quarter turns are exact and their zeros are +0.0. A result may exceed 1 by an ulp: round_to<double> clamps.
///
/// The phase is the nearest table angle i/64 turn and a rest u, |u| <= 1/128 turn; the addition theorems join them:
/// sin(i + u) = S + (C sin u + S (cos u - 1)), small terms first. Every fma is written out and contraction is off, so
/// that each compiler, vector width and device computes the same bits.
POSENC_HOST_DEVICE inline SinCos sincos_of_phase(std::uint64_t phase) {
  constexpr int kRestBits = 58;  // 64 - log2(kSincosRows)
  constexpr std::uint64_t kHalf = std::uint64_t{1} << (kRestBits - 1);
  constexpr std::uint64_t kMask = (std::uint64_t{1} << kRestBits) - 1;
  static_assert(kSincosRows == 1 << (64 - kRestBits));

  const std::uint64_t shifted = phase + kHalf;
  const detail::SincosRow row = detail::sincos_row(static_cast<int>(shifted >> kRestBits));
  // 57 bits and a sign become 53: one rounding, by at most 2^-54 of u.
  const double u = nearest_double_of_rest(shifted & kMask);
  const double z = u * u;

  // Constants of this scope need no address, which device code could not take.
  constexpr double kP0 = kSinePolynomial[0], kP1 = kSinePolynomial[1];
  constexpr double kP2 = kSinePolynomial[2], kP3 = kSinePolynomial[3];
  constexpr double kQ0 = kCosinePolynomial[0], kQ1 = kCosinePolynomial[1];
  constexpr double kQ2 = kCosinePolynomial[2], kQ3 = kCosinePolynomial[3];
  const double sin_u = u * std::fma(z, std::fma(z, std::fma(z, kP3, kP2), kP1), kP0);
  const double cos_u_minus_1 = z * std::fma(z, std::fma(z, std::fma(z, kQ3, kQ2), kQ1), kQ0);

  return {row.sin + std::fma(row.cos, sin_u, std::fma(row.sin, cos_u_minus_1, row.sin_low)),
          row.cos + std::fma(-row.sin, sin_u, std::fma(row.cos, cos_u_minus_1, row.cos_low))};
}

}  // namespace posenc::math
