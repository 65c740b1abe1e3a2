#include <posenc/math/philox.h>

#include <gtest/gtest.h>

#include <cstdint>

namespace posenc::math {
namespace {

struct KnownAnswer {
  PhiloxBlock counter;
  std::uint64_t key;
  PhiloxBlock result;
};

template <int kRounds>
void expect_known(const KnownAnswer& known) {
  const PhiloxBlock result = philox<kRounds>(known.counter, known.key);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(result.words[i], known.result.words[i]) << std::hex << "rounds " << kRounds << ", key " << known.key
                                                      << ", counter " << known.counter.words[0] << ", word " << i;
  }
}

// The file kat_vectors of Random123 1.14: counter, key (low word first), result.

constexpr PhiloxBlock kZeros{{0, 0, 0, 0}};
constexpr PhiloxBlock kOnes{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}};
constexpr PhiloxBlock kPi{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}};
constexpr std::uint64_t kPiKey = 0x299f31d0a4093822;

TEST(Philox, seven_rounds_give_the_published_vectors) {
  expect_known<7>({kZeros, 0, {{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}}});
  expect_known<7>({kOnes, ~std::uint64_t{0}, {{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}}});
  expect_known<7>({kPi, kPiKey, {{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}}});
}

TEST(Philox, ten_rounds_give_the_published_vectors) {
  expect_known<10>({kZeros, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}});
  expect_known<10>({kOnes, ~std::uint64_t{0}, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}});
  expect_known<10>({kPi, kPiKey, {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}});
}

TEST(Philox, dropout_takes_ten_rounds) {
  const PhiloxBlock result = philox(kPi, kPiKey);
  EXPECT_EQ(result.words[0], 0xd16cfe09u);
}

}  // namespace
}  // namespace posenc::math
