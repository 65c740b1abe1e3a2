#include <posenc/kernels/cpu/lanes.h>

#include <posenc/kernels/element.h>
#include <posenc/math/element.h>
#include <posenc/math/rounding.h>
#include <posenc/math/sincos.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Note [One source, several instruction sets]
// Each loop is written once, as plain C++ that compilers vectorise, and compiled for each level by a wrapper with a
// target attribute, into which it is inlined whole. Vector width changes no bit: lanes do not interact, every fma is
// written out, contraction is off. No function of this file that is not a wrapper may be left outside one, hence
// `flatten`; nothing here is shared with other files, so code for a wide level cannot leak into a narrow one.

#if defined(__clang__)
#define POSENC_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define POSENC_WIDE
#else
#define POSENC_INDEPENDENT _Pragma("GCC ivdep")
#define POSENC_WIDE ",prefer-vector-width=512"
#endif

namespace posenc::kernels::cpu {
namespace {

inline void phases_loop(std::uint64_t magnitude, const std::uint64_t* hi, const std::uint64_t* lo, std::int64_t count,
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

inline void sincos_loop(const std::uint64_t* phases, std::int64_t count, double* sin, double* cos) {
  POSENC_INDEPENDENT
  for (std::int64_t k = 0; k < count; ++k) {
    const math::SinCos value = math::sincos_of_phase(phases[k]);
    sin[k] = value.sin;
    cos[k] = value.cos;
  }
}

/// Calls write(0 or 1, pair, value) for the first and second function of the pairs [begin, end), all of which have
/// both.
template <typename Write>
inline void for_each_pair(const RowValues& values, std::int64_t begin, std::int64_t end, const Write& write) {
  const double* const a1 = values.first;
  const double* const a2 = values.second;
  const double* const s = values.step_sin;
  const double* const c = values.step_cos;
  const double sign = values.sign;
  if (s == nullptr) {
    POSENC_INDEPENDENT
    for (std::int64_t k = begin; k < end; ++k) write(k, a1[k], a2[k]);
    return;
  }
  POSENC_INDEPENDENT
  for (std::int64_t k = begin; k < end; ++k) {
    const math::SinCos value = math::turn({a1[k], a2[k]}, {sign * s[k], c[k]});
    write(k, value.sin, value.cos);
  }
}

/// The first function of one pair.
inline double first_value(const RowValues& values, std::int64_t k) {
  if (values.step_sin == nullptr) return values.first[k];
  return math::turn({values.first[k], values.second[k]}, {values.sign * values.step_sin[k], values.step_cos[k]}).sin;
}

/// Calls write(column, value) for every column.
template <typename Write>
inline void for_each_column(const math::Columns& columns, const RowValues& values, const Write& write) {
  const std::int64_t pairs = columns.num_second;
  const std::int64_t second_offset = columns.second_offset;
  if (columns.first_stride == 1) {
    for_each_pair(values, 0, pairs, [=](std::int64_t k, double first, double second) {
      write(k, first);
      write(second_offset + k, second);
    });
  } else {
    for_each_pair(values, 0, pairs, [=](std::int64_t k, double first, double second) {
      write(2 * k, first);
      write(2 * k + 1, second);
    });
  }
  if (columns.num_first > pairs) write(math::first_column(columns, pairs), first_value(values, pairs));
  if (columns.zero_column >= 0) write(columns.zero_column, 0.0);
}

/// Elements that a loop over 16-bit types takes at a time by way of a buffer of floats.
constexpr std::int64_t kBlock = 256;

/// Cuts the columns into dense runs of at most kBlock: fills `floats` with to_float(value) of each and calls
/// flush(column, floats, count).
template <typename ToFloat, typename Flush>
inline void for_each_run(const math::Columns& columns, const RowValues& values, const ToFloat& to_float,
                         const Flush& flush) {
  const std::int64_t pairs = columns.num_second;
  for (std::int64_t begin = 0; begin < pairs; begin += kBlock / 2) {
    const std::int64_t end = begin + kBlock / 2 < pairs ? begin + kBlock / 2 : pairs;
    const std::int64_t count = end - begin;
    alignas(64) float floats[kBlock];
    float* const buffer = floats;
    if (columns.first_stride == 1) {
      for_each_pair(values, begin, end, [=](std::int64_t k, double first, double second) {
        buffer[k - begin] = to_float(first);
        buffer[kBlock / 2 + k - begin] = to_float(second);
      });
      flush(begin, buffer, count);
      flush(columns.second_offset + begin, buffer + kBlock / 2, count);
    } else {
      for_each_pair(values, begin, end, [=](std::int64_t k, double first, double second) {
        buffer[2 * (k - begin)] = to_float(first);
        buffer[2 * (k - begin) + 1] = to_float(second);
      });
      flush(2 * begin, buffer, 2 * count);
    }
  }
  if (columns.num_first > pairs) {
    const float last = to_float(first_value(values, pairs));
    flush(math::first_column(columns, pairs), &last, 1);
  }
  if (columns.zero_column >= 0) {
    const float zero = to_float(0.0);
    flush(columns.zero_column, &zero, 1);
  }
}

template <typename Level, typename scalar_t>
inline void encode_row_loop(const math::Columns& columns, const RowValues& values, void* out) {
  scalar_t* const row = static_cast<scalar_t*>(out);
  if constexpr (sizeof(scalar_t) == 2) {
    for_each_run(
        columns, values, [](double value) { return math::detail::to_float_odd(value); },
        [=](std::int64_t column, const float* floats, std::int64_t count) {
          Level::narrow(floats, count, row + column);
        });
  } else {
    for_each_column(columns, values,
                    [=](std::int64_t column, double value) { row[column] = math::round_to<scalar_t>(value); });
  }
}

/// Calls write_plus and write_minus(pair - begin, first, second) for pairs [begin, end).
template <typename WritePlus, typename WriteMinus>
inline void for_each_pair_of_two_rows(const RowValues& values, std::int64_t begin, std::int64_t end,
                                      const WritePlus& write_plus, const WriteMinus& write_minus) {
  const double* const a1 = values.first + begin;
  const double* const a2 = values.second + begin;
  const double* const s = values.step_sin + begin;
  const double* const c = values.step_cos + begin;
  const double sign = values.sign;
  const std::int64_t count = end - begin;
  POSENC_INDEPENDENT
  for (std::int64_t k = 0; k < count; ++k) {
    const double step = sign * s[k];
    const math::SinCos on = math::turn({a1[k], a2[k]}, {step, c[k]});
    const math::SinCos back = math::turn({a1[k], a2[k]}, {-step, c[k]});
    write_plus(k, on.sin, on.cos);
    write_minus(k, back.sin, back.cos);
  }
}

template <std::int64_t kStride, typename Level, typename scalar_t>
inline void two_rows_loop(const RowValues& values, std::int64_t begin, std::int64_t end, std::int64_t second_at,
                          scalar_t* plus, scalar_t* minus) {
  const std::int64_t at = kStride == 2 ? 1 : second_at;
  if constexpr (sizeof(scalar_t) == 2) {
    constexpr std::int64_t kPairsOfBlock = kBlock / 2;
    constexpr std::int64_t kSecond = kStride == 2 ? 1 : kPairsOfBlock;
    for (std::int64_t from = begin; from < end; from += kPairsOfBlock) {
      const std::int64_t to = from + kPairsOfBlock < end ? from + kPairsOfBlock : end;
      alignas(64) float plus_block[kBlock];
      alignas(64) float minus_block[kBlock];
      float* const p = plus_block;
      float* const m = minus_block;
      for_each_pair_of_two_rows(
          values, from, to,
          [=](std::int64_t k, double first, double second) {
            p[kStride * k] = math::detail::to_float_odd(first);
            p[kStride * k + kSecond] = math::detail::to_float_odd(second);
          },
          [=](std::int64_t k, double first, double second) {
            m[kStride * k] = math::detail::to_float_odd(first);
            m[kStride * k + kSecond] = math::detail::to_float_odd(second);
          });
      const std::int64_t column = kStride * (from - begin);
      const std::int64_t count = to - from;
      if (kStride == 2) {
        Level::narrow(p, 2 * count, plus + column);
        Level::narrow(m, 2 * count, minus + column);
      } else {
        Level::narrow(p, count, plus + column);
        Level::narrow(p + kSecond, count, plus + at + column);
        Level::narrow(m, count, minus + column);
        Level::narrow(m + kSecond, count, minus + at + column);
      }
    }
  } else {
    for_each_pair_of_two_rows(
        values, begin, end,
        [=](std::int64_t k, double first, double second) {
          plus[kStride * k] = math::round_to<scalar_t>(first);
          plus[kStride * k + at] = math::round_to<scalar_t>(second);
        },
        [=](std::int64_t k, double first, double second) {
          minus[kStride * k] = math::round_to<scalar_t>(first);
          minus[kStride * k + at] = math::round_to<scalar_t>(second);
        });
  }
}

template <typename Level, typename scalar_t>
inline void encode_two_rows_loop(const RowValues& values, std::int64_t begin, std::int64_t end, std::int64_t stride,
                                 std::int64_t second, void* plus, void* minus) {
  scalar_t* const p = static_cast<scalar_t*>(plus);
  scalar_t* const m = static_cast<scalar_t*>(minus);
  if (stride == 2) {
    two_rows_loop<2, Level>(values, begin, end, second, p, m);
  } else {
    two_rows_loop<1, Level>(values, begin, end, second, p, m);
  }
}

template <typename Level, typename scalar_t>
inline void add_encoding_loop(const compute_type_t<scalar_t>* encoding, const scalar_t* x, scalar_t* out,
                              std::int64_t count, compute_type_t<scalar_t> input_scale,
                              compute_type_t<scalar_t> alpha) {
  if constexpr (sizeof(scalar_t) == 2) {
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
      const std::int64_t size = begin + kBlock < count ? kBlock : count - begin;
      alignas(64) float sums[kBlock];
      Level::widen(x + begin, size, sums);
      const float* const e = encoding + begin;
      POSENC_INDEPENDENT
      for (std::int64_t i = 0; i < size; ++i) sums[i] = add_element<float>(sums[i], e[i], input_scale, alpha);
      Level::narrow(sums, size, out + begin);
    }
  } else {
    POSENC_INDEPENDENT
    for (std::int64_t i = 0; i < count; ++i) out[i] = add_element(x[i], encoding[i], input_scale, alpha);
  }
}

template <typename Level, typename scalar_t>
inline void add_row_loop(const math::Columns& columns, const RowValues& values, const void* x, void* out,
                         double input_scale, double alpha) {
  using compute_t = compute_type_t<scalar_t>;
  const scalar_t* const x_row = static_cast<const scalar_t*>(x);
  scalar_t* const row = static_cast<scalar_t*>(out);
  const compute_t scale = static_cast<compute_t>(input_scale);
  const compute_t factor = static_cast<compute_t>(alpha);
  if constexpr (sizeof(scalar_t) == 2) {
    for_each_run(
        columns, values, [](double value) { return static_cast<float>(value); },
        [=](std::int64_t column, const float* floats, std::int64_t count) {
          add_encoding_loop<Level, scalar_t>(floats, x_row + column, row + column, count, scale, factor);
        });
  } else {
    for_each_column(columns, values, [=](std::int64_t column, double value) {
      row[column] = add_element(x_row[column], math::round_to<compute_t>(value), scale, factor);
    });
  }
}

// Between 16-bit types and float. The processor's own conversions of float16 are the only ones that plain loops do not
// reach; they give to_float16's bits once a NaN is made the one NaN.

template <typename scalar_t>
inline void widen_loop(const scalar_t* in, std::int64_t count, float* out) {
  POSENC_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) out[i] = math::to_float(in[i]);
}

template <typename scalar_t>
inline void narrow_loop(const float* in, std::int64_t count, scalar_t* out) {
  POSENC_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) out[i] = math::store_as<scalar_t>(in[i]);
}

#if defined(__x86_64__)
#define POSENC_F16C __attribute__((target("avx2,fma,f16c")))

POSENC_F16C inline void widen_f16c(const math::Float16* in, std::int64_t count, float* out) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
  }
  widen_loop(in + i, count - i, out + i);
}

POSENC_F16C inline void narrow_f16c(const float* in, std::int64_t count, math::Float16* out) {
  const __m256 sign_bit = _mm256_set1_ps(-0.0f);
  const __m256 quiet_nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 value = _mm256_loadu_ps(in + i);
    const __m256 nan = _mm256_or_ps(_mm256_and_ps(value, sign_bit), quiet_nan);
    const __m256 clean = _mm256_blendv_ps(value, nan, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_cvtps_ph(clean, _MM_FROUND_TO_NEAREST_INT));
  }
  narrow_loop(in + i, count - i, out + i);
}
#endif

// The wrappers of one level, and the table of them. An attribute cannot stand in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define POSENC_LEVEL(Level, ATTRIBUTES, WIDEN_FLOAT16, NARROW_FLOAT16)                                              \
  struct Level {                                                                                                    \
    ATTRIBUTES static void widen(const math::Float16* in, std::int64_t count, float* out) {                         \
      WIDEN_FLOAT16(in, count, out);                                                                                \
    }                                                                                                               \
    ATTRIBUTES static void narrow(const float* in, std::int64_t count, math::Float16* out) {                        \
      NARROW_FLOAT16(in, count, out);                                                                               \
    }                                                                                                               \
    ATTRIBUTES static void widen(const math::BFloat16* in, std::int64_t count, float* out) {                        \
      widen_loop(in, count, out);                                                                                   \
    }                                                                                                               \
    ATTRIBUTES static void narrow(const float* in, std::int64_t count, math::BFloat16* out) {                       \
      narrow_loop(in, count, out);                                                                                  \
    }                                                                                                               \
    ATTRIBUTES static void phases(std::uint64_t magnitude, const std::uint64_t* hi, const std::uint64_t* lo,        \
                                  std::int64_t count, std::uint64_t* phases) {                                      \
      phases_loop(magnitude, hi, lo, count, phases);                                                                \
    }                                                                                                               \
    ATTRIBUTES static void sincos(const std::uint64_t* phases, std::int64_t count, double* sin, double* cos) {      \
      sincos_loop(phases, count, sin, cos);                                                                         \
    }                                                                                                               \
    template <typename scalar_t>                                                                                    \
    ATTRIBUTES static void encode_row(const math::Columns& columns, const RowValues& values, void* out) {           \
      encode_row_loop<Level, scalar_t>(columns, values, out);                                                       \
    }                                                                                                               \
    template <typename scalar_t>                                                                                    \
    ATTRIBUTES static void encode_two_rows(const RowValues& values, std::int64_t begin, std::int64_t end,           \
                                           std::int64_t stride, std::int64_t second, void* plus, void* minus) {     \
      encode_two_rows_loop<Level, scalar_t>(values, begin, end, stride, second, plus, minus);                       \
    }                                                                                                               \
    template <typename scalar_t>                                                                                    \
    ATTRIBUTES static void add_row(const math::Columns& columns, const RowValues& values, const void* x, void* out, \
                                   double input_scale, double alpha) {                                              \
      add_row_loop<Level, scalar_t>(columns, values, x, out, input_scale, alpha);                                   \
    }                                                                                                               \
    template <typename scalar_t>                                                                                    \
    ATTRIBUTES static void add_encoding(const void* encoding, const void* x, void* out, std::int64_t count,         \
                                        double input_scale, double alpha) {                                         \
      using compute_t = compute_type_t<scalar_t>;                                                                   \
      add_encoding_loop<Level, scalar_t>(static_cast<const compute_t*>(encoding), static_cast<const scalar_t*>(x),  \
                                         static_cast<scalar_t*>(out), count, static_cast<compute_t>(input_scale),   \
                                         static_cast<compute_t>(alpha));                                            \
    }                                                                                                               \
  }

// In the order of DType.
#define POSENC_BY_DTYPE(function) \
  { function<double>, function<float>, function<math::BFloat16>, function<math::Float16> }

// NOLINTEND(bugprone-macro-parentheses)

template <typename Level>
constexpr Lanes make_lanes() {
  return {Level::phases,
          Level::sincos,
          POSENC_BY_DTYPE(Level::template encode_row),
          POSENC_BY_DTYPE(Level::template encode_two_rows),
          POSENC_BY_DTYPE(Level::template add_row),
          POSENC_BY_DTYPE(Level::template add_encoding)};
}

POSENC_LEVEL(Baseline, __attribute__((flatten)), widen_loop, narrow_loop);
#if defined(__x86_64__)
POSENC_LEVEL(Avx2, __attribute__((target("avx2,fma,f16c"), flatten)), widen_f16c, narrow_f16c);
POSENC_LEVEL(Avx512, __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl" POSENC_WIDE), flatten)),
             widen_f16c, narrow_f16c);
#endif

}  // namespace

const Lanes& lanes(SimdLevel level) {
#if defined(__x86_64__)
  static constexpr Lanes kAvx512 = make_lanes<Avx512>();
  static constexpr Lanes kAvx2 = make_lanes<Avx2>();
  if (level == SimdLevel::kAvx512) return kAvx512;
  if (level == SimdLevel::kAvx2) return kAvx2;
#endif
  static constexpr Lanes kBaseline = make_lanes<Baseline>();
  return kBaseline;
}

}  // namespace posenc::kernels::cpu
