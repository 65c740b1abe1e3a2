#pragma once

#include <cstdint>

#include <posenc/kernels/args.h>
#include <posenc/kernels/cpu/simd.h>
#include <posenc/math/columns.h>

namespace posenc::kernels::cpu {

/// The unrounded values of one row, by pair: `first` and `second` are the columns' first and second function.
///
/// Without steps they are the values. With steps they are those of the anchor, and the values are the rotation of
/// Note [Anchor and remainder], math::turn, by sign * step_sin and step_cos.
struct RowValues {
  const double* first;
  const double* second;
  const double* step_sin;  ///< null: no rotation
  const double* step_cos;
  double sign;  ///< +1 or -1
};

/// The loops over the columns of one row, of one SIMD level, by element type. Rows are dense; x and out may be one.
struct Lanes {
  /// phases of the integer position `magnitude` times the fractions (hi, lo).
  void (*phases)(std::uint64_t magnitude, const std::uint64_t* hi, const std::uint64_t* lo, std::int64_t count,
                 std::uint64_t* phases);

  /// sincos_of_phase of each.
  void (*sincos)(const std::uint64_t* phases, std::int64_t count, double* sin, double* cos);

  /// out[column] = the rounded encoding.
  void (*encode_row[kNumDTypes])(const math::Columns& columns, const RowValues& values, void* out);

  /// Both rows that one step makes of an anchor, for pairs [begin, end) that have both functions: `plus` gets the
  /// rotation by values.sign, `minus` the one back. They share products, so two rows cost little more than one. The
  /// first function of pair `begin` goes to element 0, its second function to element `second` of each; the next pair
  /// follows after `stride` elements, 1 or 2.
  void (*encode_two_rows[kNumDTypes])(const RowValues& values, std::int64_t begin, std::int64_t end,
                                      std::int64_t stride, std::int64_t second, void* plus, void* minus);

  /// out[column] = x[column] * input_scale + alpha * encoding.
  void (*add_row[kNumDTypes])(const math::Columns& columns, const RowValues& values, const void* x, void* out,
                              double input_scale, double alpha);

  /// The same, with the encoding ready in the compute type.
  void (*add_encoding[kNumDTypes])(const void* encoding, const void* x, void* out, std::int64_t count,
                                   double input_scale, double alpha);
};

const Lanes& lanes(SimdLevel level);

}  // namespace posenc::kernels::cpu
