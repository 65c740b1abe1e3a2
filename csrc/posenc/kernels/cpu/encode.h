#pragma once

#include <cstdint>

#include <posenc/kernels/args.h>
#include <posenc/math/frequency.h>

namespace posenc::kernels::cpu {

/// Writes rows [begin, end) of the encoding into args.out.
///
/// args has no x and no batch dimensions; `frequencies` holds columns.num_first of them. Rows are independent, so any
/// split of the range gives the same bits. Allocates and throws nothing.
void encode(const Args& args, const math::Float128* frequencies, std::int64_t begin, std::int64_t end);

}  // namespace posenc::kernels::cpu
