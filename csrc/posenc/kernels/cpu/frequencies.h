#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include <posenc/kernels/cpu/buffer.h>
#include <posenc/math/frequency.h>

namespace posenc::kernels::cpu {

/// What names a set of frequencies: everything that make_frequency_tables takes.
struct FrequencyKey {
  double base;
  std::int64_t width;
  double freq_shift;
  double position_scale;
  std::int64_t count;

  /// By bits, so that -0.0 and 0.0 are two keys and NaN would be one.
  bool operator==(const FrequencyKey& other) const;
};

/// The frequencies of one convention and width, and the sines and cosines of the first 16 positions ("steps"), as the
/// loops over rows want them. Never changes once made, so threads share it; steps are computed when first asked for.
/// Takes 40 bytes a pair, and 16 more for each step in use.
class Frequencies {
 public:
  static constexpr int kSteps = 16;

  explicit Frequencies(const FrequencyKey& key);
  ~Frequencies();
  Frequencies(const Frequencies&) = delete;
  Frequencies& operator=(const Frequencies&) = delete;

  const FrequencyKey& key() const { return key_; }
  std::int64_t count() const { return key_.count; }

  /// Distinct for each object of the process, so that what is derived from it can be kept by number.
  std::uint64_t id() const { return id_; }

  /// turn_fraction(frequency(k)) for each k, as two arrays.
  const std::uint64_t* hi() const { return fractions_.data(); }
  const std::uint64_t* lo() const { return fractions_.data() + count(); }

  /// frequency(k) for each k.
  const math::Float128* exact() const { return exact_.data(); }

  /// Sines, then cosines, of every pair at position r, 1 <= r <= 16.
  const double* step(int r) const;

 private:
  FrequencyKey key_;
  std::uint64_t id_;
  Buffer<std::uint64_t> fractions_;
  Buffer<math::Float128> exact_;
  mutable std::array<std::atomic<Buffer<double>*>, kSteps> steps_{};
};

/// The frequencies of `key`: kept ones, or new ones. Keeps the kMaxKept last used sets of at most kMaxKeptPairs pairs
/// (19 MB in all), shared by all threads.
std::shared_ptr<const Frequencies> frequencies_of(const FrequencyKey& key);

inline constexpr int kMaxKept = 16;
inline constexpr std::int64_t kMaxKeptPairs = 4096;

}  // namespace posenc::kernels::cpu
