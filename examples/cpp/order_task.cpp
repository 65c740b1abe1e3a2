// What a positional encoding is for, on a task that only order decides.
//
//   order_task TEXT_FILE
//
// Is a window of 32 characters in its own or in reversed order? The model is an embedding, one layer of bidirectional
// self-attention and the mean over the characters. Without positions it sees a bag of characters, which reversal leaves
// as it is, so it can only guess; with posenc::nn::PositionalEncoding it learns how English runs. Both models are
// trained here, at the same time, one core each.
//
// Exit status 0 if held-out accuracy stays at one half without the encoding and passes 90 % with it, else 1.

#include <ATen/CPUGeneratorImpl.h>
#include <posenc/posenc.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace {

constexpr int64_t kWindow = 32;       // characters
constexpr int64_t kVocabulary = 128;  // ASCII
constexpr int64_t kDModel = 64;
constexpr int kSteps = 700;
constexpr int64_t kBatch = 64;  // windows; each is seen in both orders
constexpr double kLearningRate = 3e-3;
constexpr double kTrainShare = 0.8;  // of the text, from its start; the rest is held out
constexpr size_t kHeldOutStride = 4;
constexpr uint64_t kSeed = 2017;

constexpr double kChanceTolerance = 0.02 * 0.5;  // 2 % of one half
constexpr double kRequiredAccuracy = 0.9;

// ---- Data. ----

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("TEXT_FILE must be readable, but got " + path + ".");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= kVocabulary) throw std::runtime_error(path + " must be ASCII, but is not.");
  }
  return text;
}

// A view into the text is all that a window needs until it becomes a row of a tensor.
using Windows = std::vector<std::string_view>;

// The windows of text, one every stride characters, without those in seen (in either order) and without palindromes,
// which are their own reverse.
Windows collect_windows(std::string_view text, size_t stride, const std::unordered_set<std::string_view>& seen) {
  Windows windows;
  for (size_t start = 0; start + kWindow <= text.size(); start += stride) {
    const std::string_view window = text.substr(start, kWindow);
    const std::string reversed(window.rbegin(), window.rend());
    if (window != reversed && !seen.contains(window) && !seen.contains(reversed)) windows.push_back(window);
  }
  return windows;
}

struct Examples {
  torch::Tensor tokens;  // (2 * count, kWindow), int64: the windows, then their reverses
  torch::Tensor labels;  // (2 * count), float: 1 for the windows, 0 for their reverses
};

// Each window in both orders, so that the halves are equal and an answer that ignores order is right half of the time.
Examples both_orders(const Windows& windows, const torch::Tensor& indices) {
  const int64_t count = indices.numel();
  torch::Tensor tokens = torch::empty({count, kWindow}, torch::kInt64);
  const int64_t* index = indices.const_data_ptr<int64_t>();
  int64_t* token = tokens.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < count; ++row, ++index) {
    const std::string_view window = windows[static_cast<size_t>(*index)];
    token = std::copy(window.begin(), window.end(), token);
  }
  return {torch::cat({tokens, tokens.flip(1)}), torch::cat({torch::ones(count), torch::zeros(count)})};
}

// ---- Model. ----

struct OrderModelImpl : torch::nn::Module {
  explicit OrderModelImpl(bool with_encoding) {
    register_module("embedding", embedding);
    register_module("attention", attention);
    register_module("classifier", classifier);
    if (with_encoding) {
      // Base 10 spreads the wavelengths over 6 to 63 characters, which suits a window of 32; with the usual 10000, made
      // for sentences of hundreds of tokens, half of the columns would hardly change within the window.
      const auto options = posenc::nn::PositionalEncodingOptions(kDModel).convention({.base = 10.0});
      encoding = register_module("encoding", posenc::nn::PositionalEncoding(options));
    }
  }

  // tokens (batch, kWindow) -> logits (batch), positive for "in its own order".
  torch::Tensor forward(const torch::Tensor& tokens) {
    torch::Tensor x = embedding(tokens);
    if (encoding) x = encoding(x);
    x = attention(x.transpose(0, 1));  // LibTorch's layer takes (seq_len, batch, d_model)
    return classifier(x.mean(0)).squeeze(-1);
  }

  torch::nn::Embedding embedding{kVocabulary, kDModel};
  posenc::nn::PositionalEncoding encoding{nullptr};
  torch::nn::TransformerEncoderLayer attention{
      torch::nn::TransformerEncoderLayerOptions(kDModel, 4).dim_feedforward(2 * kDModel).dropout(0.0)};
  torch::nn::Linear classifier{kDModel, 1};
};
TORCH_MODULE(OrderModel);

// ---- Training. ----

double accuracy(OrderModel& model, const Windows& windows) {
  const torch::NoGradGuard no_grad;
  model->eval();
  int64_t correct = 0;
  for (const torch::Tensor& indices : torch::arange(static_cast<int64_t>(windows.size())).split(512)) {
    const Examples examples = both_orders(windows, indices);
    correct += ((model(examples.tokens) > 0) == (examples.labels > 0)).sum().item<int64_t>();
  }
  return static_cast<double>(correct) / static_cast<double>(2 * windows.size());
}

// Trains the model and returns its accuracy on the held-out windows.
double train(const char* name, OrderModel model, const Windows& training, const Windows& held_out) {
  at::set_num_threads(1);  // of this thread; so the result does not depend on the number of cores
  // A generator of its own, since the other model is trained at the same time.
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(kLearningRate));
  const auto start = std::chrono::steady_clock::now();
  for (int step = 1; step <= kSteps; ++step) {
    const torch::Tensor indices =
        torch::randint(static_cast<int64_t>(training.size()), {kBatch}, generator, torch::kInt64);
    const Examples examples = both_orders(training, indices);
    const torch::Tensor loss = torch::binary_cross_entropy_with_logits(model(examples.tokens), examples.labels);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 100 == 0) {
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      std::printf("  %-7s  step %d of %d  loss %.3f  %3.0f s\n", name, step, kSteps, loss.item<double>(),
                  elapsed.count());
      std::fflush(stdout);
    }
  }
  return accuracy(model, held_out);
}

OrderModel make_model(bool with_encoding) {
  torch::manual_seed(kSeed);  // the encoding has no weights, so both models start from the same ones
  return OrderModel(with_encoding);
}

int run(const std::string& path) {
  const std::string text = read_text(path);
  const auto split = static_cast<size_t>(kTrainShare * static_cast<double>(text.size()));
  const Windows training = collect_windows(std::string_view(text).substr(0, split), 1, {});
  // The two parts share no character; of text that stands in both, held-out windows are dropped as well.
  const Windows held_out =
      collect_windows(std::string_view(text).substr(split), kHeldOutStride, {training.begin(), training.end()});
  if (training.empty() || held_out.empty()) throw std::runtime_error(path + " must be longer.");
  std::printf("%zu characters: %zu training windows, %zu held-out windows, each in both orders\n", text.size(),
              training.size(), held_out.size());

  const auto start_training = [&](const char* name, bool with_encoding) {
    return std::async(std::launch::async, train, name, make_model(with_encoding), std::cref(training),
                      std::cref(held_out));
  };
  std::future<double> training_without = start_training("without", false);
  std::future<double> training_with = start_training("with", true);
  const double without = training_without.get();
  const double with = training_with.get();
  std::printf("held-out accuracy without the encoding  %6.2f %%  (chance: 50 %%)\n", 100 * without);
  std::printf("held-out accuracy with the encoding     %6.2f %%\n", 100 * with);

  if (std::abs(without - 0.5) > kChanceTolerance) {
    std::fprintf(stderr, "order_task: accuracy without the encoding must be within 2 %% of one half, but got %.4f.\n",
                 without);
    return 1;
  }
  if (with <= kRequiredAccuracy) {
    std::fprintf(stderr, "order_task: accuracy with the encoding must be above %.2f, but got %.4f.\n",
                 kRequiredAccuracy, with);
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: order_task TEXT_FILE\n");
    return 2;
  }
  try {
    return run(argv[1]);
  } catch (const c10::Error& error) {  // its what() would add a stack trace
    std::fprintf(stderr, "order_task: %s\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "order_task: %s\n", error.what());
    return 1;
  }
}
