#pragma once

#include <cstdint>

#include <posenc/macros.h>
#include <posenc/math/convention.h>

namespace posenc::math {

/// Which column holds which function of which pair.
///
/// Pair k has a first and a second function: sine and cosine, or cosine and sine in the cos-first orders. The unpaired
/// pair of an odd width has the first one only.
struct Columns {
  std::int64_t num_first;      ///< pairs that have a first function: the number of frequencies
  std::int64_t num_second;     ///< pairs that have both; num_first or num_first - 1
  std::int64_t first_stride;   ///< columns from one pair to the next
  std::int64_t second_offset;  ///< column of the second function of pair 0
  std::int64_t zero_column;    ///< the column of zeros, or -1
  bool cos_first;
};

/// The width that enters the exponent: d_model if it is even, else what `odd` makes of it.
constexpr std::int64_t effective_width(std::int64_t d_model, Odd odd) {
  if (d_model % 2 == 0 || odd == Odd::kSin || odd == Odd::kError) return d_model;
  return odd == Odd::kZero ? d_model - 1 : d_model + 1;
}

/// The columns of an encoding of width d_model >= 0. "sin" and "cut" place the same columns; only their exponents
/// differ.
constexpr Columns make_columns(std::int64_t d_model, Order order, Odd odd) {
  const bool has_zero = d_model % 2 != 0 && odd == Odd::kZero;
  const std::int64_t width = d_model - (has_zero ? 1 : 0);
  const bool split = order == Order::kSplit || order == Order::kSplitCosFirst;
  Columns columns{};
  columns.num_second = width / 2;
  columns.num_first = width - columns.num_second;
  columns.first_stride = split ? 1 : 2;
  columns.second_offset = split ? columns.num_first : 1;
  columns.zero_column = has_zero ? width : -1;
  columns.cos_first = order == Order::kInterleavedCosFirst || order == Order::kSplitCosFirst;
  return columns;
}

POSENC_HOST_DEVICE constexpr std::int64_t first_column(const Columns& columns, std::int64_t pair) {
  return pair * columns.first_stride;
}

POSENC_HOST_DEVICE constexpr std::int64_t second_column(const Columns& columns, std::int64_t pair) {
  return columns.second_offset + pair * columns.first_stride;
}

}  // namespace posenc::math
