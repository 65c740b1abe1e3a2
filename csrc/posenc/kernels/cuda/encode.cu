#include <posenc/kernels/cuda/encode.h>

#include <posenc/kernels/cuda/launch.cuh>

namespace posenc::kernels::cuda {

cudaError_t launch_encode(const Args& args, const math::FrequencyTables& tables, cudaStream_t stream) {
  return launch<EncodeRow>(args, tables, stream);
}

}  // namespace posenc::kernels::cuda
