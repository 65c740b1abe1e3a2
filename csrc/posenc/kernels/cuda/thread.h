#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <posenc/kernels/cuda/divisor.h>
#include <posenc/kernels/element.h>
#include <posenc/math/element.h>
#include <posenc/math/frequency.h>

/// What one CUDA thread does, as plain functions of its index, so that tests run the same code on a host.
///
/// A thread owns kPairs neighbouring pairs of columns, so that neighbouring threads write neighbouring memory, 16 bytes
/// each where the layout allows. The trigonometry is done once for each (position, pair) and used for the whole batch.
///
/// Two mappings:
/// - a range of positions: a thread owns kAnchors anchors, 32 rows each, of its pairs. It computes each step's sine and
///   cosine once and turns every anchor by it, forwards and back, so a row costs three operations a pair:
///
///       anchor 32a ---- rows 32a-16 .. 32a+15 of one magnitude |p|
///       anchor 32(a+1) ...                                          (kAnchors of them)
///
/// - given positions: a thread owns one row of its pairs, and computes its anchor and its step.
///
/// Indices and places have 64 bits everywhere; no 32-bit form is needed, since none of them is divided (divisor.h).

// Small loops over what a thread holds in registers are unrolled, or the arrays would live in memory; loops over memory
// are not, or the code would take minutes to compile.
#if defined(__CUDA_ARCH__)
#define POSENC_UNROLL _Pragma("unroll")
#define POSENC_KEEP_LOOP _Pragma("unroll 1")
#else
#define POSENC_UNROLL
#define POSENC_KEEP_LOOP
#endif

namespace posenc::kernels::cuda {

/// Pairs that fill 16 bytes when sine and cosine stand side by side.
template <typename scalar_t>
inline constexpr std::size_t kPairs = sizeof(scalar_t) == 8   ? 1
                                      : sizeof(scalar_t) == 4 ? 2
                                                              : 4;

/// Anchors of a thread: enough to share the steps among, few enough for registers.
template <typename scalar_t>
inline constexpr std::size_t kAnchors = sizeof(scalar_t) == 2 ? 2 : 4;

/// Elements that are moved as one access.
template <typename scalar_t, std::size_t n>
struct alignas(sizeof(scalar_t) * n) Pack {
  scalar_t values[n];
};

/// The magnitudes |p| of the positions of one sign, a range without gaps, and where their rows stand.
struct Segment {
  std::uint64_t first;  ///< smallest magnitude
  std::uint64_t last;   ///< largest
  bool negative;
};

/// The launch of a range: its negative positions by magnitude, then the others.
struct RangePlan {
  Segment segments[2];
  std::int64_t groups[2];  ///< groups of kAnchors anchors in each; 0 for an empty segment
};

/// Threads across the columns of a row.
template <typename scalar_t>
POSENC_HOST_DEVICE inline std::int64_t column_threads(const Args& args) {
  const std::int64_t pairs = args.columns.num_first + (args.columns.zero_column >= 0 ? 1 : 0);
  constexpr std::int64_t each = static_cast<std::int64_t>(kPairs<scalar_t>);
  return (pairs + each - 1) / each;
}

template <typename scalar_t>
inline RangePlan plan_range(const Args& args) {
  const std::int64_t rows = num_rows(args);
  const std::int64_t last = args.offset + (rows - 1);
  RangePlan plan{};
  if (rows == 0) return plan;
  const auto magnitude = [](std::int64_t p) { return math::position_from(p).magnitude; };
  if (args.offset < 0) plan.segments[0] = {magnitude(last < 0 ? last : -1), magnitude(args.offset), true};
  if (last >= 0) plan.segments[1] = {magnitude(args.offset > 0 ? args.offset : 0), magnitude(last), false};
  for (int i = 0; i < 2; ++i) {
    const bool used = i == 0 ? args.offset < 0 : last >= 0;
    if (!used) continue;
    const std::uint64_t anchors =
        math::split_position(plan.segments[i].last).anchor - math::split_position(plan.segments[i].first).anchor + 1;
    plan.groups[i] = static_cast<std::int64_t>((anchors + kAnchors<scalar_t> - 1) / kAnchors<scalar_t>);
  }
  return plan;
}

/// What a launch computes: the arguments, and what its threads need of them in another form.
struct LaunchArgs : Args {
  float float_input_scale;
  float float_alpha;
  Divisor across;  ///< column_threads
  Divisor row_sizes[kMaxDims];
  Divisor batch_sizes[kMaxDims];
};

/// `args` has at least one row and one batch entry, `across` >= 1 threads across the columns.
inline LaunchArgs make_launch_args(const Args& args, std::int64_t across) {
  LaunchArgs launch_args{
      args, static_cast<float>(args.input_scale), static_cast<float>(args.alpha), Divisor(across), {}, {}};
  for (int i = 0; i < args.num_row_dims; ++i) launch_args.row_sizes[i] = Divisor(args.row_dims[i].size);
  for (int i = 0; i < args.num_batch_dims; ++i) launch_args.batch_sizes[i] = Divisor(args.batch_dims[i].size);
  return launch_args;
}

template <typename scalar_t>
inline LaunchArgs make_launch_args(const Args& args) {
  return make_launch_args(args, column_threads<scalar_t>(args));
}

/// place_of, without a division.
POSENC_HOST_DEVICE inline Place place_at(const Dim* dims, const Divisor* sizes, int num_dims, std::int64_t index) {
  Place place{0, 0, 0};
  POSENC_KEEP_LOOP
  for (int i = num_dims - 1; i >= 0; --i) {
    const Dim& dim = dims[i];
    const std::int64_t rest = i == 0 ? 0 : sizes[i].divide(index);
    const std::int64_t at = index - rest * dim.size;
    place.position += at * dim.position_stride;
    place.x += at * dim.x_stride;
    place.out += at * dim.out_stride;
    place.token += at * dim.token_stride;
    index = rest;
  }
  return place;
}

/// input_scale and alpha in a compute type, without a conversion by each thread.
template <typename compute_t>
struct Scales {
  compute_t input;
  compute_t encoding;

  POSENC_HOST_DEVICE explicit Scales(const LaunchArgs& args) {
    if constexpr (std::is_same_v<compute_t, double>) {
      input = args.input_scale;
      encoding = args.alpha;
    } else {
      input = args.float_input_scale;
      encoding = args.float_alpha;
    }
  }
};

/// The rounded columns of a thread's pairs, first and second function side by side.
template <typename rounded_t, std::size_t pairs>
struct Columns {
  rounded_t values[2 * pairs];

  POSENC_HOST_DEVICE Columns(const math::SinCos (&unrounded)[pairs], bool cos_first) {
    POSENC_UNROLL
    for (std::size_t i = 0; i < pairs; ++i) {
      values[2 * i] = math::round_to<rounded_t>(cos_first ? unrounded[i].cos : unrounded[i].sin);
      values[2 * i + 1] = math::round_to<rounded_t>(cos_first ? unrounded[i].sin : unrounded[i].cos);
    }
  }

  /// Calls visit(column, value) for each column that exists.
  template <typename Visit>
  POSENC_HOST_DEVICE void for_each(const math::Columns& columns, std::int64_t pair, const Visit& visit) const {
    POSENC_UNROLL
    for (std::size_t i = 0; i < pairs; ++i) {
      const std::int64_t k = pair + static_cast<std::int64_t>(i);
      if (k < columns.num_first) visit(math::first_column(columns, k), values[2 * i]);
      if (k < columns.num_second) visit(math::second_column(columns, k), values[2 * i + 1]);
      if (k == columns.num_first && columns.zero_column >= 0) visit(columns.zero_column, rounded_t{});
    }
  }
};

/// Writes a token's columns: the encoding itself.
template <typename scalar_t>
struct EncodeRow {
  POSENC_HOST_DEVICE static void run(const LaunchArgs& args, const Place& row, std::int64_t pair,
                                     const math::SinCos (&unrounded)[kPairs<scalar_t>]) {
    constexpr std::size_t pairs = kPairs<scalar_t>;
    const Columns<scalar_t, pairs> encoding(unrounded, args.columns.cos_first);
    scalar_t* const out = static_cast<scalar_t*>(args.out) + row.out;
    if (args.vectors && pair + static_cast<std::int64_t>(pairs) <= args.columns.num_second) {
      Pack<scalar_t, 2 * pairs> pack;
      POSENC_UNROLL
      for (std::size_t i = 0; i < 2 * pairs; ++i) pack.values[i] = encoding.values[i];
      *reinterpret_cast<Pack<scalar_t, 2 * pairs>*>(out + 2 * pair) = pack;
    } else {
      encoding.for_each(args.columns, pair,
                        [&](std::int64_t column, scalar_t value) { out[column * args.out_column_stride] = value; });
    }
  }
};

/// Adds a row's encoding to the tokens of its whole batch.
template <typename scalar_t>
struct AddRow {
  POSENC_HOST_DEVICE static void run(const LaunchArgs& args, const Place& row, std::int64_t pair,
                                     const math::SinCos (&unrounded)[kPairs<scalar_t>]) {
    using compute_t = compute_type_t<scalar_t>;
    constexpr std::size_t pairs = kPairs<scalar_t>;
    const Columns<compute_t, pairs> encoding(unrounded, args.columns.cos_first);
    const Scales<compute_t> scales(args);
    const bool vectors = args.vectors && pair + static_cast<std::int64_t>(pairs) <= args.columns.num_second;
    const std::int64_t batches = num_batches(args);
    POSENC_KEEP_LOOP
    for (std::int64_t batch = 0; batch < batches; ++batch) {
      const Place place = place_at(args.batch_dims, args.batch_sizes, args.num_batch_dims, batch);
      const scalar_t* const x = static_cast<const scalar_t*>(args.x) + row.x + place.x;
      scalar_t* const out = static_cast<scalar_t*>(args.out) + row.out + place.out;
      if (vectors) {
        Pack<scalar_t, 2 * pairs> pack = *reinterpret_cast<const Pack<scalar_t, 2 * pairs>*>(x + 2 * pair);
        POSENC_UNROLL
        for (std::size_t i = 0; i < 2 * pairs; ++i) {
          pack.values[i] = add_element(pack.values[i], encoding.values[i], scales.input, scales.encoding);
        }
        *reinterpret_cast<Pack<scalar_t, 2 * pairs>*>(out + 2 * pair) = pack;
      } else {
        encoding.for_each(args.columns, pair, [&](std::int64_t column, compute_t value) {
          out[column * args.out_column_stride] =
              add_element(x[column * args.x_column_stride], value, scales.input, scales.encoding);
        });
      }
    }
  }
};

/// Thread (group, column_thread) of a range: kAnchors anchors of segment `segment` from its group on.
template <typename scalar_t, typename Row>
POSENC_HOST_DEVICE inline void range_thread(const LaunchArgs& args, const math::FrequencyTables& tables,
                                            const Segment& segment, std::int64_t group, std::int64_t column_thread) {
  constexpr std::size_t pairs = kPairs<scalar_t>;
  constexpr std::size_t anchors = kAnchors<scalar_t>;
  const std::int64_t pair = column_thread * static_cast<std::int64_t>(pairs);
  const std::uint64_t first_anchor =
      math::split_position(segment.first).anchor + static_cast<std::uint64_t>(group) * anchors;
  const bool mirrored = segment.negative != args.negative_scale;

  math::TurnFraction fractions[pairs];
  math::SinCos anchor[anchors][pairs];
  POSENC_UNROLL
  for (std::size_t i = 0; i < pairs; ++i) {
    // Past the last frequency a thread computes what it does not write.
    const std::int64_t own = pair + static_cast<std::int64_t>(i);
    const std::int64_t k = own < args.columns.num_first ? own : 0;
    fractions[i] = args.columns.num_first > 0 ? math::turn_fraction(math::frequency(tables, k)) : math::TurnFraction{};
    POSENC_UNROLL
    for (std::size_t m = 0; m < anchors; ++m) {
      const std::uint64_t position = (first_anchor + m) << 5;
      anchor[m][i] = math::sincos_of_phase(math::phase_of_integer(position, fractions[i]));
    }
  }

  const auto write = [&](std::uint64_t magnitude, const math::SinCos(&values)[pairs]) {
    if (magnitude < segment.first || magnitude > segment.last) return;
    const std::uint64_t position = segment.negative ? 0 - magnitude : magnitude;
    const std::int64_t row = static_cast<std::int64_t>(position - static_cast<std::uint64_t>(args.offset));
    // A range has one row dimension (none for a single row), so no index has to be split.
    const Dim& dim = args.row_dims[0];
    Row::run(args, Place{0, row * dim.x_stride, row * dim.out_stride, row * dim.token_stride}, pair, values);
  };

  // r = 0 is the anchor itself: its step is exactly (0, 1). In this loop rather than before it, because what stands in
  // `write` is inlined at each call and decides how long this compiles. Both rows are computed before either is
  // written, or the compiler would not share their products.
  POSENC_KEEP_LOOP
  for (int r = 0; r <= 16; ++r) {
    const std::uint64_t distance = static_cast<std::uint64_t>(r);
    math::SinCos step[pairs];
    POSENC_UNROLL
    for (std::size_t i = 0; i < pairs; ++i) {
      step[i] = math::sincos_of_phase(math::phase_of_integer(distance, fractions[i]));
    }
    POSENC_UNROLL
    for (std::size_t m = 0; m < anchors; ++m) {
      const std::uint64_t position = (first_anchor + m) << 5;
      math::SinCos on[pairs];
      math::SinCos back[pairs];
      POSENC_UNROLL
      for (std::size_t i = 0; i < pairs; ++i) {
        const math::Turn turn(anchor[m][i], step[i]);
        on[i] = turn.value(false);
        back[i] = turn.value(true);
        on[i].sin = math::negate_if(mirrored && position + distance != 0, on[i].sin);
        back[i].sin = math::negate_if(mirrored && position - distance != 0, back[i].sin);
      }
      if (r < 16) write(position + distance, on);
      if (r > 0 && position != 0) write(position - distance, back);
    }
  }
}

/// Thread (row, column_thread) of given positions.
template <typename scalar_t, typename Row>
POSENC_HOST_DEVICE inline void position_thread(const LaunchArgs& args, const math::FrequencyTables& tables,
                                               std::int64_t row, std::int64_t column_thread) {
  constexpr std::size_t pairs = kPairs<scalar_t>;
  const std::int64_t pair = column_thread * static_cast<std::int64_t>(pairs);
  const Place place = place_at(args.row_dims, args.row_sizes, args.num_row_dims, row);
  const math::Position position = position_at(args, row, place.position);
  math::SinCos values[pairs] = {};
  POSENC_UNROLL
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::int64_t k = pair + static_cast<std::int64_t>(i);
    if (k < args.columns.num_first) {
      values[i] = math::encode_pair(position, math::frequency(tables, k), args.negative_scale);
    }
  }
  Row::run(args, place, pair, values);
}

// A flat index of a launch, and how many there are, neighbours across the columns.

template <typename scalar_t, typename Row>
POSENC_HOST_DEVICE inline void run_range_thread(const LaunchArgs& args, const math::FrequencyTables& tables,
                                                const RangePlan& plan, std::int64_t index) {
  const std::int64_t group = args.across.divide(index);
  const int segment = group < plan.groups[0] ? 0 : 1;
  range_thread<scalar_t, Row>(args, tables, plan.segments[segment], segment == 0 ? group : group - plan.groups[0],
                              index - group * column_threads<scalar_t>(args));
}

template <typename scalar_t>
inline std::int64_t num_range_threads(const Args& args, const RangePlan& plan) {
  return (plan.groups[0] + plan.groups[1]) * column_threads<scalar_t>(args);
}

template <typename scalar_t, typename Row>
POSENC_HOST_DEVICE inline void run_position_thread(const LaunchArgs& args, const math::FrequencyTables& tables,
                                                   std::int64_t index) {
  const std::int64_t row = args.across.divide(index);
  position_thread<scalar_t, Row>(args, tables, row, index - row * column_threads<scalar_t>(args));
}

template <typename scalar_t>
inline std::int64_t num_position_threads(const Args& args) {
  return num_rows(args) * column_threads<scalar_t>(args);
}

inline constexpr int kBlockSize = 128;

/// Blocks for `count` threads; each thread walks on by the whole grid where there are more.
inline unsigned grid_size(std::int64_t count) {
  constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 30;
  const std::int64_t blocks = count / kBlockSize + (count % kBlockSize != 0 ? 1 : 0);
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

/// Whether a run of kPairs pairs, or of 16 bytes of x and out, can be one access: dense columns, places and strides
/// that are multiples of 16 bytes.
inline bool can_use_vectors(const Args& args) {
  if (args.columns.first_stride != 2 || args.out_column_stride != 1) return false;
  if (args.x != nullptr && args.x_column_stride != 1) return false;
  const std::int64_t elements = 16 / element_size(args.dtype);
  const auto aligned = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; };
  if (!aligned(args.x) || !aligned(args.out)) return false;
  const auto multiples = [elements](const Dim* dims, int count) {
    for (int i = 0; i < count; ++i) {
      if (dims[i].x_stride % elements != 0 || dims[i].out_stride % elements != 0) return false;
    }
    return true;
  };
  return multiples(args.row_dims, args.num_row_dims) && multiples(args.batch_dims, args.num_batch_dims);
}

}  // namespace posenc::kernels::cuda
