#include <posenc/math/rounding.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "nearest_16bit.h"

namespace posenc::math {
namespace {

using testing::Format16;
using testing::kBFloat16Format;
using testing::kFloat16Format;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <typename scalar_t>
const Format16& format();
template <>
const Format16& format<Float16>() {
  return kFloat16Format;
}
template <>
const Format16& format<BFloat16>() {
  return kBFloat16Format;
}

template <typename scalar_t>
void expect_nearest(double magnitude) {
  for (const double value : {magnitude, -magnitude}) {
    ASSERT_EQ(round_to<scalar_t>(value).bits, format<scalar_t>().nearest(value))
        << std::hexfloat << "rounding " << value;
  }
}

template <typename scalar_t>
class RoundingTest : public ::testing::Test {};

using Types16 = ::testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(RoundingTest, Types16);

TYPED_TEST(RoundingTest, doubles_around_every_tie_round_once) {
  // Distances that the nearest float cannot show: rounding by way of it would see a tie and go to even.
  for (std::uint16_t pattern = 0; format<TypeParam>().value(pattern) <= 1.0; ++pattern) {
    const double tie = format<TypeParam>().tie_above(pattern);
    if (tie < std::numeric_limits<float>::min()) continue;  // documented: below, a subnormal float comes between
    expect_nearest<TypeParam>(tie);
    expect_nearest<TypeParam>(std::nextafter(tie, 0.0));
    expect_nearest<TypeParam>(std::nextafter(tie, 2.0));
    for (const double distance : {0x1p-29, 1e-9, 0x1p-31, 1e-12}) {
      expect_nearest<TypeParam>(tie * (1 - distance));
      expect_nearest<TypeParam>(tie * (1 + distance));
    }
  }
}

TYPED_TEST(RoundingTest, random_doubles_round_to_the_nearest_value) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000000; ++i) {
    const double magnitude = std::ldexp(static_cast<double>(random() >> 11), -53);
    expect_nearest<TypeParam>(std::ldexp(magnitude, -static_cast<int>(random() % 60)));
  }
}

TYPED_TEST(RoundingTest, zeros_keep_their_sign_and_one_is_exact) {
  for (const double value : {0.0, 1.0, 1.0 + 0x1p-52}) expect_nearest<TypeParam>(value);
}

TYPED_TEST(RoundingTest, nan_passes) {
  const double low_payload = bit_cast<double>(std::uint64_t{0x7FF0000000000001u});  // in bits that are cut off
  for (const double nan : {kNaN, -kNaN, low_payload}) EXPECT_TRUE(std::isnan(to_float(round_to<TypeParam>(nan))));
}

TEST(RoundToDouble, clamps_to_one_and_changes_nothing_else) {
  EXPECT_EQ(round_to<double>(1.0 + 0x1p-52), 1.0);
  EXPECT_EQ(round_to<double>(-1.0 - 0x1p-52), -1.0);
  for (const double value : {1.0, 1.0 - 0x1p-53, 0.3, 0x1p-62, 0.0}) {
    EXPECT_EQ(round_to<double>(value), value);
    EXPECT_EQ(round_to<double>(-value), -value);
  }
  EXPECT_TRUE(std::signbit(round_to<double>(-0.0)));
  EXPECT_TRUE(std::isnan(round_to<double>(kNaN)));
}

TEST(RoundToFloat, is_one_conversion) {
  const float one_ulp_up = std::nextafter(0.5f, 1.0f);
  const double tie = (0.5 + static_cast<double>(one_ulp_up)) / 2;
  EXPECT_EQ(round_to<float>(tie), 0.5f);
  EXPECT_EQ(round_to<float>(std::nextafter(tie, 1.0)), one_ulp_up);
  EXPECT_EQ(round_to<float>(1.0 + 0x1p-52), 1.0f);
  EXPECT_TRUE(std::isnan(round_to<float>(kNaN)));
}

TEST(StoreAs, rounds_a_float_once_and_does_not_clamp) {
  EXPECT_EQ(store_as<float>(3.25f), 3.25f);
  EXPECT_EQ(store_as<double>(3.25), 3.25);
  EXPECT_EQ(store_as<Float16>(3.25f).bits, 0x4280);
  EXPECT_EQ(store_as<BFloat16>(3.25f).bits, 0x4050);
  EXPECT_EQ(store_as<Float16>(1.0f + 0x1p-11f).bits, 0x3C00);    // tie to even
  EXPECT_EQ(store_as<BFloat16>(1.0f + 0x1.8p-7f).bits, 0x3F82);  // tie to even
}

}  // namespace
}  // namespace posenc::math
