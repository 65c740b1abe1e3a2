#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <posenc/kernels/cuda/thread.h>

namespace posenc::kernels::cuda {

/// Calls `run(index)` for each index below `count` that belongs to the calling thread.
template <typename Run>
__device__ inline void for_each_index(std::int64_t count, const Run& run) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kBlockSize;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlockSize + threadIdx.x; i < count; i += step) run(i);
}

template <typename scalar_t, typename Row>
__global__ void __launch_bounds__(kBlockSize, 1)
    range_kernel(const __grid_constant__ LaunchArgs args, const __grid_constant__ math::FrequencyTables tables,
                 const __grid_constant__ RangePlan plan, std::int64_t count) {
  for_each_index(count, [&](std::int64_t index) { run_range_thread<scalar_t, Row>(args, tables, plan, index); });
}

template <typename scalar_t, typename Row>
__global__ void __launch_bounds__(kBlockSize, 1)
    position_kernel(const __grid_constant__ LaunchArgs args, const __grid_constant__ math::FrequencyTables tables,
                    std::int64_t count) {
  for_each_index(count, [&](std::int64_t index) { run_position_thread<scalar_t, Row>(args, tables, index); });
}

/// Launches the mapping that fits the positions; `Row` is EncodeRow or AddRow.
template <template <typename> class Row>
cudaError_t launch(Args args, const math::FrequencyTables& tables, cudaStream_t stream) {
  if (num_rows(args) == 0 || num_batches(args) == 0) return cudaSuccess;
  args.vectors = can_use_vectors(args);
  dispatch_dtype(args.dtype, [&]<typename scalar_t>() {
    const LaunchArgs launch_args = make_launch_args<scalar_t>(args);
    if (args.position_type == PositionType::kRange) {
      const RangePlan plan = plan_range<scalar_t>(args);
      const std::int64_t count = num_range_threads<scalar_t>(args, plan);
      range_kernel<scalar_t, Row<scalar_t>>
          <<<grid_size(count), kBlockSize, 0, stream>>>(launch_args, tables, plan, count);
    } else {
      const std::int64_t count = num_position_threads<scalar_t>(args);
      position_kernel<scalar_t, Row<scalar_t>><<<grid_size(count), kBlockSize, 0, stream>>>(launch_args, tables, count);
    }
  });
  return cudaGetLastError();
}

}  // namespace posenc::kernels::cuda
