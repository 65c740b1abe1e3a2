#pragma once

#include <cstddef>
#include <cstdint>

#include <posenc/kernels/args.h>
#include <posenc/math/frequency.h>

namespace posenc::kernels::cpu {

/// Bytes of scratch that one call of `add` needs: one row of encodings in the compute type.
std::size_t add_scratch_bytes(const Args& args);

/// out = x * input_scale + alpha * encoding for tokens [begin, end), counted row by row with the batch fastest, so that
/// a row is computed once and used for its whole batch (twice where a split of the range cuts through its batch).
///
/// `scratch` has add_scratch_bytes(args) bytes, aligned for double. out may be x. Allocates and throws nothing.
void add(const Args& args, const math::Float128* frequencies, void* scratch, std::int64_t begin, std::int64_t end);

}  // namespace posenc::kernels::cpu
