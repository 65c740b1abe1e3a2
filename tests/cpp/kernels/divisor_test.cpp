#include <posenc/kernels/cuda/divisor.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace posenc::kernels::cuda {
namespace {

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();

/// Small numbers, neighbours of powers of two, and any.
std::vector<std::int64_t> some_divisors() {
  std::vector<std::int64_t> divisors = {kInt64Max, kInt64Max - 1};
  for (std::int64_t d = 1; d < 300; ++d) divisors.push_back(d);
  for (int bit = 9; bit <= 62; ++bit) {
    const std::int64_t power = std::int64_t{1} << bit;
    divisors.insert(divisors.end(), {power - 1, power});
    if (bit < 62) divisors.push_back(power + 1);
  }
  std::mt19937_64 random(5);
  for (int i = 0; i < 2000; ++i) divisors.push_back(1 + static_cast<std::int64_t>(random() >> (2 + i % 62)));
  return divisors;
}

TEST(Divisor, quotients_are_those_of_integer_division) {
  std::mt19937_64 random(6);
  for (const std::int64_t d : some_divisors()) {
    const Divisor divisor(d);
    std::vector<std::int64_t> numerators = {0, 1, d - 1, d, kInt64Max, kInt64Max - 1};
    // Both sides of a step of the quotient, the largest steps included: an error shows there first.
    const std::int64_t largest = kInt64Max / d;
    for (const std::int64_t quotient : {largest, largest - 1, largest / 2, std::int64_t{1} + largest / 3}) {
      if (quotient > 0 && quotient <= largest) numerators.insert(numerators.end(), {quotient * d, quotient * d - 1});
    }
    for (int i = 0; i < 20; ++i) numerators.push_back(static_cast<std::int64_t>(random() >> (1 + i * 3)));
    for (const std::int64_t n : numerators) ASSERT_EQ(divisor.divide(n), n / d) << n << " / " << d;
  }
}

TEST(Divisor, is_one_unless_told_otherwise) {
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, kInt64Max}) EXPECT_EQ(Divisor().divide(n), n);
}

}  // namespace
}  // namespace posenc::kernels::cuda
