#include <posenc/kernels/cuda/add.h>

#include <posenc/kernels/cuda/launch.cuh>

namespace posenc::kernels::cuda {

cudaError_t launch_add(const Args& args, const math::FrequencyTables& tables, cudaStream_t stream) {
  return launch<AddRow>(args, tables, stream);
}

}  // namespace posenc::kernels::cuda
