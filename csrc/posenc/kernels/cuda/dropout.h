#pragma once

#include <cuda_runtime_api.h>

#include <posenc/kernels/args.h>
#include <posenc/math/frequency.h>

namespace posenc::kernels::cuda {

/// launch_add with dropout of the sum. args.dropout says where seed and offset come from, and the kernel writes those
/// it used to args.dropout.saved_state, so that a replayed CUDA graph leaves the ones of that replay there.
cudaError_t launch_add_dropout(const Args& args, const math::FrequencyTables& tables, cudaStream_t stream);

/// out = dropout of x alone, the gradient of the above. args has no rows and no positions; out may be x.
cudaError_t launch_dropout(const Args& args, cudaStream_t stream);

}  // namespace posenc::kernels::cuda
