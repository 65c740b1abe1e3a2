#pragma once

#include <cstdint>

#include <posenc/kernels/element.h>
#include <posenc/math/frequency.h>

namespace posenc::kernels::cpu {

/// Writes the encoding of one position, d_model columns `column_stride` elements apart.
template <typename scalar_t>
inline void write_row(const Args& args, const math::Float128* frequencies, const math::Position& position,
                      scalar_t* row, std::int64_t column_stride) {
  const math::Columns& columns = args.columns;
  for (std::int64_t pair = 0; pair < columns.num_first; ++pair) {
    const math::SinCos value = math::encode_pair(position, frequencies[pair], args.negative_scale);
    write_pair<scalar_t>(columns, pair, value,
                         [&](std::int64_t column, scalar_t rounded) { row[column * column_stride] = rounded; });
  }
  if (columns.zero_column >= 0) row[columns.zero_column * column_stride] = math::round_to<scalar_t>(0.0);
}

}  // namespace posenc::kernels::cpu
