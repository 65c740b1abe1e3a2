#include <posenc/math/float16.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "nearest_16bit.h"

namespace posenc::math {
namespace {

using testing::Format16;
using testing::kBFloat16Format;
using testing::kFloat16Format;

float float_from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// What the tests need to know of a type under test.
template <typename scalar_t>
struct Traits;

template <>
struct Traits<Float16> {
  static constexpr Format16 kFormat = kFloat16Format;
  static Float16 convert(float value) { return to_float16(value); }
  static std::uint16_t nan(bool negative) { return negative ? 0xFE00 : 0x7E00; }
};

template <>
struct Traits<BFloat16> {
  static constexpr Format16 kFormat = kBFloat16Format;
  static BFloat16 convert(float value) { return to_bfloat16(value); }
  static std::uint16_t nan(bool) { return 0x7FC0; }
};

template <typename scalar_t>
void expect_nearest(float value) {
  const Traits<scalar_t> type;
  ASSERT_EQ(type.convert(value).bits, type.kFormat.nearest(value)) << std::hexfloat << "converting " << value;
}

template <typename scalar_t>
class Float16Test : public ::testing::Test {};

using Types16 = ::testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(Float16Test, Types16);

TYPED_TEST(Float16Test, every_pattern_widens_to_its_value) {
  const Traits<TypeParam> type;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = to_float(TypeParam{static_cast<std::uint16_t>(bits)});
    const std::uint16_t magnitude = bits & 0x7FFF;
    ASSERT_EQ(std::signbit(value), bits >= 0x8000) << std::hex << "pattern 0x" << bits;
    if (magnitude > type.kFormat.infinity()) {
      ASSERT_TRUE(std::isnan(value)) << std::hex << "pattern 0x" << bits;
    } else if (magnitude == type.kFormat.infinity()) {
      ASSERT_TRUE(std::isinf(value)) << std::hex << "pattern 0x" << bits;
    } else {
      ASSERT_EQ(std::fabs(static_cast<double>(value)), type.kFormat.value(magnitude))
          << std::hex << "pattern 0x" << bits;
    }
  }
}

TYPED_TEST(Float16Test, every_pattern_survives_a_round_trip) {
  const Traits<TypeParam> type;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bool is_nan = (bits & 0x7FFF) > type.kFormat.infinity();
    const std::uint16_t expected = is_nan ? type.nan(bits >= 0x8000) : static_cast<std::uint16_t>(bits);
    const float value = to_float(TypeParam{static_cast<std::uint16_t>(bits)});
    ASSERT_EQ(type.convert(value).bits, expected) << std::hex << "pattern 0x" << bits;
  }
}

TYPED_TEST(Float16Test, ties_go_to_even_and_neighbours_of_ties_to_the_nearer_value) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Traits<TypeParam> type;
  // The last pair is the largest finite value and infinity: half an ulp above the former is where overflow begins.
  for (std::uint16_t pattern = 0; pattern < type.kFormat.infinity(); ++pattern) {
    const float tie = static_cast<float>(type.kFormat.tie_above(pattern));
    for (const float value : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, kInfinity)}) {
      expect_nearest<TypeParam>(value);
      expect_nearest<TypeParam>(-value);
    }
  }
}

TYPED_TEST(Float16Test, any_float_goes_to_the_nearest_value) {
  for (std::uint64_t bits = 0; bits < 0x100000000u; bits += 4093) {  // a prime step walks through all exponents
    const float value = float_from_bits(static_cast<std::uint32_t>(bits));
    if (!std::isnan(value)) expect_nearest<TypeParam>(value);
  }
}

TYPED_TEST(Float16Test, overflow_gives_infinity_and_underflow_a_signed_zero) {
  const Traits<TypeParam> type;
  for (const float value : {std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(type.convert(value).bits, type.kFormat.infinity());
    EXPECT_EQ(type.convert(-value).bits, type.kFormat.infinity() | 0x8000);
  }
  EXPECT_EQ(type.convert(std::numeric_limits<float>::denorm_min()).bits, 0x0000);
  EXPECT_EQ(type.convert(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
}

TYPED_TEST(Float16Test, every_nan_becomes_the_quiet_nan) {
  const Traits<TypeParam> type;
  for (const std::uint32_t payload : {0x1u, 0x1FFFu, 0x2000u, 0xFFFFu, 0x10000u, 0x400000u, 0x7FFFFFu}) {
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      const std::uint32_t bits = sign | 0x7F800000u | payload;
      EXPECT_EQ(type.convert(float_from_bits(bits)).bits, type.nan(sign != 0)) << std::hex << "float bits 0x" << bits;
    }
  }
}

}  // namespace
}  // namespace posenc::math
