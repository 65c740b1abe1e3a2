#pragma once

#include <cstddef>
#include <cstdint>

#include <posenc/kernels/cuda/thread.h>
#include <posenc/kernels/dropout.h>

/// What one CUDA thread does where dropout is involved, as plain functions, so that tests run the same code on a host.

namespace posenc::kernels::cuda {

/// The mask of one token's elements, see Note [The mask of an element]. Keeps the last block of words: neighbouring
/// columns share it.
class TokenMask {
 public:
  POSENC_HOST_DEVICE TokenMask(const Args& args, const RandomState& state, std::int64_t token)
      : state_(state),
        first_(static_cast<std::uint64_t>(args.dropout.first_token + token) * static_cast<std::uint64_t>(args.d_model)),
        limit_(args.dropout.limit) {}

  POSENC_HOST_DEVICE bool keeps(std::int64_t column) {
    const std::uint64_t element = first_ + static_cast<std::uint64_t>(column);
    if (!has_words_ || element / kBlockElements != block_) {
      block_ = element / kBlockElements;
      random_ = random_block(state_, block_);
      has_words_ = true;
    }
    const std::uint16_t bits = bits_of(random_, element % kBlockElements);
    if (is_tie(bits, limit_)) return !drops_tie(state_, element, limit_);
    return kernels::keeps(bits, limit_.first);
  }

 private:
  RandomState state_;
  std::uint64_t first_;
  DropoutLimit limit_;
  bool has_words_ = false;
  std::uint64_t block_ = 0;
  math::PhiloxBlock random_{};
};

/// Adds a row's encoding to the tokens of its whole batch, with dropout of each sum.
template <typename scalar_t>
struct AddDropoutRow {
  POSENC_HOST_DEVICE static void run(const LaunchArgs& args, const Place& row, std::int64_t pair,
                                     const math::SinCos (&unrounded)[kPairs<scalar_t>]) {
    using compute_t = compute_type_t<scalar_t>;
    constexpr std::size_t pairs = kPairs<scalar_t>;
    const Columns<compute_t, pairs> encoding(unrounded, args.columns.cos_first);
    const Scales<compute_t> scales(args);
    const compute_t factor = static_cast<compute_t>(args.dropout.factor);
    const RandomState state = random_state(args.dropout);
    if (pair == 0 && args.dropout.first_token + row.token == 0) save_random_state(args.dropout, state);
    const bool vectors = args.vectors && pair + static_cast<std::int64_t>(pairs) <= args.columns.num_second;
    const std::int64_t batches = num_batches(args);
    POSENC_KEEP_LOOP
    for (std::int64_t batch = 0; batch < batches; ++batch) {
      const Place place = place_at(args.batch_dims, args.batch_sizes, args.num_batch_dims, batch);
      const scalar_t* const x = static_cast<const scalar_t*>(args.x) + row.x + place.x;
      scalar_t* const out = static_cast<scalar_t*>(args.out) + row.out + place.out;
      TokenMask mask(args, state, row.token + place.token);
      if (vectors) {
        Pack<scalar_t, 2 * pairs> pack = *reinterpret_cast<const Pack<scalar_t, 2 * pairs>*>(x + 2 * pair);
        POSENC_UNROLL
        for (std::size_t i = 0; i < 2 * pairs; ++i) {
          const scalar_t sum = add_element(pack.values[i], encoding.values[i], scales.input, scales.encoding);
          pack.values[i] = drop_element(sum, mask.keeps(2 * pair + static_cast<std::int64_t>(i)), factor);
        }
        *reinterpret_cast<Pack<scalar_t, 2 * pairs>*>(out + 2 * pair) = pack;
      } else {
        encoding.for_each(args.columns, pair, [&](std::int64_t column, compute_t value) {
          const scalar_t sum = add_element(x[column * args.x_column_stride], value, scales.input, scales.encoding);
          out[column * args.out_column_stride] = drop_element(sum, mask.keeps(column), factor);
        });
      }
    }
  }
};

/// Columns of a thread of dropout alone: those that share a block of words.
inline constexpr std::int64_t kDropoutColumns = static_cast<std::int64_t>(kBlockElements);

POSENC_HOST_DEVICE inline std::int64_t dropout_column_threads(const Args& args) {
  return (args.d_model + kDropoutColumns - 1) / kDropoutColumns;
}

POSENC_HOST_DEVICE inline std::int64_t num_dropout_threads(const Args& args) {
  return num_batches(args) * dropout_column_threads(args);
}

/// The launch of dropout alone; `args` has at least one token and a column.
inline LaunchArgs make_dropout_launch_args(const Args& args) {
  return make_launch_args(args, dropout_column_threads(args));
}

/// Thread `index` of out = dropout of x: a few neighbouring columns of one token.
template <typename scalar_t>
POSENC_HOST_DEVICE inline void run_dropout_thread(const LaunchArgs& args, std::int64_t index) {
  using compute_t = compute_type_t<scalar_t>;
  const std::int64_t token = args.across.divide(index);
  const std::int64_t first = (index - token * dropout_column_threads(args)) * kDropoutColumns;
  const Place place = place_at(args.batch_dims, args.batch_sizes, args.num_batch_dims, token);
  const scalar_t* const x = static_cast<const scalar_t*>(args.x) + place.x;
  scalar_t* const out = static_cast<scalar_t*>(args.out) + place.out;
  const compute_t factor = static_cast<compute_t>(args.dropout.factor);
  TokenMask mask(args, random_state(args.dropout), place.token);
  POSENC_UNROLL
  for (std::int64_t i = 0; i < kDropoutColumns; ++i) {
    const std::int64_t column = first + i;
    if (column >= args.d_model) return;
    out[column * args.out_column_stride] = drop_element(x[column * args.x_column_stride], mask.keeps(column), factor);
  }
}

}  // namespace posenc::kernels::cuda
