// The loops of lanes.h for one instruction set: included by lanes.cpp after vectors.h, once for each. See Note [One
// source, several instruction sets].

/// Pairs that a loop takes at a time: what fills two vectors of floats where sine and cosine alternate.
constexpr std::int64_t kPairs = 2 * kDoubles;

// What a vector of unrounded doubles becomes before it is joined with its neighbours: the compute type, nearest for a
// sum, to odd (see to_float_odd) where a 16-bit type follows at once.

struct Nearest {
  template <typename compute_t>
  static compute_t element(double value) {
    return static_cast<compute_t>(value);
  }
  static HalfFloats to_float(Doubles value) { return nearest_floats(value); }
};

struct ToOdd {
  template <typename compute_t>
  static compute_t element(double value) {
    return math::detail::to_float_odd(value);
  }
  static HalfFloats to_float(Doubles value) {
    constexpr std::int64_t kCut = (std::int64_t{1} << 29) - 1;
    Longs bits = (Longs)value;
    bits = (bits | ((bits & kCut) + kCut)) & ~kCut;
    return nearest_floats((Doubles)bits);
  }
};

/// kPairs neighbouring columns in the compute type.
template <typename compute_t>
struct Block;

template <>
struct Block<float> {
  Floats values;
};

template <>
struct Block<double> {
  Doubles values[2];
};

inline Block<float> load_block(const float* from) { return {load<Floats>(from)}; }
inline Block<double> load_block(const double* from) { return {{load<Doubles>(from), load<Doubles>(from + kDoubles)}}; }

/// The two blocks that kPairs pairs fill: where the columns alternate, neighbours; where they are split, the first
/// functions and the second ones.
template <int kStride, typename Rounding>
inline void join(const Doubles (&first)[2], const Doubles (&second)[2], Block<float>& a, Block<float>& b) {
  const HalfFloats f0 = Rounding::to_float(first[0]), f1 = Rounding::to_float(first[1]);
  const HalfFloats s0 = Rounding::to_float(second[0]), s1 = Rounding::to_float(second[1]);
  if constexpr (kStride == 2) {
    a.values = interleave(f0, s0);
    b.values = interleave(f1, s1);
  } else {
    a.values = concatenate(f0, f1);
    b.values = concatenate(s0, s1);
  }
}

template <int kStride, typename Rounding>
inline void join(const Doubles (&first)[2], const Doubles (&second)[2], Block<double>& a, Block<double>& b) {
  if constexpr (kStride == 2) {
    a = {{interleave_low(first[0], second[0]), interleave_high(first[0], second[0])}};
    b = {{interleave_low(first[1], second[1]), interleave_high(first[1], second[1])}};
  } else {
    a = {{first[0], first[1]}};
    b = {{second[0], second[1]}};
  }
}

/// Stores an encoding. kPast: past the cache.
template <typename scalar_t, bool kPast>
struct Encode {
  using element_t = scalar_t;
  using compute_t = compute_type_t<scalar_t>;
  static constexpr bool kTwoBytes = sizeof(scalar_t) == 2;
  using Rounding = std::conditional_t<kTwoBytes, ToOdd, Nearest>;
  scalar_t* out;

  struct Nothing {};
  Nothing load(std::int64_t) const { return {}; }
  Nothing load_two(std::int64_t) const { return {}; }

  void block(std::int64_t column, const Block<float>& encoding, Nothing) const {
    narrow<kPast>(encoding.values, out + column);
  }
  void two_blocks(std::int64_t column, const TwoFloats<scalar_t>& encoding, Nothing) const {
    narrow_two<kPast>(encoding, out + column);
  }
  void block(std::int64_t column, const Block<double>& encoding, Nothing) const {
    for (int i = 0; i < 2; ++i) {
      Doubles value = encoding.values[i];
      value = value > 1.0 ? Doubles{} + 1.0 : value;
      value = value < -1.0 ? Doubles{} - 1.0 : value;
      store<kPast>(out + column + i * kDoubles, value);
    }
  }
  void element(std::int64_t column, compute_t encoding) const {
    if constexpr (std::is_same_v<scalar_t, double>) {
      out[column] = math::round_to<double>(encoding);
    } else {
      out[column] = math::store_as<scalar_t>(encoding);
    }
  }
};

/// Stores x * input_scale + alpha * encoding. kPlain: both factors are 1. kPast: past the cache.
template <typename scalar_t, bool kPlain, bool kPast>
struct Add {
  using element_t = scalar_t;
  using compute_t = compute_type_t<scalar_t>;
  static constexpr bool kTwoBytes = sizeof(scalar_t) == 2;
  using Rounding = Nearest;
  const scalar_t* x;
  scalar_t* out;
  const scalar_t* next_x;
  compute_t input_scale;
  compute_t alpha;

  template <typename Vector>
  Vector sum(Vector x_values, Vector encoding) const {
    if constexpr (kPlain) return x_values + encoding;
    return x_values * input_scale + encoding * alpha;
  }

  /// Once for each line of the cache, where `count` columns are taken at a time.
  void fetch_next(std::int64_t column, std::int64_t count) const {
    constexpr std::int64_t kLine = 64 / sizeof(scalar_t);
    if (next_x == nullptr || (count < kLine && column % kLine >= count)) return;
    for (std::int64_t i = 0; i < count; i += kLine) __builtin_prefetch(next_x + column + i);
  }

  // What is added to is loaded by the caller before it stores anything: a load waits for an earlier store whose address
  // ends in the same 12 bits, and rows often are a multiple of 4,096 bytes apart.

  Block<compute_t> load(std::int64_t column) const {
    fetch_next(column, kPairs);
    if constexpr (std::is_same_v<compute_t, float>) {
      return {widen(x + column)};
    } else {
      return load_block(x + column);
    }
  }
  TwoFloats<scalar_t> load_two(std::int64_t column) const {
    fetch_next(column, 2 * kPairs);
    return widen_two(x + column);
  }

  void block(std::int64_t column, const Block<float>& encoding, const Block<float>& x_values) const {
    narrow<kPast>(sum(x_values.values, encoding.values), out + column);
  }
  void two_blocks(std::int64_t column, const TwoFloats<scalar_t>& encoding, const TwoFloats<scalar_t>& x_values) const {
    narrow_two<kPast>(TwoFloats<scalar_t>{sum(x_values.low, encoding.low), sum(x_values.high, encoding.high)},
                      out + column);
  }
  void block(std::int64_t column, const Block<double>& encoding, const Block<double>& x_values) const {
    for (int i = 0; i < 2; ++i) {
      store<kPast>(out + column + i * kDoubles, sum(x_values.values[i], encoding.values[i]));
    }
  }
  void element(std::int64_t column, compute_t encoding) const {
    out[column] = add_element(x[column], encoding, input_scale, alpha);
  }
};

/// Values of kDoubles neighbouring pairs.
struct Pairs {
  Doubles first;
  Doubles second;
};

/// The pairs that stand in memory.
struct Ready {
  static constexpr std::size_t kRows = 1;
  const double* first;
  const double* second;

  void at(std::int64_t k, Pairs (&rows)[1]) const { rows[0] = {load<Doubles>(first + k), load<Doubles>(second + k)}; }
};

/// math::turn of an anchor by a step, on or back.
template <bool kBack>
struct Turned {
  static constexpr std::size_t kRows = 1;
  const RowValues anchor;

  void at(std::int64_t k, Pairs (&rows)[1]) const {
    const Doubles first = load_once(anchor.first + k), second = load_once(anchor.second + k);
    const Doubles sin = load_once(anchor.step_sin + k), cos = load_once(anchor.step_cos + k);
    const Doubles x = second * sin, y = first * sin;
    rows[0] = {fused(first, cos, kBack ? -x : x), fused(second, cos, kBack ? y : -y)};
  }
};

/// Both, which share their products.
struct TurnedBothWays {
  static constexpr std::size_t kRows = 2;
  const RowValues anchor;

  void at(std::int64_t k, Pairs (&rows)[2]) const {
    const Doubles first = load_once(anchor.first + k), second = load_once(anchor.second + k);
    const Doubles sin = load_once(anchor.step_sin + k), cos = load_once(anchor.step_cos + k);
    const Doubles x = second * sin, y = first * sin;
    rows[0] = {fused(first, cos, x), fused(second, cos, -y)};
    rows[1] = {fused(first, cos, -x), fused(second, cos, y)};
  }
};

/// Gives each row's sink the columns of `count` pairs; the second function of the first pair is column `second_column`.
template <int kStride, typename Source, typename Sink>
inline void for_each_block(const Source source, std::int64_t count, std::int64_t second_column,
                           const Sink (&sinks)[Source::kRows]) {
  constexpr std::size_t kRows = Source::kRows;
  using compute_t = typename Sink::compute_t;
  using Rounding = typename Sink::Rounding;
  Pairs pairs0[kRows], pairs1[kRows];
  Block<compute_t> a, b;
  const auto make_pairs = [&](std::int64_t k) {
    source.at(k, pairs0);
    source.at(k + kDoubles, pairs1);
  };
  const auto make_blocks = [&](std::size_t row) {
    join<kStride, Rounding>({pairs0[row].first, pairs1[row].first}, {pairs0[row].second, pairs1[row].second}, a, b);
  };
  std::int64_t k = 0;
  for (; k + kPairs <= count; k += kPairs) {
    make_pairs(k);
    const std::int64_t a_column = kStride * k, b_column = kStride == 2 ? 2 * k + kPairs : second_column + k;
    if constexpr (kStride == 2 && Sink::kTwoBytes) {
      decltype(sinks[0].load_two(0)) x[kRows];
      for (std::size_t row = 0; row < kRows; ++row) x[row] = sinks[row].load_two(a_column);
      for (std::size_t row = 0; row < kRows; ++row) {
        const HalfFloats first[2] = {Rounding::to_float(pairs0[row].first), Rounding::to_float(pairs1[row].first)};
        const HalfFloats second[2] = {Rounding::to_float(pairs0[row].second), Rounding::to_float(pairs1[row].second)};
        sinks[row].two_blocks(a_column, alternate<typename Sink::element_t>(first, second), x[row]);
      }
    } else {
      decltype(sinks[0].load(0)) x[kRows][2];
      for (std::size_t row = 0; row < kRows; ++row) {
        x[row][0] = sinks[row].load(a_column);
        x[row][1] = sinks[row].load(b_column);
      }
      for (std::size_t row = 0; row < kRows; ++row) {
        make_blocks(row);
        sinks[row].block(a_column, a, x[row][0]);
        sinks[row].block(b_column, b, x[row][1]);
      }
    }
  }
  if (k == count) return;
  // Whole vectors can be read to the end (buffer.h); what exists is written.
  make_pairs(k);
  for (std::size_t row = 0; row < kRows; ++row) {
    make_blocks(row);
    compute_t values[2 * kPairs];
    store<false>(values, a);
    store<false>(values + kPairs, b);
    for (std::int64_t i = 0; k + i < count; ++i) {
      sinks[row].element(kStride * (k + i), values[kStride * i]);
      sinks[row].element(second_column + kStride * (k + i), values[kStride == 2 ? 2 * i + 1 : kPairs + i]);
    }
  }
}

/// One whole row.
template <int kStride, typename Sink>
inline void for_each_pair(const RowValues& values, std::int64_t count, std::int64_t second_column, const Sink& sink) {
  if (values.step_sin == nullptr) {
    for_each_block<kStride>(Ready{values.first, values.second}, count, second_column, {sink});
  } else if (values.sign < 0) {
    for_each_block<kStride>(Turned<true>{values}, count, second_column, {sink});
  } else {
    for_each_block<kStride>(Turned<false>{values}, count, second_column, {sink});
  }
}

template <typename Sink>
inline void for_each_column(const math::Columns& columns, const RowValues& values, const Sink& sink) {
  const std::int64_t pairs = columns.num_second;
  if (columns.first_stride == 1) {
    for_each_pair<1>(values, pairs, columns.second_offset, sink);
  } else {
    for_each_pair<2>(values, pairs, 1, sink);
  }
  if (columns.num_first > pairs) {
    double value = values.first[pairs];
    if (values.step_sin != nullptr) {
      value =
          math::turn({value, values.second[pairs]}, {values.sign * values.step_sin[pairs], values.step_cos[pairs]}).sin;
    }
    sink.element(math::first_column(columns, pairs), Sink::Rounding::template element<typename Sink::compute_t>(value));
  }
  if (columns.zero_column >= 0) sink.element(columns.zero_column, 0);
}

/// `count` pairs of both rows that one step makes.
template <typename Sink>
inline void for_each_pair_of_two_rows(const RowValues& values, std::int64_t count, std::int64_t stride,
                                      std::int64_t second_column, const Sink& plus, const Sink& minus) {
  const bool back = values.sign < 0;
  const Sink sinks[2] = {back ? minus : plus, back ? plus : minus};
  if (stride == 1) {
    for_each_block<1>(TurnedBothWays{values}, count, second_column, sinks);
  } else {
    for_each_block<2>(TurnedBothWays{values}, count, 1, sinks);
  }
}

/// Calls call(sink) with the Add of each row, the cheaper one where both factors are 1.
template <typename scalar_t, bool kPast, typename Call, typename... Rows>
inline void with_add(double input_scale, double alpha, const Call& call, const Rows&... rows) {
  using compute_t = compute_type_t<scalar_t>;
  const compute_t scale = static_cast<compute_t>(input_scale), factor = static_cast<compute_t>(alpha);
  const auto make = [&](auto plain, const AddRow& row) {
    return Add<scalar_t, plain(), kPast>{static_cast<const scalar_t*>(row.x), static_cast<scalar_t*>(row.out),
                                         static_cast<const scalar_t*>(row.next_x), scale, factor};
  };
  if (scale == 1 && factor == 1) {
    call(make(std::true_type{}, rows)...);
  } else {
    call(make(std::false_type{}, rows)...);
  }
}

inline void phases(std::uint64_t magnitude, const std::uint64_t* hi, const std::uint64_t* lo, std::int64_t count,
                   std::uint64_t* phases) {
  constexpr std::uint64_t kLow = 0xFFFFFFFFu;
  if (magnitude > kLow) {
    for (std::int64_t k = 0; k < count; ++k) phases[k] = math::phase_of_integer(magnitude, {hi[k], lo[k]});
    return;
  }
  // The same product of 64 bits by 128, from products of 32 bits by 32, which vectorise.
  POSENC_INDEPENDENT
  for (std::int64_t k = 0; k < count; ++k) {
    const std::uint64_t p0 = magnitude * (lo[k] & kLow);
    const std::uint64_t p1 = magnitude * (lo[k] >> 32) + (p0 >> 32);
    phases[k] = magnitude * (hi[k] & kLow) + ((magnitude * (hi[k] >> 32)) << 32) + (p1 >> 32);
  }
}

__attribute__((flatten)) inline void sincos(const std::uint64_t* phases, std::int64_t count, double* sin, double* cos) {
  POSENC_INDEPENDENT
  for (std::int64_t k = 0; k < count; ++k) {
    const math::SinCos value = math::sincos_of_phase(phases[k]);
    sin[k] = value.sin;
    cos[k] = value.cos;
  }
}

template <typename scalar_t>
__attribute__((flatten)) void encode_row(const math::Columns& columns, const RowValues& values, void* out) {
  for_each_column(columns, values, Encode<scalar_t, false>{static_cast<scalar_t*>(out)});
}

template <typename scalar_t>
__attribute__((flatten)) void encode_two_rows(const RowValues& values, std::int64_t count, std::int64_t stride,
                                              std::int64_t second_column, void* plus, void* minus, bool past_cache) {
  const auto encode = [&](auto past) {
    using Sink = Encode<scalar_t, past()>;
    for_each_pair_of_two_rows(values, count, stride, second_column, Sink{static_cast<scalar_t*>(plus)},
                              Sink{static_cast<scalar_t*>(minus)});
  };
  past_cache ? encode(std::true_type{}) : encode(std::false_type{});
}

template <typename scalar_t>
__attribute__((flatten)) void add_row(const math::Columns& columns, const RowValues& values, const AddRow& row,
                                      double input_scale, double alpha) {
  with_add<scalar_t, false>(
      input_scale, alpha, [&](const auto& sink) { for_each_column(columns, values, sink); }, row);
}

template <typename scalar_t>
__attribute__((flatten)) void add_two_rows(const RowValues& values, std::int64_t count, std::int64_t stride,
                                           std::int64_t second_column, const AddRow& plus, const AddRow& minus,
                                           double input_scale, double alpha, bool past_cache) {
  const auto add = [&](const auto& plus_sink, const auto& minus_sink) {
    for_each_pair_of_two_rows(values, count, stride, second_column, plus_sink, minus_sink);
  };
  if (past_cache) {
    with_add<scalar_t, true>(input_scale, alpha, add, plus, minus);
  } else {
    with_add<scalar_t, false>(input_scale, alpha, add, plus, minus);
  }
}

template <typename scalar_t>
__attribute__((flatten)) void add_encoding(const void* encoding, const AddRow& row, std::int64_t count,
                                           double input_scale, double alpha, bool past_cache) {
  const auto* const values = static_cast<const compute_type_t<scalar_t>*>(encoding);
  const auto add = [&](const auto& sink) {
    std::int64_t i = 0;
    if constexpr (sizeof(scalar_t) == 2) {
      for (; i + 2 * kPairs <= count; i += 2 * kPairs)
        sink.two_blocks(i, load_two<scalar_t>(values + i), sink.load_two(i));
    }
    for (; i + kPairs <= count; i += kPairs) sink.block(i, load_block(values + i), sink.load(i));
    for (; i < count; ++i) sink.element(i, values[i]);
  };
  if (past_cache) {
    with_add<scalar_t, true>(input_scale, alpha, add, row);
  } else {
    with_add<scalar_t, false>(input_scale, alpha, add, row);
  }
}

// In the order of DType.
// NOLINTBEGIN(bugprone-macro-parentheses): the argument is the name of a template
#define POSENC_BY_DTYPE(function) \
  { function<double>, function<float>, function<math::BFloat16>, function<math::Float16> }
// NOLINTEND(bugprone-macro-parentheses)

constexpr Lanes kLanes = {kPairs,
                          phases,
                          sincos,
                          POSENC_BY_DTYPE(encode_row),
                          POSENC_BY_DTYPE(encode_two_rows),
                          POSENC_BY_DTYPE(add_row),
                          POSENC_BY_DTYPE(add_two_rows),
                          POSENC_BY_DTYPE(add_encoding),
                          POSENC_BY_DTYPE(dropout_row)};

#undef POSENC_BY_DTYPE
