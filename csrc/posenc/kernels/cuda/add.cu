#include <posenc/kernels/cuda/add.h>

#include <posenc/kernels/cuda/grid.h>

namespace posenc::kernels::cuda {
namespace {

template <typename scalar_t>
__global__ void __launch_bounds__(kBlockSize, 1)
    add_kernel(const __grid_constant__ Args args, const __grid_constant__ math::FrequencyTables tables,
               std::int64_t count) {
  for_each_index(count, [&](std::int64_t index) { add_thread<scalar_t>(args, tables, index); });
}

}  // namespace

cudaError_t launch_add(const Args& args, const math::FrequencyTables& tables, cudaStream_t stream) {
  const std::int64_t count = num_rows(args) * threads_per_row(args);
  if (count == 0 || num_batches(args) == 0) return cudaSuccess;
  dispatch_dtype(args.dtype, [&]<typename scalar_t>() {
    add_kernel<scalar_t><<<grid_size(count), kBlockSize, 0, stream>>>(args, tables, count);
  });
  return cudaGetLastError();
}

}  // namespace posenc::kernels::cuda
