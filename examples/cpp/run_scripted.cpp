// Runs a TorchScript model that uses posenc, saved by examples/python/save_scripted.py, without Python.
//
//   run_scripted MODEL_FILE SAMPLE_FILE
//
// Exit status 0 if the output has the bits that Python got, else 1.

#include <posenc/posenc.h>
#include <torch/script.h>
#include <torch/serialize.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// What torch.save wrote in Python.
c10::IValue read_saved(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("SAMPLE_FILE must be readable, but got " + path + ".");
  return torch::pickle_load(std::vector<char>{std::istreambuf_iterator<char>(file), {}});
}

int run(const std::string& model_path, const std::string& sample_path) {
  // Before the model is loaded: it names operators that must exist by then.
  posenc::register_ops();
  // As in Python, since the way a matrix product is shared out among threads decides its last bits. So does gradient
  // mode: without gradients TransformerEncoderLayer takes another path.
  at::set_num_threads(1);
  const torch::NoGradGuard no_grad;

  torch::jit::Module model = torch::jit::load(model_path);
  const auto sample = read_saved(sample_path).toGenericDict();
  const torch::Tensor tokens = sample.at("tokens").toTensor();
  const torch::Tensor expected = sample.at("output").toTensor();

  // TorchScript optimizes a graph after it has seen it run, so the first run alone would not tell.
  for (int repeat = 1; repeat <= 3; ++repeat) {
    const torch::Tensor output = model.forward({tokens}).toTensor();
    if (repeat == 1) {
      std::cout << "output in C++:    shape " << output.sizes() << ", first values";
      for (int64_t i = 0; i < 4; ++i) std::printf(" %+.7f", output.flatten()[i].item<double>());
      std::printf("\n");
    }
    if (!torch::equal(output, expected)) {
      std::fprintf(stderr, "run_scripted: run %d must have the bits of Python's output, but differs by up to %g.\n",
                   repeat, (output - expected).abs().max().item<double>());
      return 1;
    }
  }
  std::printf("same bits as Python\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: run_scripted MODEL_FILE SAMPLE_FILE\n");
    return 2;
  }
  try {
    return run(argv[1], argv[2]);
  } catch (const c10::Error& error) {  // its what() would add a stack trace
    std::fprintf(stderr, "run_scripted: %s\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "run_scripted: %s\n", error.what());
    return 1;
  }
}
