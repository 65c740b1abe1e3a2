// Runs a TorchScript model that uses posenc operators, without calling posenc: usage: run_model MODEL.pt

#include <cstdint>
#include <iostream>

#include <ATen/ops/arange.h>
#include <torch/csrc/jit/serialization/import.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  torch::jit::Module model = torch::jit::load(argv[1]);
  const at::Tensor x = at::arange(24, at::kFloat).reshape({2, 3, 4});
  const at::Tensor y = model.forward({x}).toTensor();
  // Bits, not rounded decimals, so that the test can compare with Python exactly.
  const at::Tensor bits = y.contiguous().view(at::kInt).flatten();
  for (int64_t i = 0; i < bits.numel(); ++i) std::cout << bits[i].item<int32_t>() << '\n';
}
