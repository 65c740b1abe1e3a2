#pragma once

#include <cstdint>

#include <posenc/macros.h>

namespace posenc::math {

/// Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Philox 4x32 passes BigCrush
/// from 7 rounds on; 10 is what the paper recommends, and what cuRAND and torch take.
inline constexpr int kPhiloxRounds = 10;

// No arrays: device code cannot read a host's.
inline constexpr std::uint32_t kPhiloxMultiplierA = 0xD2511F53u;
inline constexpr std::uint32_t kPhiloxMultiplierB = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxKeyStepLow = 0x9E3779B9u;
inline constexpr std::uint32_t kPhiloxKeyStepHigh = 0xBB67AE85u;

/// Four 32-bit words: a counter, and the random words it stands for.
struct PhiloxBlock {
  std::uint32_t words[4];
};

/// Philox 4x32: the bijection of 128-bit blocks that the 64-bit `key` (its low half first) selects.
template <int kRounds = kPhiloxRounds>
POSENC_HOST_DEVICE inline PhiloxBlock philox(PhiloxBlock counter, std::uint64_t key) {
  std::uint32_t key_low = static_cast<std::uint32_t>(key);
  std::uint32_t key_high = static_cast<std::uint32_t>(key >> 32);
  PhiloxBlock block = counter;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t a = static_cast<std::uint64_t>(kPhiloxMultiplierA) * block.words[0];
    const std::uint64_t b = static_cast<std::uint64_t>(kPhiloxMultiplierB) * block.words[2];
    block = {{static_cast<std::uint32_t>(b >> 32) ^ block.words[1] ^ key_low, static_cast<std::uint32_t>(b),
              static_cast<std::uint32_t>(a >> 32) ^ block.words[3] ^ key_high, static_cast<std::uint32_t>(a)}};
    key_low += kPhiloxKeyStepLow;
    key_high += kPhiloxKeyStepHigh;
  }
  return block;
}

}  // namespace posenc::math
