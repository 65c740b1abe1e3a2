#pragma once

#include <cstdint>

#include <posenc/kernels/element.h>
#include <posenc/math/frequency.h>

/// What one CUDA thread does, as plain functions of its index, so that the same code runs on a host in tests.
///
/// A thread owns one pair of columns of one row (consecutive threads own consecutive pairs, so that stores coalesce),
/// or the row's column of zeros, and for `add` that of every batch entry: the trigonometry is done once for each
/// (position, pair).

namespace posenc::kernels::cuda {

/// Threads that one row takes.
POSENC_HOST_DEVICE inline std::int64_t threads_per_row(const Args& args) {
  return args.columns.num_first + (args.columns.zero_column >= 0 ? 1 : 0);
}

/// Computes the pair of thread `index` and hands each of its columns to `write(row place, column, value)`.
template <typename scalar_t, typename Write>
POSENC_HOST_DEVICE inline void run_thread(const Args& args, const math::FrequencyTables& tables, std::int64_t index,
                                          Write&& write) {
  const std::int64_t per_row = threads_per_row(args);
  const std::int64_t row = index / per_row;
  const std::int64_t pair = index - row * per_row;
  const Place place = place_of(args.row_dims, args.num_row_dims, row);
  if (pair == args.columns.num_first) {
    write(place, args.columns.zero_column, math::round_to<scalar_t>(0.0));
    return;
  }
  const math::SinCos value = math::encode_pair(position_at(args, row, place.position),
                                               math::frequency(tables, pair), args.negative_scale);
  write_pair<scalar_t>(args.columns, pair, value,
                       [&](std::int64_t column, scalar_t rounded) { write(place, column, rounded); });
}

template <typename scalar_t>
POSENC_HOST_DEVICE inline void encode_thread(const Args& args, const math::FrequencyTables& tables,
                                             std::int64_t index) {
  scalar_t* out = static_cast<scalar_t*>(args.out);
  run_thread<scalar_t>(args, tables, index, [&](const Place& row, std::int64_t column, scalar_t encoding) {
    out[row.out + column * args.out_column_stride] = encoding;
  });
}

template <typename scalar_t>
POSENC_HOST_DEVICE inline void add_thread(const Args& args, const math::FrequencyTables& tables, std::int64_t index) {
  using compute_t = compute_type_t<scalar_t>;
  const scalar_t* x = static_cast<const scalar_t*>(args.x);
  scalar_t* out = static_cast<scalar_t*>(args.out);
  const compute_t input_scale = static_cast<compute_t>(args.input_scale);
  const compute_t alpha = static_cast<compute_t>(args.alpha);
  const std::int64_t batches = num_batches(args);
  run_thread<compute_t>(args, tables, index, [&](const Place& row, std::int64_t column, compute_t encoding) {
    for (std::int64_t batch = 0; batch < batches; ++batch) {
      const Place place = place_of(args.batch_dims, args.num_batch_dims, batch);
      out[row.out + place.out + column * args.out_column_stride] =
          add_element(x[row.x + place.x + column * args.x_column_stride], encoding, input_scale, alpha);
    }
  });
}

}  // namespace posenc::kernels::cuda
