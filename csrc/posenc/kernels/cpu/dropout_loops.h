// The loops of dropout for one instruction set: included by lanes.cpp after vectors.h, once for each. See Note [One
// source, several instruction sets] and Note [The mask of an element].

typedef std::int16_t RandomBits __attribute__((vector_size(kDoubles * 8)));

/// Vectors of blocks of random words that are made together, to hide the latency of a product.
constexpr std::int64_t kBlockVectors = 2;

/// Elements of these blocks, and how many vectors they are.
constexpr std::int64_t kGroup = kBlockVectors * kDoubles * static_cast<std::int64_t>(kBlockElements);
constexpr int kGroupVectors = kGroup / kFloats;
static_assert(kGroupVectors <= math::kPhiloxRounds);

/// The keys of all rounds, which are the same for all blocks.
struct Keys {
  UnsignedLongs low[math::kPhiloxRounds];
  UnsignedLongs high[math::kPhiloxRounds];
};

inline void make_keys(std::uint64_t seed, Keys& keys) {
  std::uint32_t low = static_cast<std::uint32_t>(seed);
  std::uint32_t high = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < math::kPhiloxRounds; ++round) {
    keys.low[round] = UnsignedLongs{} + low;
    keys.high[round] = UnsignedLongs{} + high;
    low += math::kPhiloxKeyStepLow;
    high += math::kPhiloxKeyStepHigh;
  }
}

/// The random bits of the kGroup elements from block `block` on, which starts a group, so the upper half of the counter
/// is the same for all of them. Returns whether any equal `tie`. Calls meanwhile(round) after each round: a round waits
/// for its products, and what stands between them costs next to nothing.
///
/// A lane holds one word of one block. What stands in its upper half is ignored by the next product and cut off at the
/// end.
template <typename Meanwhile>
inline bool random_bits(const Keys& keys, std::uint64_t offset, std::uint64_t block, std::int16_t tie,
                        std::uint16_t* bits, const Meanwhile& meanwhile) {
  const UnsignedLongs multiplier_a = UnsignedLongs{} + math::kPhiloxMultiplierA;
  const UnsignedLongs multiplier_b = UnsignedLongs{} + math::kPhiloxMultiplierB;
  UnsignedLongs lane;
  for (std::int64_t i = 0; i < kDoubles; ++i) lane[i] = static_cast<std::uint64_t>(i);
  UnsignedLongs words[kBlockVectors][4];
  for (std::int64_t v = 0; v < kBlockVectors; ++v) {
    words[v][0] = UnsignedLongs{} + offset;
    words[v][1] = UnsignedLongs{} + (offset >> 32);
    words[v][2] = lane + (block + static_cast<std::uint64_t>(v * kDoubles));
    words[v][3] = UnsignedLongs{} + (block >> 32);
  }
  for (int round = 0; round < math::kPhiloxRounds; ++round) {
    for (auto& w : words) {
      const UnsignedLongs a = product_of_halves(multiplier_a, w[0]);
      const UnsignedLongs b = product_of_halves(multiplier_b, w[2]);
      w[0] = (b >> 32) ^ w[1] ^ keys.low[round];
      w[2] = (a >> 32) ^ w[3] ^ keys.high[round];
      w[1] = b;
      w[3] = a;
    }
    meanwhile(round);
  }
  RandomBits ties{};
  for (const auto& w : words) {  // words 0 1 | 2 3 of each block, then the blocks in sequence
    const Doubles low = (Doubles)((w[0] & 0xFFFFFFFFu) | w[1] << 32);
    const Doubles high = (Doubles)((w[2] & 0xFFFFFFFFu) | w[3] << 32);
    ties |= ((RandomBits)low == tie) | ((RandomBits)high == tie);
    store<false>(bits, interleave_low(low, high));
    store<false>(bits + 4 * kDoubles, interleave_high(low, high));
    bits += 8 * kDoubles;
  }
  std::int64_t any = 0;
  for (std::int64_t i = 0; i < kDoubles; ++i) any |= ((Longs)ties)[i];
  return any != 0;
}

/// Neighbouring elements and their random bits.
template <typename scalar_t>
struct Masked {
  const scalar_t* in;
  scalar_t* out;
  const std::uint16_t* bits;
};

// kFloats elements from `i` on: `kept` has all bits of a kept one.

template <typename scalar_t>
inline void mask_vector(const Masked<scalar_t>& run, std::int64_t i, std::int16_t limit, float factor) {
  const Ints kept = __builtin_convertvector(load<SignedShorts>(run.bits + i) >= limit, Ints);
  narrow<false>((Floats)((Ints)(widen(run.in + i) * factor) & kept), run.out + i);
}

inline void mask_vector(const Masked<double>& run, std::int64_t i, std::int16_t limit, double factor) {
  for (const std::int64_t end = i + kFloats; i < end; i += kDoubles) {
    const Longs kept = __builtin_convertvector(load<HalfSignedShorts>(run.bits + i) >= limit, Longs);
    store<false>(run.out + i, (Longs)(load<Doubles>(run.in + i) * factor) & kept);
  }
}

template <typename scalar_t>
__attribute__((flatten)) void dropout_row(const void* in, void* out, std::int64_t count, std::uint64_t first,
                                          const RandomState& state, const DropoutLimit& limit, double factor) {
  const auto scale = static_cast<compute_type_t<scalar_t>>(factor);
  Keys keys;
  make_keys(state.seed, keys);
  alignas(64) std::uint16_t bits[2][kGroup];  // of a group, and of the one before
  Masked<scalar_t> before{};                  // a whole group without ties, masked while the next bits are made
  int turn = 0;
  for (std::int64_t begin = 0, size = 0; begin < count; begin += size) {
    const std::uint64_t element = first + static_cast<std::uint64_t>(begin);
    const auto skip = static_cast<std::int64_t>(element % static_cast<std::uint64_t>(kGroup));
    size = count - begin < kGroup - skip ? count - begin : kGroup - skip;
    const std::uint64_t block = (element - static_cast<std::uint64_t>(skip)) / kBlockElements;
    turn ^= 1;
    bool ties = false;
    if (before.in != nullptr) {
      ties = random_bits(keys, state.offset, block, limit.first, bits[turn], [&](int round) {
        if (round < kGroupVectors) mask_vector(before, round * kFloats, limit.first, scale);
      });
    } else {
      ties = random_bits(keys, state.offset, block, limit.first, bits[turn], [](int) {});
    }
    const Masked<scalar_t> now{static_cast<const scalar_t*>(in) + begin, static_cast<scalar_t*>(out) + begin,
                               bits[turn] + skip};
    before = {};
    if (size == kGroup && !ties) {
      before = now;
      continue;
    }
    std::int64_t i = 0;
    for (; i + kFloats <= size; i += kFloats) mask_vector(now, i, limit.first, scale);
    for (; i < size; ++i) now.out[i] = drop_element<scalar_t>(now.in[i], keeps(now.bits[i], limit.first), scale);
    for (i = 0; i < size; ++i) {
      const bool tie = is_tie(now.bits[i], limit);
      if (tie && drops_tie(state, element + static_cast<std::uint64_t>(i), limit)) now.out[i] = scalar_t{};
    }
  }
  if (before.in == nullptr) return;
  for (int i = 0; i < kGroupVectors; ++i) mask_vector(before, i * kFloats, limit.first, scale);
}
