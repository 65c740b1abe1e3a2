#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include <posenc/kernels/element.h>
#include <posenc/math/bits.h>
#include <posenc/math/philox.h>

/// What dropout does with one element, on the CPU and on CUDA alike.

namespace posenc::kernels {

// Note [The mask of an element]
// Element i of a tensor, counted row-major in its logical shape, owns 16 bits: number i % 8, from the lowest, of the
// Philox block with key `seed` and counter (offset, i / 8). It is dropped where these, as a signed number, are below
// `limit`. Where they equal it, once in 65,536 elements, 16 further bits decide, which the counter (offset, i / 8 +
// 2^63) gives: so p is met to 2^-32 at the cost of 16 bits an element. (Without them it would be met to 2^-16, which is
// 0.8 % of the rate at p = 0.001; words of 32 bits take twice the time, which is most of the time of dropout.)
// Nothing else enters a mask: not the strides, the threads, the instruction set or the device. So the backward computes
// it again instead of keeping it.

/// Elements of one block of random words.
inline constexpr std::uint64_t kBlockElements = 8;

/// The two numbers that a mask is made from, and what rng_state holds.
struct RandomState {
  std::uint64_t seed;
  std::uint64_t offset;
};

/// The random words of elements 8 * block to 8 * block + 7.
POSENC_HOST_DEVICE inline math::PhiloxBlock random_block(const RandomState& state, std::uint64_t block) {
  return math::philox({{static_cast<std::uint32_t>(state.offset), static_cast<std::uint32_t>(state.offset >> 32),
                        static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32)}},
                      state.seed);
}

/// The 16 bits of element `at`, 0 to 7, of a block. Selections, because an index would put the words into memory.
POSENC_HOST_DEVICE inline std::uint16_t bits_of(const math::PhiloxBlock& block, std::uint64_t at) {
  const std::uint32_t low = (at & 2) == 0 ? block.words[0] : block.words[1];
  const std::uint32_t high = (at & 2) == 0 ? block.words[2] : block.words[3];
  const std::uint32_t word = (at & 4) == 0 ? low : high;
  return static_cast<std::uint16_t>((at & 1) == 0 ? word : word >> 16);
}

/// How many of 2^32 words are those of dropped elements, 0 < p < 1: the upper and the lower half of that number.
inline DropoutLimit dropout_limit(double p) {
  const double rounded = std::nearbyint(p * 0x1p32);
  const auto dropped = static_cast<std::uint32_t>(rounded < 0x1p32 ? rounded : 0x1p32 - 1);
  return {static_cast<std::int16_t>(static_cast<int>(dropped >> 16) - 32768), static_cast<std::uint16_t>(dropped)};
}

/// Whether an element is kept, as long as there is no tie.
POSENC_HOST_DEVICE inline bool keeps(std::uint16_t bits, std::int16_t limit) {
  return static_cast<std::int16_t>(bits) >= limit;
}

/// Whether an element is at the limit, where further bits decide.
POSENC_HOST_DEVICE inline bool is_tie(std::uint16_t bits, const DropoutLimit& limit) {
  return static_cast<std::int16_t>(bits) == limit.first && limit.further != 0;
}

/// What they decide.
POSENC_HOST_DEVICE inline bool drops_tie(const RandomState& state, std::uint64_t element, const DropoutLimit& limit) {
  const math::PhiloxBlock further = random_block(state, element / kBlockElements | std::uint64_t{1} << 63);
  return bits_of(further, element % kBlockElements) < limit.further;
}

/// An element of the result: `value` times `factor`, rounded once more, or +0, also where `value` is not finite. By
/// bits, because compilers turn a selection into a branch, which does not vectorise.
template <typename scalar_t>
POSENC_HOST_DEVICE inline scalar_t drop_element(scalar_t value, bool keep, compute_type_t<scalar_t> factor) {
  using compute_t = compute_type_t<scalar_t>;
  using bits_t = std::conditional_t<sizeof(compute_t) == 8, std::uint64_t, std::uint32_t>;
  const bits_t scaled = math::bit_cast<bits_t>(math::to_float(value) * factor);
  const bits_t mask = keep ? ~bits_t{0} : bits_t{0};
  return math::store_as<scalar_t>(math::bit_cast<compute_t>(scaled & mask));
}

/// The state of a launch.
POSENC_HOST_DEVICE inline RandomState random_state(const Dropout& dropout) {
  RandomState state{dropout.seed, dropout.offset};
  if (dropout.seed_source != nullptr) {
    state.seed = static_cast<std::uint64_t>(*dropout.seed_source);
    state.offset += static_cast<std::uint64_t>(*dropout.offset_source);
  }
  return state;
}

/// Writes rng_state, where there is one to write; one thread of a launch does, that of token 0.
POSENC_HOST_DEVICE inline void save_random_state(const Dropout& dropout, const RandomState& state) {
  if (dropout.saved_state == nullptr) return;
  dropout.saved_state[0] = static_cast<std::int64_t>(state.seed);
  dropout.saved_state[1] = static_cast<std::int64_t>(state.offset);
}

}  // namespace posenc::kernels
