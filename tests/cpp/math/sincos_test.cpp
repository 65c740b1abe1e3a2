#include <posenc/math/sincos.h>

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <random>

#include <posenc/math/accuracy.h>
#include <posenc/math/bits.h>

#include "golden.h"

namespace posenc::math {
namespace {

using testing::GoldenRow;
using testing::parse_double;
using testing::parse_hex;
using testing::read_golden;
using testing::TwoDoubles;
using testing::WorstError;

TEST(Sincos, is_within_its_bound_at_table_angles_their_boundaries_and_at_random) {
  WorstError worst;
  for (const GoldenRow& row : read_golden("math_sincos.csv", 800)) {
    const SinCos value = sincos_of_phase(parse_hex(row.fields.at(0)));
    const TwoDoubles sin = {parse_double(row.fields.at(1)), parse_double(row.fields.at(2))};
    const TwoDoubles cos = {parse_double(row.fields.at(3)), parse_double(row.fields.at(4))};
    worst.update(sin.distance(value.sin), "sine, " + row.line);
    worst.update(cos.distance(value.cos), "cosine, " + row.line);
    EXPECT_LE(sin.distance(value.sin), kSincosBound) << "sine " << value.sin << "\ncase " << row.line;
    EXPECT_LE(cos.distance(value.cos), kSincosBound) << "cosine " << value.cos << "\ncase " << row.line;
  }
  worst.report("sincos");
}

TEST(Sincos, is_within_its_bound_for_a_million_phases) {
  if (LDBL_MANT_DIG < 64) GTEST_SKIP() << "long double is too short to be a reference";
  constexpr long double kTwoPi = 6.283185307179586476925286766559L;
  constexpr double kReferenceError = 5e-19;  // of the angle, below one turn, and of sinl
  WorstError worst;
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000000; ++i) {
    const std::uint64_t phase = random();
    const SinCos value = sincos_of_phase(phase);
    const long double angle = std::ldexp(static_cast<long double>(static_cast<std::int64_t>(phase)), -64) * kTwoPi;
    const double sin_error = static_cast<double>(std::fabs(value.sin - std::sin(angle)));
    const double cos_error = static_cast<double>(std::fabs(value.cos - std::cos(angle)));
    worst.update(std::fmax(sin_error, cos_error), "phase " + std::to_string(phase));
    ASSERT_LE(sin_error, kSincosBound + kReferenceError) << "sine of phase " << phase;
    ASSERT_LE(cos_error, kSincosBound + kReferenceError) << "cosine of phase " << phase;
  }
  worst.report("sincos, random phases");
}

TEST(Sincos, is_exact_at_quarter_turns_with_positive_zeros) {
  const SinCos expected[] = {{0, 1}, {1, 0}, {0, -1}, {-1, 0}};
  for (std::uint64_t quarter = 0; quarter < 4; ++quarter) {
    const SinCos value = sincos_of_phase(quarter << 62);
    EXPECT_EQ(value.sin, expected[quarter].sin) << "quarter " << quarter;
    EXPECT_EQ(value.cos, expected[quarter].cos) << "quarter " << quarter;
    EXPECT_FALSE(value.sin == 0 && std::signbit(value.sin)) << "quarter " << quarter;
    EXPECT_FALSE(value.cos == 0 && std::signbit(value.cos)) << "quarter " << quarter;
  }
}

TEST(Sincos, repeats_itself_every_quarter_turn) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100000; ++i) {
    const std::uint64_t phase = random();
    const SinCos here = sincos_of_phase(phase);
    const SinCos next = sincos_of_phase(phase + (std::uint64_t{1} << 62));
    ASSERT_EQ(next.sin, here.cos) << "phase " << phase;
    ASSERT_EQ(next.cos, -here.sin) << "phase " << phase;
  }
}

TEST(SincosTable, rows_are_exact_swaps_and_negations_of_the_first_quarter) {
  for (int i = 0; i < kSincosRows - 16; ++i) {
    for (int column = 0; column < 2; ++column) {
      EXPECT_EQ(kSincosTable[i + 16][column], kSincosTable[i][column + 2]) << "row " << i;
      EXPECT_EQ(kSincosTable[i + 16][column + 2], -kSincosTable[i][column]) << "row " << i;
    }
  }
}

TEST(SincosTable, is_frozen) {
  // FNV-1a over all constants: most of their last bits change results too rarely for any other test to see. A new value
  // is a change of results: it needs an entry in the changelog.
  std::uint64_t digest = 0xCBF29CE484222325u;
  const auto add = [&](double value) { digest = (digest ^ bit_cast<std::uint64_t>(value)) * 0x100000001B3u; };
  for (const double coefficient : kSinePolynomial) add(coefficient);
  for (const double coefficient : kCosinePolynomial) add(coefficient);
  for (const auto& row : kSincosTable) {
    for (const double entry : row) add(entry);
  }
  EXPECT_EQ(digest, 0xA3A96AFB31BEE398u);
}

TEST(SincosTable, has_no_negative_zero) {
  for (const auto& row : kSincosTable) {
    for (const double entry : row) EXPECT_FALSE(entry == 0 && std::signbit(entry));
  }
}

TEST(SincosTable, low_parts_are_below_half_an_ulp_of_high_parts) {
  for (const auto& row : kSincosTable) {
    EXPECT_EQ(row[0] + row[1], row[0]);
    EXPECT_EQ(row[2] + row[3], row[2]);
  }
}

}  // namespace
}  // namespace posenc::math
