#pragma once

#include <cstdint>

#include <posenc/kernels/args.h>
#include <posenc/kernels/cpu/frequencies.h>
#include <posenc/kernels/cpu/simd.h>

namespace posenc::kernels::cpu {

/// Writes rows [begin, end) of the encoding into args.out, which has no x and no batch dimensions.
///
/// `frequencies` are those of the convention, columns.num_first of them. Rows are independent, so any split of the
/// range and any level give the same bits. Allocates scratch of 40 bytes a pair, kept by the thread; throws
/// std::bad_alloc.
void encode(const Args& args, const Frequencies& frequencies, std::int64_t begin, std::int64_t end,
            SimdLevel level = simd_level());

}  // namespace posenc::kernels::cpu
