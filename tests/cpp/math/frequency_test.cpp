#include <posenc/math/frequency.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iomanip>
#include <limits>
#include <random>
#include <sstream>
#include <string>

#include "golden.h"

namespace posenc::math {

bool operator==(const Float128& a, const Float128& b) {
  return a.hi == b.hi && a.lo == b.lo && a.exponent == b.exponent;
}

std::ostream& operator<<(std::ostream& stream, const Float128& x) {
  const auto flags = stream.flags();
  stream << "0x" << std::hex << std::setfill('0') << std::setw(16) << x.hi << ":" << std::setw(16) << x.lo;
  stream.flags(flags);
  return stream << " * 2^(" << x.exponent << " - 128)";
}

namespace {

using testing::GoldenConvention;
using testing::GoldenRow;
using testing::parse_double;
using testing::parse_hex;
using testing::parse_int;
using testing::parse_unsigned;
using testing::read_golden;
using testing::WorstError;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kTopBit = std::uint64_t{1} << 63;
constexpr Float128 kOne = {kTopBit, 0, 1};

/// |a - b| / b in units of 2^-128.
double relative_distance(const Float128& a, const Float128& b) {
  if (a == b) return 0;
  if (a.hi == 0 || b.hi == 0 || std::abs(a.exponent - b.exponent) > 1) return kInfinity;
  const bool a_larger = a.exponent != b.exponent ? a.exponent > b.exponent : a.hi != b.hi ? a.hi > b.hi : a.lo > b.lo;
  const Float128& large = a_larger ? a : b;
  const Float128& small = a_larger ? b : a;
  // Mantissas as 129-bit integers in the unit of the smaller one; only differences below 2^64 are of interest.
  const int shift = large.exponent - small.exponent;
  const std::uint64_t low = (large.lo << shift) - small.lo;
  const std::uint64_t borrow = (large.lo << shift) < small.lo ? 1 : 0;
  const std::uint64_t high = (large.hi << shift | (shift != 0 ? large.lo >> 63 : 0)) - small.hi - borrow;
  if (high != 0) return kInfinity;
  return static_cast<double>(low) / std::ldexp(static_cast<double>(b.hi), -64) / (&b == &large ? 1 << shift : 1);
}

/// (3n - 2) * 2^-128 for n digits, see frequency(), and the rounding of the reference.
double frequency_bound(std::int32_t num_digits) { return 3 * num_digits - 2 + 1; }

TEST(Frequency, is_within_its_bound_for_every_convention) {
  WorstError worst;
  WorstError worst_of_three_digits;
  for (const GoldenRow& row : read_golden("math_frequency.csv", 300)) {
    const FrequencyTables tables = GoldenConvention(row).tables();
    const Float128 g = frequency(tables, parse_int(row.fields.at(5)));
    const Float128 reference = {parse_hex(row.fields.at(6)), parse_hex(row.fields.at(7)),
                                static_cast<std::int32_t>(parse_int(row.fields.at(8)))};
    const double error = relative_distance(g, reference);
    worst.update(error, row.line);
    EXPECT_LE(error, frequency_bound(tables.num_digits)) << "in units of 2^-128\ncase " << row.line << "\ngot  " << g;
    if (parse_int(row.fields.at(5)) < kRadix) {
      EXPECT_EQ(g, reference) << "an entry of the first table is the nearest number\ncase " << row.line;
    }
    if (tables.num_digits <= 3) {
      worst_of_three_digits.update(error, row.line);
      EXPECT_LE(error, 8) << "2^-125\ncase " << row.line << "\ngot  " << g;
    }
  }
  worst.report("frequency, in units of 2^-128");
  worst_of_three_digits.report("frequency, up to 3 digits");
}

TEST(Frequency, in_radians_is_the_nearest_double) {  // its bound is 0.51 ulp: no case is that near to a tie
  for (const GoldenRow& row : read_golden("math_frequency.csv", 300)) {
    const Float128 g = frequency(GoldenConvention(row).tables(), parse_int(row.fields.at(5)));
    EXPECT_EQ(to_radians(g), parse_double(row.fields.at(9))) << "case " << row.line;
  }
}

TEST(Frequency, in_radians_rounds_at_the_ends_of_the_range) {
  const Float128 turn = {0xA2F9836E4E441529u, 0xFC2757D1F534DDC1u, -2};  // 1 / (2 pi)
  const auto radians = [&](std::int32_t power) { return to_radians({turn.hi, turn.lo, turn.exponent + power}); };
  for (int power = -1073; power <= 1023; ++power) {
    // The product may be short of a power of two by 2^-127 of it.
    EXPECT_EQ(radians(power), std::ldexp(1.0, power)) << "2^" << power;
  }
  EXPECT_EQ(radians(1024), kInfinity);
  EXPECT_EQ(radians(-1076), 0.0);
  EXPECT_EQ(radians(7 << 24), kInfinity);
  EXPECT_EQ(radians(-(7 << 24)), 0.0);
  EXPECT_EQ(to_radians({0, 0, 0}), 0.0);
}

TEST(Frequency, of_base_one_is_the_same_for_all_pairs) {
  const FrequencyTables tables = make_frequency_tables(1.0, 4096, 0.5, 3.0, 2048);
  for (const std::int64_t k : {1, 31, 32, 33, 1023, 1024, 2047}) {
    EXPECT_EQ(frequency(tables, k), frequency(tables, 0)) << "pair " << k;
  }
}

TEST(Frequency, ratio_that_is_a_power_of_two_is_exact) {
  const FrequencyTables tables = make_frequency_tables(4.0, 64, -16.0, 1.0, 2048);  // rho = 4^(-2 / 96)
  const Float128 first = frequency(tables, 0);
  for (const std::int64_t k : {24, 48, 96, 960, 1536}) {  // rho^24 = 1/2
    const Float128 g = frequency(tables, k);
    const Float128 expected = {first.hi, first.lo, first.exponent - static_cast<std::int32_t>(k / 24)};
    EXPECT_LE(relative_distance(g, expected), frequency_bound(tables.num_digits) + 1) << "pair " << k << " is " << g;
  }
  const FrequencyTables halves = make_frequency_tables(4.0, 4, 0.0, 1.0, 1024);  // rho = 1/2
  for (std::int64_t k = 0; k < 1024; ++k) {
    const Float128 expected = {first.hi, first.lo, first.exponent - static_cast<std::int32_t>(k)};
    EXPECT_EQ(frequency(halves, k), expected) << "pair " << k;
  }
}

TEST(Frequency, of_scale_zero_is_zero) {
  for (const double scale : {0.0, -0.0}) {
    const FrequencyTables tables = make_frequency_tables(10000.0, 4096, 0.0, scale, 2048);
    for (const std::int64_t k : {0, 1, 32, 2047}) EXPECT_EQ(frequency(tables, k), (Float128{0, 0, 0})) << "pair " << k;
  }
}

TEST(Frequency, ignores_the_sign_of_the_scale) {
  const FrequencyTables plus = make_frequency_tables(10000.0, 512, 0.0, 0.7, 256);
  const FrequencyTables minus = make_frequency_tables(10000.0, 512, 0.0, -0.7, 256);
  for (std::int64_t k = 0; k < 256; ++k) EXPECT_EQ(frequency(plus, k), frequency(minus, k)) << "pair " << k;
}

TEST(Frequency, of_a_single_pair_needs_no_denominator) {
  for (const std::int64_t num_freqs : {0, 1}) {
    const FrequencyTables tables = make_frequency_tables(10000.0, 2, 1.0, 1.0, num_freqs);
    EXPECT_EQ(tables.num_digits, 1);
    EXPECT_EQ(to_radians(frequency(tables, 0)), 1.0);
  }
}

TEST(Frequency, does_not_depend_on_how_many_pairs_there_are) {
  const FrequencyTables few = make_frequency_tables(10000.0, 512, 0.0, 1.0, 2);
  const FrequencyTables many = make_frequency_tables(10000.0, 512, 0.0, 1.0, std::int64_t{1} << 35);
  EXPECT_EQ(few.num_digits, 1);
  EXPECT_EQ(many.num_digits, kMaxDigits);
  for (const std::int64_t k : {0, 1}) EXPECT_EQ(frequency(few, k), frequency(many, k)) << "pair " << k;
}

TEST(Frequency, has_one_digit_more_for_each_factor_of_32_pairs) {
  for (int digits = 1; digits <= kMaxDigits; ++digits) {
    const std::int64_t most = std::int64_t{1} << (kRadixBits * digits);
    const std::int64_t fewest = most / kRadix + 1;
    EXPECT_EQ(make_frequency_tables(3.0, 2 * most, 0.0, 1.0, most).num_digits, digits);
    EXPECT_EQ(make_frequency_tables(3.0, 2 * most, 0.0, 1.0, fewest).num_digits, digits);
  }
}

TEST(Frequency, saturates_where_no_double_could_follow) {
  constexpr double kTiny = 5e-324;
  struct Case {
    double base;
    std::int64_t width;
    double freq_shift;
    int growth;  // sign of log(rho); 0 where rho is 1 to all digits
  };
  const Case cases[] = {{1e300, 4, 1.9999999999999998, -1},
                        {1e300, 4, 2.0000000000000004, 1},
                        {kTiny, 0, kTiny, -1},
                        {kTiny, 0, -kTiny, 1},
                        {1e-300, 3, 1.5, 0},  // a denominator of zero, which callers refuse
                        {1e300, INT64_MAX, 1e308, 0},
                        {1e300, INT64_MAX, -1e308, 0}};
  for (const Case& c : cases) {
    const FrequencyTables tables = make_frequency_tables(c.base, c.width, c.freq_shift, 1e308, std::int64_t{1} << 35);
    const Float128 first = frequency(tables, 0);
    for (const std::int64_t k : {std::int64_t{1}, std::int64_t{32}, (std::int64_t{1} << 35) - 1}) {
      const Float128 g = frequency(tables, k);
      const std::string name = "base " + std::to_string(c.base) + ", width " + std::to_string(c.width) +
                               ", freq_shift " + std::to_string(c.freq_shift) + ", pair " + std::to_string(k);
      EXPECT_EQ(g.hi >> 63, 1u) << name << ": " << g;
      EXPECT_LE(std::abs(g.exponent), kMaxDigits * (kMaxExponent + 1)) << name;
      if (c.growth == 0) {
        EXPECT_LE(relative_distance(g, first), frequency_bound(kMaxDigits)) << name << ": " << g;
      } else {
        EXPECT_GE(c.growth * g.exponent, kMaxExponent - 2000) << name << ": " << g;  // 2^2000 is more than the scale
      }
    }
  }
}

TEST(Multiply, is_the_truncated_product) {
  std::mt19937_64 random(1);
  const std::uint64_t special[] = {0, 1, kTopBit, ~std::uint64_t{0}, 0xFFFFFFFFu};
  for (int i = 0; i < 200000; ++i) {
    const auto word = [&] { return random() % 8 == 0 ? special[random() % 5] : static_cast<std::uint64_t>(random()); };
    const Float128 a = {word() | kTopBit, word(), static_cast<std::int32_t>(random() % 100)};
    const Float128 b = {word() | kTopBit, word(), -static_cast<std::int32_t>(random() % 100)};
    // Schoolbook multiplication of 32-bit digits.
    const auto digit = [](const Float128& x, int j) { return (j < 2 ? x.lo : x.hi) >> (32 * (j % 2)) & 0xFFFFFFFFu; };
    std::uint64_t digits[8] = {};
    for (int j = 0; j < 4; ++j) {
      std::uint64_t carry = 0;
      for (int l = 0; l < 4; ++l) {
        const std::uint64_t sum = digit(a, j) * digit(b, l) + digits[j + l] + carry;
        digits[j + l] = sum & 0xFFFFFFFFu;
        carry = sum >> 32;
      }
      digits[j + 4] = carry;
    }
    Float128 expected = {digits[7] << 32 | digits[6], digits[5] << 32 | digits[4], a.exponent + b.exponent};
    if ((expected.hi & kTopBit) == 0) {
      expected = {expected.hi << 1 | expected.lo >> 63, expected.lo << 1 | digits[3] >> 31, expected.exponent - 1};
    }
    ASSERT_EQ(multiply(a, b), expected) << a << " times " << b;
  }
}

TEST(Multiply, by_zero_is_zero) {
  EXPECT_EQ(multiply({0, 0, 0}, kOne), (Float128{0, 0, 0}));
  EXPECT_EQ(multiply(kOne, {0, 0, 0}), (Float128{0, 0, 0}));
}

TEST(Phase, is_exact_for_integers_and_reals) {
  for (const GoldenRow& row : read_golden("math_phase.csv", 400)) {
    const Float128 g = {parse_hex(row.fields.at(2)), parse_hex(row.fields.at(3)),
                        static_cast<std::int32_t>(parse_int(row.fields.at(4)))};
    const TurnFraction f = turn_fraction(g);
    EXPECT_EQ(f.hi, parse_hex(row.fields.at(5))) << "case " << row.line;
    EXPECT_EQ(f.lo, parse_hex(row.fields.at(6))) << "case " << row.line;
    const std::uint64_t phase = row.fields.at(0) == "integer" ? phase_of_integer(parse_unsigned(row.fields.at(1)), f)
                                                              : phase_of_real(parse_double(row.fields.at(1)), g);
    EXPECT_EQ(phase, parse_hex(row.fields.at(7))) << "case " << row.line;
  }
}

TEST(Phase, of_zero_is_zero) {
  const Float128 zero = {0, 0, 0};
  for (const Float128& g : {zero, kOne, Float128{~std::uint64_t{0}, ~std::uint64_t{0}, 0}}) {
    EXPECT_EQ(phase_of_integer(0, turn_fraction(g)), 0u);
    EXPECT_EQ(phase_of_real(0.0, g), 0u);
  }
  EXPECT_EQ(phase_of_integer(12345, turn_fraction(zero)), 0u);
  EXPECT_EQ(phase_of_real(0.5, zero), 0u);
}

TEST(Phase, of_a_whole_number_of_turns_is_zero) {
  EXPECT_EQ(phase_of_integer(123, turn_fraction(kOne)), 0u);
  EXPECT_EQ(phase_of_real(0.25, {kTopBit, 0, 3}), 0u);
  EXPECT_EQ(phase_of_real(0.25, kOne), kTopBit >> 1);
}

}  // namespace
}  // namespace posenc::math
