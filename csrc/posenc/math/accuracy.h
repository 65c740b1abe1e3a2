#pragma once

namespace posenc::math {

// The accuracy that documentation promises and tests check: absolute errors of unrounded values, for every angle up to
// 2^64 rad. The terms are listed in docs/accuracy.md.

/// Each result of sincos_of_phase: one rounding of a value below 1 (5.6e-17) and 2.2e-17 inside the polynomials.
inline constexpr double kSincosBound = 7.9e-17;

/// The error of a phase, in radians: 19 * 2^-128 of the frequency with all seven digits, at an angle of 2^64 rad
/// (1.04e-18), and the bits cut off below 2^-64 turns (0.52e-18).
inline constexpr double kPhaseBound = 1.6e-18;

/// An integer position: two sincos of vector length sqrt(2) * 7.9e-17 each, two roundings of the rotation (1.1e-16) and
/// two phases. Any other position needs one sincos and one phase: kSincosBound + kPhaseBound.
inline constexpr double kFloat64Bound = 3.4e-16;

/// What users are promised: kFloat64Bound with room for another evaluation order.
inline constexpr double kContractBound = 4e-16;

}  // namespace posenc::math
