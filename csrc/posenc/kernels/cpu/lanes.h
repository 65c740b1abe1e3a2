#pragma once

#include <cstdint>

#include <posenc/kernels/args.h>
#include <posenc/kernels/cpu/simd.h>
#include <posenc/kernels/dropout.h>
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

  /// Those of the pairs from `begin` on, where there are steps.
  RowValues from(std::int64_t begin) const {
    return {first + begin, second + begin, step_sin + begin, step_cos + begin, sign};
  }
};

/// What a sum reads and where it goes; x and out may be one.
struct AddRow {
  const void* x;
  void* out;
  const void* next_x;  ///< null, or memory that is fetched meanwhile, since processors foresee no step across pages
};

/// The loops over the columns of one row, of one SIMD level, by element type. Rows are dense.
struct Lanes {
  /// Pairs that the loops take at a time.
  std::int64_t pairs;

  /// phases of the integer position `magnitude` times the fractions (hi, lo).
  void (*phases)(std::uint64_t magnitude, const std::uint64_t* hi, const std::uint64_t* lo, std::int64_t count,
                 std::uint64_t* phases);

  /// sincos_of_phase of each.
  void (*sincos)(const std::uint64_t* phases, std::int64_t count, double* sin, double* cos);

  /// out[column] = the rounded encoding.
  void (*encode_row[kNumDTypes])(const math::Columns& columns, const RowValues& values, void* out);

  /// Both rows that one step makes of an anchor, for `count` pairs that have both functions: `plus` gets the rotation
  /// by values.sign, `minus` the one back. They share products, so two rows cost little more than one. The second
  /// function of the first pair goes to element `second` of each; the next pair follows after `stride` elements, 1
  /// or 2.
  void (*encode_two_rows[kNumDTypes])(const RowValues& values, std::int64_t count, std::int64_t stride,
                                      std::int64_t second, void* plus, void* minus, bool past_cache);

  /// row.out[column] = row.x[column] * input_scale + alpha * encoding.
  void (*add_row[kNumDTypes])(const math::Columns& columns, const RowValues& values, const AddRow& row,
                              double input_scale, double alpha);

  /// The same for both rows that one step makes, as encode_two_rows places them.
  void (*add_two_rows[kNumDTypes])(const RowValues& values, std::int64_t count, std::int64_t stride,
                                   std::int64_t second, const AddRow& plus, const AddRow& minus, double input_scale,
                                   double alpha, bool past_cache);

  /// The same for `count` columns whose encoding is ready in the compute type. past_cache: with stores past the cache;
  /// out is then a multiple of kStreamAlignment.
  void (*add_encoding[kNumDTypes])(const void* encoding, const AddRow& row, std::int64_t count, double input_scale,
                                   double alpha, bool past_cache);

  /// out[i] = dropout of in[i], which is element first + i of the tensor; out may be in. See Note [The mask of an
  /// element].
  void (*dropout_row[kNumDTypes])(const void* in, void* out, std::int64_t count, std::uint64_t first,
                                  const RandomState& state, const DropoutLimit& limit, double factor);
};

const Lanes& lanes(SimdLevel level);

}  // namespace posenc::kernels::cpu
