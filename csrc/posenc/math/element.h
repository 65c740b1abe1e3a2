#pragma once

#include <cmath>
#include <cstdint>

#include <posenc/macros.h>
#include <posenc/math/bits.h>
#include <posenc/math/frequency.h>
#include <posenc/math/position.h>
#include <posenc/math/sincos.h>

namespace posenc::math {

// Note [Anchor and remainder]
// An integer position is 32 a + r with -16 <= r <= 15, and its value is, by definition, the rotation of the anchor
// (32 a) by the step (|r|). Kernels that fill a table compute an anchor once for 32 rows and 16 steps once for all
// anchors, and each element costs one product and one fma. Elements computed alone take the same two sincos and the
// same rotation, so the way a position is asked for never changes a bit.

/// magnitude = 32 * anchor + remainder.
struct SplitPosition {
  std::uint64_t anchor;
  int remainder;  ///< -16 to 15
};

/// See Note [Anchor and remainder]. `magnitude` <= 2^63.
POSENC_HOST_DEVICE inline SplitPosition split_position(std::uint64_t magnitude) {
  const std::uint64_t anchor = (magnitude + 16) >> 5;
  return {anchor, static_cast<int>(static_cast<std::int64_t>(magnitude - (anchor << 5)))};
}

/// The rotation of an anchor by a step, forwards or back. A step back has the sine negated, which only negates both
/// products: +r and -r share them, which is why they are rounded and not the others.
class Turn {
 public:
  POSENC_HOST_DEVICE Turn(SinCos anchor, SinCos step)
      : anchor_(anchor), step_cos_(step.cos), x_(anchor.cos * step.sin), y_(anchor.sin * step.sin) {}

  POSENC_HOST_DEVICE SinCos value(bool back) const {
    const double x = negate_if(back, x_);
    const double y = negate_if(back, y_);
    return {std::fma(anchor_.sin, step_cos_, x), std::fma(anchor_.cos, step_cos_, -y)};
  }

 private:
  SinCos anchor_;
  double step_cos_;
  double x_;
  double y_;
};

/// One rotation; a step with a negated sine turns back.
POSENC_HOST_DEVICE inline SinCos turn(SinCos anchor, SinCos step) { return Turn(anchor, step).value(false); }

/// Sine and cosine at 32 a + r from those of the anchor 32 a and of the step |r|. r = 0 is the anchor itself.
POSENC_HOST_DEVICE inline SinCos rotate(SinCos anchor, SinCos step, int r) {
  if (r == 0) return anchor;
  if (r < 0) step.sin = -step.sin;
  return turn(anchor, step);
}

/// Sine and cosine at the integer position `magnitude` <= 2^63, within kFloat64Bound; f = turn_fraction(g).
POSENC_HOST_DEVICE inline SinCos encode_integer(std::uint64_t magnitude, TurnFraction f) {
  const SplitPosition split = split_position(magnitude);
  const SinCos anchor = sincos_of_phase(phase_of_integer(split.anchor << 5, f));
  if (split.remainder == 0) return anchor;
  const int steps = split.remainder < 0 ? -split.remainder : split.remainder;
  return rotate(anchor, sincos_of_phase(phase_of_integer(static_cast<std::uint64_t>(steps), f)), split.remainder);
}

/// Whether the sine changes sign: p != 0 and exactly one of position and scale negative. The sine at 0 is +0.0 always.
POSENC_HOST_DEVICE inline bool negates_sine(const Position& p, bool negative_scale) {
  const bool is_zero = p.kind == PositionKind::kInteger && p.magnitude == 0;
  return !is_zero && p.negative != negative_scale;
}

/// The element function: sine and cosine of the pair with frequency g at position p, before round_to rounds them once.
///
/// g is |position_scale| * base^(..) / (2 pi) in turns (frequency.h), negative_scale is position_scale < 0. Integer
/// positions are within kFloat64Bound of the exact value, others within kSincosBound and the error of their phase, for
/// angles up to 2^64 rad; beyond, results stay finite. Not finite positions give NaN. The sine is odd and the cosine
/// even in p and in the scale, bit for bit.
POSENC_HOST_DEVICE inline SinCos encode_pair(const Position& p, const Float128& g, bool negative_scale) {
  if (p.kind == PositionKind::kNotFinite) {
    const double nan = bit_cast<double>(std::uint64_t{0x7FF8000000000000u});
    return {nan, nan};
  }
  SinCos value = p.kind == PositionKind::kInteger ? encode_integer(p.magnitude, turn_fraction(g))
                                                  : sincos_of_phase(phase_of_real(p.real_magnitude, g));
  if (negates_sine(p, negative_scale)) value.sin = -value.sin;
  return value;
}

}  // namespace posenc::math
