#include <posenc/math/element.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <posenc/math/accuracy.h>
#include <posenc/math/rounding.h>

#include "golden.h"
#include "nearest_16bit.h"

namespace posenc::math {
namespace {

using testing::Format16;
using testing::GoldenConvention;
using testing::GoldenRow;
using testing::kBFloat16Format;
using testing::kFloat16Format;
using testing::parse_double;
using testing::parse_int;
using testing::read_golden;
using testing::TwoDoubles;
using testing::WorstError;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kTwo63 = 9223372036854775808.0;

/// A row of math_element.csv and the value under test.
struct GoldenElement {
  std::string name;
  PositionKind kind;
  SinCos value;
  TwoDoubles sin;
  TwoDoubles cos;
};

std::vector<GoldenElement> golden_elements() {
  std::vector<GoldenElement> elements;
  for (const GoldenRow& row : read_golden("math_element.csv", 1200)) {
    const GoldenConvention convention(row);
    const Float128 g = frequency(convention.tables(), parse_int(row.fields.at(5)));
    const std::string& text = row.fields.at(6);
    const bool is_double = text.find('x') != std::string::npos;
    const Position p = is_double ? position_from(parse_double(text)) : position_from(parse_int(text));
    elements.push_back({row.line,
                        p.kind,
                        encode_pair(p, g, convention.position_scale < 0),
                        {parse_double(row.fields.at(7)), parse_double(row.fields.at(8))},
                        {parse_double(row.fields.at(9)), parse_double(row.fields.at(10))}});
  }
  return elements;
}

std::uint64_t bits(double value) { return bit_cast<std::uint64_t>(value); }

/// Equal to the last bit, the sign of zero included.
::testing::AssertionResult same(const SinCos& a, const SinCos& b) {
  if (bits(a.sin) == bits(b.sin) && bits(a.cos) == bits(b.cos)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << std::hexfloat << "(" << a.sin << ", " << a.cos << ") and (" << b.sin << ", "
                                       << b.cos << ")";
}

SinCos mirrored(const SinCos& value) { return {-value.sin, value.cos}; }

/// Frequencies of an ordinary convention, of a tiny and of a large scale.
std::vector<Float128> some_frequencies() {
  std::vector<Float128> result;
  for (const double scale : {1.0, 1e-25, 12345.678}) {
    const FrequencyTables tables = make_frequency_tables(10000.0, 512, 0.0, scale, 256);
    for (const std::int64_t k : {0, 1, 31, 100, 255}) result.push_back(frequency(tables, k));
  }
  return result;
}

/// Integers from all of int64: small ones, powers of two and their neighbours, random ones. Not the smallest one.
std::vector<std::int64_t> some_integers() {
  std::vector<std::int64_t> result;
  for (std::int64_t p = 1; p <= 100; ++p) result.push_back(p);
  for (int n = 7; n < 63; ++n) {
    for (const std::int64_t d : {-17, -16, -1, 0, 1, 15, 16}) result.push_back((std::int64_t{1} << n) + d);
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) result.push_back(static_cast<std::int64_t>(random() >> (1 + random() % 60)) | 1);
  result.push_back(INT64_MAX);
  return result;
}

const std::vector<double> kSomeReals = {5e-324,    1e-300, 1e-17,      0.1,
                                        0.5,       1.5,    1e6 + 0.25, 4503599627370495.5,
                                        1.2345e19, 1e25,   1e300,      std::numeric_limits<double>::max()};

TEST(Element, is_within_the_bound_for_every_convention_and_position) {
  WorstError worst_integer;
  WorstError worst_real;
  for (const GoldenElement& e : golden_elements()) {
    const bool is_integer = e.kind == PositionKind::kInteger;
    const double bound = is_integer ? kFloat64Bound : kSincosBound + kPhaseBound;
    WorstError& worst = is_integer ? worst_integer : worst_real;
    const SinCos value = {round_to<double>(e.value.sin), round_to<double>(e.value.cos)};
    worst.update(e.sin.distance(value.sin), "sine, " + e.name);
    worst.update(e.cos.distance(value.cos), "cosine, " + e.name);
    EXPECT_LE(e.sin.distance(value.sin), bound) << "sine " << value.sin << "\ncase " << e.name;
    EXPECT_LE(e.cos.distance(value.cos), bound) << "cosine " << value.cos << "\ncase " << e.name;
    EXPECT_LE(std::fabs(value.sin), 1.0) << "case " << e.name;
    EXPECT_LE(std::fabs(value.cos), 1.0) << "case " << e.name;
  }
  worst_integer.report("integer positions");
  worst_real.report("other positions");
}

TEST(Element, bounds_leave_room_below_the_contract) {
  EXPECT_LT(kFloat64Bound, kContractBound);
  EXPECT_LT(kSincosBound + kPhaseBound, kFloat64Bound);
}

TEST(Element, float32_result_is_one_rounding_of_a_value_within_the_contract) {
  for (const GoldenElement& e : golden_elements()) {
    for (const auto& [value, exact] : {std::pair{e.value.sin, e.sin}, std::pair{e.value.cos, e.cos}}) {
      const float result = round_to<float>(value);
      const double ulp = std::nextafter(std::fabs(result), 2.0f) - std::fabs(result);
      EXPECT_LE(exact.distance(result), ulp / 2 + kContractBound) << "case " << e.name;
    }
  }
}

template <typename scalar_t>
void expect_16bit_results_correctly_rounded(const Format16& format) {
  for (const GoldenElement& e : golden_elements()) {
    for (const auto& [value, exact] : {std::pair{e.value.sin, e.sin}, std::pair{e.value.cos, e.cos}}) {
      const scalar_t lowest = {format.nearest(exact.hi - kContractBound)};
      const scalar_t highest = {format.nearest(exact.hi + kContractBound)};
      const scalar_t result = round_to<scalar_t>(value);
      EXPECT_LE(to_float(lowest), to_float(result)) << "case " << e.name;
      EXPECT_GE(to_float(highest), to_float(result)) << "case " << e.name;
      // No reference is so near to a tie that both sides are allowed, but for results as small as the bound itself.
      EXPECT_TRUE(lowest.bits == highest.bits || std::fabs(exact.hi) < 1e-6) << "case " << e.name;
    }
  }
}

TEST(Element, bfloat16_result_is_correctly_rounded_next_to_ties_too) {
  expect_16bit_results_correctly_rounded<BFloat16>(kBFloat16Format);
}

TEST(Element, float16_result_is_correctly_rounded_next_to_ties_too) {
  expect_16bit_results_correctly_rounded<Float16>(kFloat16Format);
}

TEST(Element, sine_is_odd_and_cosine_even_in_position_and_scale) {
  for (const Float128& g : some_frequencies()) {
    for (const std::int64_t p : some_integers()) {
      const SinCos value = encode_pair(position_from(p), g, false);
      EXPECT_TRUE(same(encode_pair(position_from(-p), g, false), mirrored(value))) << "position " << p;
      EXPECT_TRUE(same(encode_pair(position_from(p), g, true), mirrored(value))) << "position " << p;
      EXPECT_TRUE(same(encode_pair(position_from(-p), g, true), value)) << "position " << p;
    }
    for (const double p : kSomeReals) {
      const SinCos value = encode_pair(position_from(p), g, false);
      EXPECT_TRUE(same(encode_pair(position_from(-p), g, false), mirrored(value))) << "position " << p;
      EXPECT_TRUE(same(encode_pair(position_from(p), g, true), mirrored(value))) << "position " << p;
      EXPECT_TRUE(same(encode_pair(position_from(-p), g, true), value)) << "position " << p;
    }
  }
}

TEST(Element, double_that_equals_an_int64_gives_the_same_bits) {
  std::vector<std::int64_t> positions = some_integers();
  positions.push_back(0);
  positions.push_back(INT64_MIN);
  for (const Float128& g : some_frequencies()) {
    for (const std::int64_t p : positions) {
      const double real = static_cast<double>(p);
      if (real >= kTwo63 || static_cast<std::int64_t>(real) != p) continue;
      EXPECT_TRUE(same(encode_pair(position_from(real), g, false), encode_pair(position_from(p), g, false)))
          << "position " << p;
    }
  }
}

TEST(Element, sine_at_zero_is_positive_zero_whatever_the_signs) {
  const SinCos expected = {0.0, 1.0};
  for (const Float128& g : some_frequencies()) {
    for (const bool negative_scale : {false, true}) {
      for (const Position& p : {position_from(std::int64_t{0}), position_from(0.0), position_from(-0.0)}) {
        EXPECT_TRUE(same(encode_pair(p, g, negative_scale), expected)) << "negative scale: " << negative_scale;
      }
    }
  }
}

TEST(Element, not_finite_position_gives_nan) {
  for (const double p : {kInfinity, -kInfinity, kNaN, -kNaN}) {
    const SinCos value = encode_pair(position_from(p), some_frequencies().front(), false);
    EXPECT_TRUE(std::isnan(value.sin)) << "position " << p;
    EXPECT_TRUE(std::isnan(value.cos)) << "position " << p;
  }
}

TEST(Element, is_finite_and_within_one_beyond_the_angles_of_the_contract) {
  for (const double scale : {1e10, 1e150, 1e308}) {
    const FrequencyTables tables = make_frequency_tables(1e-300, 64, 0.0, scale, 32);
    for (const std::int64_t k : {0, 1, 16, 31}) {
      for (const double p : {0.1, 1e-5, 1.0, 12345.0, 9e18, 1e300, std::numeric_limits<double>::max()}) {
        const SinCos value = encode_pair(position_from(p), frequency(tables, k), false);
        EXPECT_LE(std::fabs(round_to<double>(value.sin)), 1.0) << "scale " << scale << ", pair " << k << ", p " << p;
        EXPECT_LE(std::fabs(round_to<double>(value.cos)), 1.0) << "scale " << scale << ", pair " << k << ", p " << p;
      }
    }
  }
}

TEST(Element, float64_never_exceeds_one_next_to_quarter_turns) {
  __extension__ typedef unsigned __int128 uint128;
  std::mt19937_64 random(3);
  int above_one = 0;
  for (int i = 0; i < 200000; ++i) {
    // f such that p * f is a whole number of turns and a quarter, nearly.
    const std::uint64_t p = 33 + random() % 1000000;
    const uint128 turns = (static_cast<uint128>(random() % p) << 64) + (random() << 62);
    const SinCos value = encode_integer(p, {static_cast<std::uint64_t>(turns / p), random()});
    above_one += std::fabs(value.sin) > 1.0 || std::fabs(value.cos) > 1.0;
    ASSERT_LE(std::fabs(value.sin), 1.0 + kFloat64Bound) << "position " << p;
    ASSERT_LE(std::fabs(value.cos), 1.0 + kFloat64Bound) << "position " << p;
    ASSERT_LE(std::fabs(round_to<double>(value.sin)), 1.0) << "position " << p;
    ASSERT_LE(std::fabs(round_to<double>(value.cos)), 1.0) << "position " << p;
  }
  EXPECT_GT(above_one, 1000) << "the search no longer finds what the clamp is for";
}

TEST(Element, is_anchor_rotated_by_remainder) {
  const TurnFraction f = turn_fraction(some_frequencies().at(1));
  for (const std::uint64_t anchor : {std::uint64_t{1}, std::uint64_t{77}, (std::uint64_t{1} << 58) - 1}) {
    const SinCos a = sincos_of_phase(phase_of_integer(32 * anchor, f));
    for (int r = -16; r <= 15; ++r) {
      const std::uint64_t p = 32 * anchor + static_cast<std::uint64_t>(static_cast<std::int64_t>(r));
      const SinCos s = sincos_of_phase(phase_of_integer(static_cast<std::uint64_t>(std::abs(r)), f));
      const double sign = r < 0 ? -1.0 : 1.0;
      const SinCos expected = {std::fma(a.sin, s.cos, sign * (a.cos * s.sin)),
                               std::fma(a.cos, s.cos, -sign * (a.sin * s.sin))};
      EXPECT_TRUE(same(encode_integer(p, f), expected)) << "position " << p;
    }
  }
}

TEST(Element, bits_are_those_of_every_other_compiler_and_release) {
  // FNV-1a over the bits of many elements. Contraction, another order of operations or a changed constant stay within
  // all bounds and are seen only here. A new value is a change of results: it needs an entry in the changelog.
  std::uint64_t digest = 0xCBF29CE484222325u;
  const auto add = [&](double value) { digest = (digest ^ bits(value)) * 0x100000001B3u; };
  for (const Float128& g : some_frequencies()) {
    for (const std::int64_t p : some_integers()) {
      const SinCos value = encode_pair(position_from(p), g, false);
      add(value.sin);
      add(value.cos);
    }
    for (const double p : kSomeReals) {
      const SinCos value = encode_pair(position_from(p), g, false);
      add(value.sin);
      add(value.cos);
    }
  }
  EXPECT_EQ(digest, 0x3EDF6C1A70C77CA4u);
}

TEST(SplitPosition, remainder_lies_between_minus_16_and_15) {
  std::vector<std::uint64_t> magnitudes = {0, std::uint64_t{1} << 63, (std::uint64_t{1} << 63) - 1};
  for (const std::int64_t p : some_integers()) magnitudes.push_back(static_cast<std::uint64_t>(p));
  for (const std::uint64_t p : magnitudes) {
    const SplitPosition split = split_position(p);
    EXPECT_EQ(32 * split.anchor + static_cast<std::uint64_t>(static_cast<std::int64_t>(split.remainder)), p);
    EXPECT_GE(split.remainder, -16) << "magnitude " << p;
    EXPECT_LE(split.remainder, 15) << "magnitude " << p;
  }
}

TEST(Position, of_an_integer_has_sign_and_magnitude) {
  const auto expect = [](const Position& p, std::uint64_t magnitude, bool negative) {
    EXPECT_EQ(p.kind, PositionKind::kInteger);
    EXPECT_EQ(p.magnitude, magnitude);
    EXPECT_EQ(p.negative, negative);
    EXPECT_EQ(p.real_magnitude, 0.0);
  };
  expect(position_from(std::int64_t{0}), 0, false);
  expect(position_from(std::int64_t{7}), 7, false);
  expect(position_from(std::int64_t{-7}), 7, true);
  expect(position_from(INT64_MAX), (std::uint64_t{1} << 63) - 1, false);
  expect(position_from(INT64_MIN), std::uint64_t{1} << 63, true);
  expect(position_from(0.0), 0, false);
  expect(position_from(-0.0), 0, false);
  expect(position_from(-7.0), 7, true);
  expect(position_from(0x1p62), std::uint64_t{1} << 62, false);
  expect(position_from(-kTwo63), std::uint64_t{1} << 63, true);
  expect(position_from(kTwo63), std::uint64_t{1} << 63, false);
}

TEST(Position, of_any_other_double_is_real_or_not_finite) {
  for (const double p : {0.5, 1e-300, 5e-324, 4503599627370495.5, std::nextafter(kTwo63, kInfinity), 1e300}) {
    for (const double signed_p : {p, -p}) {
      const Position position = position_from(signed_p);
      EXPECT_EQ(position.kind, PositionKind::kReal) << signed_p;
      EXPECT_EQ(position.real_magnitude, p);
      EXPECT_EQ(position.negative, signed_p < 0) << signed_p;
    }
  }
  for (const double p : {kInfinity, -kInfinity, kNaN}) EXPECT_EQ(position_from(p).kind, PositionKind::kNotFinite) << p;
}

}  // namespace
}  // namespace posenc::math
