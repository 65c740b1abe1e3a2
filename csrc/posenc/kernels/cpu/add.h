#pragma once

#include <cstdint>

#include <posenc/kernels/args.h>
#include <posenc/kernels/cpu/frequencies.h>
#include <posenc/kernels/cpu/simd.h>

namespace posenc::kernels::cpu {

/// A part of the grid of tokens: rows [row_begin, row_end) times batch entries [batch_begin, batch_end).
struct TokenRange {
  std::int64_t row_begin;
  std::int64_t row_end;
  std::int64_t batch_begin;
  std::int64_t batch_end;
};

/// out = x * input_scale + alpha * encoding for the tokens of `range`; each row is computed once for its batch entries.
///
/// out may be x. Any split of the grid and any level give the same bits. Allocates scratch of 40 bytes a pair, 16 KB or
/// one row of encodings, and two rows of x, kept by the thread; throws std::bad_alloc.
void add(const Args& args, const Frequencies& frequencies, const TokenRange& range, SimdLevel level = simd_level());

}  // namespace posenc::kernels::cpu
