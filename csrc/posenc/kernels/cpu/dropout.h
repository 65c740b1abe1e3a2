#pragma once

#include <cstdint>

#include <posenc/kernels/args.h>
#include <posenc/kernels/cpu/simd.h>

namespace posenc::kernels::cpu {

/// out = dropout of x alone, for batch entries [begin, end): the gradient of add with dropout. args has no rows and no
/// positions; out may be x. Allocates scratch of two rows, kept by the thread; throws std::bad_alloc.
void dropout(const Args& args, std::int64_t begin, std::int64_t end, SimdLevel level = simd_level());

}  // namespace posenc::kernels::cpu
