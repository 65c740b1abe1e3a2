#pragma once

#include <cstdint>

#include <posenc/kernels/cuda/thread.h>

namespace posenc::kernels::cuda {

inline constexpr int kBlockSize = 128;

/// Blocks for `count` threads; each thread walks on by the whole grid where there are more.
inline unsigned grid_size(std::int64_t count) {
  constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 30;
  const std::int64_t blocks = count / kBlockSize + (count % kBlockSize != 0 ? 1 : 0);
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

#if defined(__CUDACC__)
/// Calls `run(index)` for each index below `count` that belongs to the calling thread.
template <typename Run>
__device__ inline void for_each_index(std::int64_t count, Run&& run) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kBlockSize;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlockSize + threadIdx.x; i < count; i += step) run(i);
}
#endif

}  // namespace posenc::kernels::cuda
