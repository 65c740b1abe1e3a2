#pragma once

#include <cuda_runtime_api.h>

#include <posenc/kernels/args.h>
#include <posenc/math/frequency.h>

namespace posenc::kernels::cuda {

/// out = x * input_scale + alpha * encoding for every token, on `stream`, without waiting. out may be x.
/// All pointers are device memory of the current device. Returns what the launch returned; an empty x launches nothing.
cudaError_t launch_add(const Args& args, const math::FrequencyTables& tables, cudaStream_t stream);

}  // namespace posenc::kernels::cuda
