#pragma once

#include <array>
#include <cstdint>

#include <posenc/kernels/cpu/buffer.h>
#include <posenc/kernels/cpu/frequencies.h>
#include <posenc/kernels/cpu/lanes.h>
#include <posenc/math/position.h>

namespace posenc::kernels::cpu {

/// What one thread computes rows in. Keeps anchors between calls, so that 31 of 32 decoding steps find theirs; there is
/// no lock. At most kKeptAnchors anchors of at most kMaxKeptAnchorPairs pairs (2 MB) and 1 MB of buffers stay.
class Workspace {
 public:
  static constexpr int kKeptAnchors = 64;
  static constexpr std::int64_t kMaxKeptAnchorPairs = 2048;

  /// That of the calling thread.
  static Workspace& of_thread();

  /// The values of the row at `position`, valid until the next call. `keep_anchor` looks among the kept anchors and
  /// keeps a new one: for calls of few rows; a long fill would only push the others out.
  RowValues row_values(const Frequencies& frequencies, const Lanes& lanes, const math::Position& position,
                       bool negative_scale, bool cos_first, bool keep_anchor);

  /// Scratch of at least `bytes` bytes.
  void* scratch(std::int64_t bytes) { return scratch_.reserve(bytes); }

  /// Frees what a call on a very wide encoding has left beyond the bound.
  void trim();

 private:
  struct Anchor {
    std::uint64_t frequencies = 0;  ///< id, 0 for none
    std::uint64_t number = 0;       ///< the position / 32
    bool mirrored = false;          ///< the sines are negated
    std::uint64_t last_use = 0;
    Buffer<double> values;  ///< sines, then cosines
  };

  const double* anchor(const Frequencies& frequencies, const Lanes& lanes, std::uint64_t number, bool mirrored,
                       bool keep);

  /// The kept anchor that is asked for, or the one to be replaced by it.
  Anchor& kept_anchor(std::uint64_t frequencies, std::uint64_t number, bool mirrored);

  std::array<Anchor, kKeptAnchors> kept_;
  std::uint64_t uses_ = 0;
  Anchor current_;
  Buffer<double> values_;  ///< of a position that is no integer
  Buffer<std::uint64_t> phases_;
  Buffer<unsigned char> scratch_;
};

}  // namespace posenc::kernels::cpu
