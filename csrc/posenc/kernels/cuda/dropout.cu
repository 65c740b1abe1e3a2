#include <posenc/kernels/cuda/dropout.h>

#include <posenc/kernels/cuda/dropout_thread.h>
#include <posenc/kernels/cuda/launch.cuh>

namespace posenc::kernels::cuda {
namespace {

template <typename scalar_t>
__global__ void __launch_bounds__(kBlockSize, 1)
    dropout_kernel(const __grid_constant__ LaunchArgs args, std::int64_t count) {
  for_each_index(count, [&](std::int64_t index) { run_dropout_thread<scalar_t>(args, index); });
}

}  // namespace

cudaError_t launch_add_dropout(const Args& args, const math::FrequencyTables& tables, cudaStream_t stream) {
  return launch<AddDropoutRow>(args, tables, stream);
}

cudaError_t launch_dropout(const Args& args, cudaStream_t stream) {
  const std::int64_t count = num_dropout_threads(args);
  if (count == 0) return cudaSuccess;
  const LaunchArgs launch_args = make_dropout_launch_args(args);
  dispatch_dtype(args.dtype, [&]<typename scalar_t>() {
    dropout_kernel<scalar_t><<<grid_size(count), kBlockSize, 0, stream>>>(launch_args, count);
  });
  return cudaGetLastError();
}

}  // namespace posenc::kernels::cuda
