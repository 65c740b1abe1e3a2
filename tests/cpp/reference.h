#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <posenc/math/convention.h>

/// What an encoding must be, for the tests of kernels, operators and modules: the definition in long double, golden
/// values of tests/golden/ops_values.csv for positions where long double would not do, number formats, and the bound.
/// Takes nothing from the library but the plain struct Convention, and includes no torch.

namespace posenc::testing {

/// The documented bound on the value before its one rounding.
inline constexpr long double kBound = 4e-16L;

// ---- Number formats ----

/// A binary floating-point format.
struct Format {
  const char* name;
  int digits;        ///< significant bits, the hidden one included
  int min_exponent;  ///< 2^min_exponent is the smallest normal number
  int max_exponent;  ///< 2^max_exponent is the largest power of two
};

inline constexpr Format kFloat64 = {"float64", 53, -1022, 1023};
inline constexpr Format kFloat32 = {"float32", 24, -126, 127};
inline constexpr Format kBFloat16 = {"bfloat16", 8, -126, 127};
inline constexpr Format kFloat16 = {"float16", 11, -14, 15};

/// The nearest number of a format, ties to even, overflow to infinity.
inline long double round_to(const Format& format, long double value) {
  if (value == 0.0L || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), format.min_exponent);
  const int last_bit = exponent - format.digits + 1;
  const long double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -last_bit)), last_bit);
  if (std::fabs(rounded) < std::ldexp(1.0L, format.max_exponent + 1)) return rounded;
  return std::copysign(std::numeric_limits<long double>::infinity(), value);
}

/// Half the distance between neighbours at `value`.
inline long double half_ulp(const Format& format, long double value) {
  const int exponent = value == 0.0L ? format.min_exponent : std::max(std::ilogb(value), format.min_exponent);
  return std::ldexp(1.0L, exponent - format.digits);
}

/// The value of a 16-bit pattern: sign, exponent, fraction.
inline double decode_16bit(const Format& format, std::uint16_t bits) {
  const int fraction_bits = format.digits - 1;
  const int exponent = (bits & 0x7FFF) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == format.max_exponent * 2 + 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, format.min_exponent - fraction_bits);
  return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - format.max_exponent - fraction_bits);
}

/// The 16-bit pattern nearest to a value; NaN gives a quiet one.
inline std::uint16_t encode_16bit(const Format& format, long double value) {
  const int fraction_bits = format.digits - 1;
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = (format.max_exponent * 2 + 1) << fraction_bits;
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | 1 << (fraction_bits - 1));
  const long double magnitude = std::fabs(round_to(format, value));
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | infinity);
  if (magnitude == 0.0L) return static_cast<std::uint16_t>(sign);
  const int exponent = std::max(std::ilogb(magnitude), format.min_exponent);
  const int significand = static_cast<int>(std::ldexp(magnitude, fraction_bits - exponent));
  const int biased = exponent + format.max_exponent;  // of a subnormal it is 1, and the missing hidden bit makes it 0
  return static_cast<std::uint16_t>(sign | ((biased << fraction_bits) + significand - (1 << fraction_bits)));
}

// ---- The definition ----

/// What a column holds.
struct Column {
  enum class Kind { kSine, kCosine, kZero };
  Kind kind;
  std::int64_t pair;
};

/// Every column of an encoding, and the width that its exponent is made with.
struct Columns {
  std::vector<Column> list;
  std::int64_t width;
};

inline Columns columns_of(std::int64_t d_model, Order order, Odd odd) {
  if (d_model % 2 == 1 && odd == Odd::kZero) {
    Columns even = columns_of(d_model - 1, order, odd);
    even.list.push_back({Column::Kind::kZero, 0});
    return even;
  }
  if (d_model % 2 == 1 && odd == Odd::kCut) {
    Columns even = columns_of(d_model + 1, order, odd);
    even.list.pop_back();
    return even;
  }
  const bool cos_first = order == Order::kInterleavedCosFirst || order == Order::kSplitCosFirst;
  const Column::Kind first = cos_first ? Column::Kind::kCosine : Column::Kind::kSine;
  const Column::Kind second = cos_first ? Column::Kind::kSine : Column::Kind::kCosine;
  Columns columns{{}, d_model};
  if (order == Order::kSplit || order == Order::kSplitCosFirst) {
    for (std::int64_t k = 0; 2 * k < d_model; ++k) columns.list.push_back({first, k});
    for (std::int64_t k = 0; 2 * k + 1 < d_model; ++k) columns.list.push_back({second, k});
  } else {
    for (std::int64_t i = 0; i < d_model; ++i) columns.list.push_back({i % 2 == 0 ? first : second, i / 2});
  }
  return columns;
}

/// One column of an encoding at a position near zero, to 5e-17: far less than the bound leaves to the library.
///
/// Error: two roundings of the exponent grow by ln(base^exponent), the power, the products and the sine take a unit of
/// the last place each, all of them times the angle. Throws std::logic_error where that is more than 5e-17.
inline long double reference(const Convention& convention, const Columns& columns, std::size_t column,
                             long double position) {
  static_assert(std::numeric_limits<long double>::digits >= 64, "the reference needs an extended long double");
  const Column& at = columns.list.at(column);
  if (at.kind == Column::Kind::kZero) return 0.0L;
  long double angle = position * static_cast<long double>(convention.position_scale);
  long double log_frequency = 0.0L;
  if (at.pair > 0) {
    const long double exponent =
        -2.0L * static_cast<long double>(at.pair) /
        (static_cast<long double>(columns.width) - 2.0L * static_cast<long double>(convention.freq_shift));
    log_frequency = exponent * std::log(static_cast<long double>(convention.base));
    angle *= std::pow(static_cast<long double>(convention.base), exponent);
  }
  const long double error =
      (std::fabs(angle) * (std::fabs(log_frequency) + 4.0L) + 1.0L) * std::numeric_limits<long double>::epsilon();
  if (!(error < 5e-17L)) throw std::logic_error("the long double reference does not reach this position");
  return at.kind == Column::Kind::kSine ? std::sin(angle) : std::cos(angle);
}

// ---- Judgement ----

/// Compares elements with their exact values by the documented bound and remembers the worst.
///
/// float64: within 4e-16 and [-1, 1]. Smaller formats: the one rounding of some number within 4e-16 of the exact value,
/// which is to lie between the roundings of the two ends of that interval.
class Judge {
 public:
  Judge(std::string case_name, const Format& format) : case_(std::move(case_name)), format_(format) {}

  void check(double result, long double exact, const std::string& position, std::int64_t column) {
    const long double error = std::fabs(static_cast<long double>(result) - exact);
    const bool is_wide = format_.digits == kFloat64.digits;
    const long double bound = kBound + (is_wide ? 0.0L : half_ulp(format_, result));
    const bool good = is_wide ? error <= bound && std::fabs(result) <= 1.0
                              : round_to(format_, exact - kBound) <= static_cast<long double>(result) &&
                                    static_cast<long double>(result) <= round_to(format_, exact + kBound);
    ++num_elements_;
    if (!good) ++num_bad_;
    const long double ratio = std::isnan(error) ? std::numeric_limits<long double>::infinity() : error / bound;
    if (worst_is_bad_ ? good || ratio <= worst_ratio_ : good && ratio <= worst_ratio_) return;
    worst_is_bad_ = !good;
    worst_ratio_ = ratio;
    std::ostringstream text;
    text << std::hexfloat << "position " << position << ", column " << column << ": got " << result << ", exact "
         << static_cast<double>(exact) << std::defaultfloat << ", error " << static_cast<double>(error) << ", bound "
         << static_cast<double>(bound);
    worst_ = text.str();
  }

  ::testing::AssertionResult verdict() const {
    if (num_elements_ == 0) return ::testing::AssertionFailure() << case_ << ": no element was compared";
    if (num_bad_ == 0) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << case_ << ", " << format_.name << ": " << num_bad_ << " of " << num_elements_
                                         << " elements are wrong, the worst at " << worst_;
  }

 private:
  std::string case_;
  Format format_;
  std::int64_t num_elements_ = 0;
  std::int64_t num_bad_ = 0;
  bool worst_is_bad_ = false;
  long double worst_ratio_ = -1.0L;
  std::string worst_;
};

// ---- Conventions and golden values ----

inline constexpr Order kOrders[] = {Order::kInterleaved, Order::kInterleavedCosFirst, Order::kSplit,
                                    Order::kSplitCosFirst};
inline constexpr const char* kOrderNames[] = {"interleaved", "interleaved_cos_first", "split", "split_cos_first"};
inline constexpr Odd kOdds[] = {Odd::kSin, Odd::kZero, Odd::kCut, Odd::kError};
inline constexpr const char* kOddNames[] = {"sin", "zero", "cut", "error"};

inline std::string describe(const Convention& convention, std::int64_t d_model) {
  std::ostringstream text;
  text << "d_model " << d_model << ", base " << convention.base << ", freq_shift " << convention.freq_shift
       << ", position_scale " << convention.position_scale << ", " << kOrderNames[static_cast<int>(convention.order)]
       << ", odd " << kOddNames[static_cast<int>(convention.odd)];
  return text.str();
}

/// One row of tests/golden/ops_values.csv.
struct GoldenValue {
  Convention convention;
  std::int64_t d_model;
  std::string position;  ///< as written in the file
  bool is_integer;
  std::int64_t integer_position;  ///< where is_integer
  double real_position;           ///< elsewhere
  std::int64_t column;
  long double value;
};

/// All rows. The folder POSENC_GOLDEN_DIR is a string.
inline std::vector<GoldenValue> golden_values() {
  const std::string path = std::string(POSENC_GOLDEN_DIR) + "/ops_values.csv";
  const auto index_of = [&](const auto& names, const std::string& name) {
    for (int i = 0; i < 4; ++i) {
      if (name == names[i]) return i;
    }
    throw std::runtime_error(path + ": unknown name " + name);
  };
  std::ifstream file(path);
  std::vector<GoldenValue> values;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#' || line[0] == 'b') continue;
    std::vector<std::string> fields;
    std::istringstream stream(line);
    for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
    const auto number = [&](std::size_t i) { return std::strtod(fields.at(i).c_str(), nullptr); };
    const auto integer = [&](std::size_t i) { return std::strtoll(fields.at(i).c_str(), nullptr, 10); };
    GoldenValue row{};
    row.convention = {number(0), number(1), number(2), kOrders[index_of(kOrderNames, fields.at(3))],
                      kOdds[index_of(kOddNames, fields.at(4))]};
    row.d_model = integer(5);
    row.position = fields.at(6);
    row.is_integer = row.position.find('x') == std::string::npos;
    if (row.is_integer) row.integer_position = integer(6);
    if (!row.is_integer) row.real_position = number(6);
    row.column = integer(7);
    row.value = static_cast<long double>(number(8)) + static_cast<long double>(number(9));
    values.push_back(row);
  }
  if (values.size() < 500) throw std::runtime_error(path + " is missing or too short");
  return values;
}

}  // namespace posenc::testing
