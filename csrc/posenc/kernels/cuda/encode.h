#pragma once

#include <cuda_runtime_api.h>

#include <posenc/kernels/args.h>
#include <posenc/math/frequency.h>

namespace posenc::kernels::cuda {

/// Writes every row of the encoding into args.out (device memory of the current device), on `stream`, without waiting.
/// args has no x and no batch dimensions. Returns what the launch returned; an empty result launches nothing.
cudaError_t launch_encode(const Args& args, const math::FrequencyTables& tables, cudaStream_t stream);

}  // namespace posenc::kernels::cuda
