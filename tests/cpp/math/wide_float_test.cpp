#include <posenc/math/wide_float.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <ostream>
#include <random>

namespace posenc::math {

bool operator==(const WideFloat& a, const WideFloat& b) {
  for (int i = 0; i < 4; ++i) {
    if (a.limbs[i] != b.limbs[i]) return false;
  }
  return a.exponent == b.exponent && a.negative == b.negative;
}

std::ostream& operator<<(std::ostream& stream, const WideFloat& x) {
  stream << (x.negative ? "-0x" : "0x") << std::hex;
  for (int i = 3; i >= 0; --i) stream << x.limbs[i] << (i > 0 ? ":" : "");
  return stream << std::dec << " * 2^(" << x.exponent << " - 256)";
}

namespace {

constexpr std::uint64_t kAllOnes = ~std::uint64_t{0};
constexpr std::uint64_t kTopBit = std::uint64_t{1} << 63;

WideFloat integer(std::uint64_t value) { return wide_from(value); }
WideFloat power_of_two(std::int64_t power) { return scale_by_power(integer(1), power); }

/// |a - b| < 2^bits units in the last place of b.
::testing::AssertionResult near(const WideFloat& a, const WideFloat& b, int bits) {
  const WideFloat difference = a - b;
  if (difference.is_zero() || difference.exponent <= b.exponent - 256 + bits) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << a << " and " << b;
}

WideFloat random_wide(std::mt19937_64& random) {
  WideFloat x = {{random(), random(), random(), random() | kTopBit}, 0, (random() & 1) != 0};
  x.exponent = static_cast<std::int64_t>(random() % 300) - 150;
  return x;
}

TEST(WideFloat, holds_integers_and_doubles_exactly) {
  EXPECT_EQ(integer(1), (WideFloat{{0, 0, 0, kTopBit}, 1, false}));
  EXPECT_EQ(integer(kAllOnes), (WideFloat{{0, 0, 0, kAllOnes}, 64, false}));
  EXPECT_EQ(wide_from(-0.75), (WideFloat{{0, 0, 0, kTopBit | kTopBit >> 1}, 0, true}));
  EXPECT_EQ(wide_from(5e-324), power_of_two(-1074));
  EXPECT_EQ(wide_from(0x1.8p1023), scale_by_power(integer(3), 1022));
  EXPECT_EQ(wide_from(0.0), WideFloat{});
  EXPECT_EQ(wide_from(-0.0), WideFloat{});
}

TEST(WideFloat, computes_exactly_with_integers) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t a = random() >> (32 + random() % 31);
    const std::uint64_t b = random() >> (32 + random() % 31);
    ASSERT_EQ(integer(a) + integer(b), integer(a + b)) << a << ", " << b;
    ASSERT_EQ(integer(a) * integer(b), integer(a * b)) << a << ", " << b;
    ASSERT_EQ(integer(a) - integer(b), a < b ? -integer(b - a) : integer(a - b)) << a << ", " << b;
    if (b == 0) continue;
    ASSERT_EQ(integer(a * b) / integer(b), integer(a)) << a << ", " << b;
    ASSERT_EQ(integer(a * b) / static_cast<std::uint32_t>(b), integer(a)) << a << ", " << b;
  }
}

TEST(WideFloat, carries_and_borrows_through_all_limbs) {
  const WideFloat all_ones = {{kAllOnes, kAllOnes, kAllOnes, kAllOnes}, 256, false};  // 2^256 - 1
  EXPECT_EQ(all_ones + integer(1), power_of_two(256));
  EXPECT_EQ(power_of_two(255) - integer(1) + power_of_two(255), all_ones);
  EXPECT_EQ(all_ones * all_ones, (WideFloat{{kAllOnes - 1, kAllOnes, kAllOnes, kAllOnes}, 512, false}));
  EXPECT_EQ(all_ones / all_ones, integer(1));
  EXPECT_EQ(all_ones - power_of_two(255), (WideFloat{{kAllOnes - 1, kAllOnes, kAllOnes, kAllOnes}, 255, false}));
}

TEST(WideFloat, product_keeps_its_last_bit_when_it_starts_one_bit_lower) {
  const WideFloat x = {{kAllOnes, kAllOnes, 0, kTopBit}, 0, false};  // 2^255 + 2^128 - 1, over 2^256
  EXPECT_EQ(x * x, (WideFloat{{kAllOnes, kAllOnes, 1, kTopBit}, -1, false}));
}

TEST(WideFloat, sum_of_distant_numbers_is_the_larger_one) {
  EXPECT_EQ(integer(1) + power_of_two(-300), integer(1));
  EXPECT_EQ(power_of_two(-300) - integer(1), -integer(1));
  EXPECT_EQ(integer(1) + power_of_two(-255), (WideFloat{{1, 0, 0, kTopBit}, 1, false}));
  EXPECT_EQ(integer(3) + WideFloat{}, integer(3));
  EXPECT_EQ(WideFloat{} - integer(3), -integer(3));
}

TEST(WideFloat, operations_undo_each_other) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 20000; ++i) {
    const WideFloat a = random_wide(random);
    const WideFloat b = random_wide(random);
    const std::uint32_t small = static_cast<std::uint32_t>(random() >> (32 + random() % 31)) | 1;
    ASSERT_TRUE(near(a / b * b, a, 3)) << "divided by " << b;
    ASSERT_TRUE(near(a * b / b, a, 3)) << "times " << b;
    ASSERT_TRUE(near(a / small * integer(small), a, 3)) << "divided by " << small;
    ASSERT_TRUE(near(a / small, a / integer(small), 2)) << "divided by " << small;
    ASSERT_EQ(a - a, WideFloat{});
    ASSERT_TRUE(a.exponent <= b.exponent || near(a + b - b, a, 3)) << "plus " << b;
    ASSERT_EQ((a * b).negative, a.negative != b.negative);
    ASSERT_EQ((a / b).negative, a.negative != b.negative);
  }
}

TEST(WideFloat, exponents_saturate) {
  WideFloat large = power_of_two(1000);
  WideFloat small = power_of_two(-1000);
  for (int i = 0; i < 80; ++i) {
    large = large * large;
    small = small * small;
  }
  EXPECT_EQ(large.exponent, WideFloat::kLimit);
  EXPECT_EQ(small.exponent, -WideFloat::kLimit);
  EXPECT_FALSE(large.is_zero());
  EXPECT_FALSE(small.is_zero());
}

}  // namespace
}  // namespace posenc::math
