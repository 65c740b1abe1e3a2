#include <posenc/nn/positional_encoding.h>

#include <gtest/gtest.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <posenc/posenc.h>

#include "ops/ops_testing.h"

namespace posenc::nn {
namespace {

using posenc::testing::same_bits;
using posenc::testing::throws;

std::string printed(const torch::nn::Module& module) {
  std::ostringstream stream;
  stream << module;
  return stream.str();
}

torch::Tensor input(torch::IntArrayRef sizes, torch::ScalarType dtype = torch::kFloat) {
  return torch::sin(torch::arange(c10::multiply_integers(sizes), torch::kDouble)).view(sizes).to(dtype);
}

const Convention kConvention{500.0, 1.0, -0.5, Order::kSplitCosFirst, Odd::kZero};

TEST(PositionalEncodingModule, a_width_alone_adds_the_encoding_of_the_paper) {
  PositionalEncoding module(8);
  for (const auto dtype : {torch::kDouble, torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    const torch::Tensor x = input({2, 5, 8}, dtype);
    EXPECT_TRUE(same_bits(module(x), posenc::add(x)));
    EXPECT_TRUE(same_bits(module->forward(x, 7), posenc::add(x, 7)));
    EXPECT_TRUE(same_bits(module(x[0]), posenc::add(x[0]))) << "(seq_len, d_model)";
  }
}

TEST(PositionalEncodingModule, every_option_reaches_the_operator) {
  PositionalEncoding module(
      PositionalEncodingOptions(7).input_scale(-3.3).alpha(0.7).max_len(100).convention(kConvention));
  for (const auto dtype : {torch::kDouble, torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    const torch::Tensor x = input({2, 5, 7}, dtype);
    EXPECT_TRUE(same_bits(module->forward(x, 11), posenc::add(x, 11, {-3.3, 0.7, -2, kConvention})));
  }
  EXPECT_EQ(module->options.d_model(), 7);
  EXPECT_EQ(module->options.max_len(), 100);
  EXPECT_EQ(module->options.convention().order, Order::kSplitCosFirst);
}

TEST(PositionalEncodingModule, without_batch_first_the_sequence_is_the_first_dimension) {
  PositionalEncoding batch_first(6);
  PositionalEncoding seq_first(PositionalEncodingOptions(6).batch_first(false));
  const torch::Tensor x = input({3, 5, 6});
  const torch::Tensor positions = torch::arange(15).view({3, 5});
  const torch::Tensor turned = x.transpose(0, 1);
  EXPECT_TRUE(same_bits(seq_first->forward(turned, 4), batch_first->forward(x, 4).transpose(0, 1)));
  EXPECT_TRUE(
      same_bits(seq_first->forward(turned, 0, positions), batch_first->forward(x, 0, positions).transpose(0, 1)))
      << "positions are (batch, seq_len) whatever batch_first says";
  EXPECT_TRUE(
      same_bits(seq_first->forward(turned, 0, positions[1]), batch_first->forward(x, 0, positions[1]).transpose(0, 1)))
      << "(seq_len,)";
  EXPECT_TRUE(same_bits(seq_first->forward(x[0], 4), posenc::add(x[0], 4))) << "(seq_len, d_model)";
}

TEST(PositionalEncodingModule, positions_replace_the_offset) {
  PositionalEncoding module(PositionalEncodingOptions(7).input_scale(2.0).convention(kConvention));
  const AddOptions options{2.0, 1.0, -2, kConvention};
  const torch::Tensor x = input({2, 3, 7});
  for (const torch::Tensor& positions : {torch::arange(3), torch::arange(6).view({2, 3}),
                                         torch::tensor({0.5, -1.5, 1e6}), torch::arange(2).unsqueeze(1)}) {
    EXPECT_TRUE(same_bits(module->forward(x, 0, positions), posenc::add(x, positions, options)));
  }
  EXPECT_TRUE(throws<c10::ValueError>([&] { module->forward(x, 2, torch::arange(3)); },
                                      "PositionalEncoding: offset must be 0 where positions are given, but got 2. Add "
                                      "it to the positions."));
}

TEST(PositionalEncodingModule, max_len_is_a_checked_limit_and_no_limit_is_the_default) {
  PositionalEncoding limited(PositionalEncodingOptions(4).max_len(10));
  const torch::Tensor x = input({2, 6, 4});
  EXPECT_TRUE(same_bits(limited->forward(x, 4), posenc::add(x, 4)));
  const auto text = [](const std::string& offset) {
    return "PositionalEncoding: offset and offset + seq_len must be between 0 and max_len 10, but got offset " +
           offset + " and seq_len 6.";
  };
  EXPECT_TRUE(throws<c10::ValueError>([&] { limited->forward(x, 5); }, text("5")));
  EXPECT_TRUE(throws<c10::ValueError>([&] { limited->forward(x, -1); }, text("-1")));
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  EXPECT_TRUE(throws<c10::ValueError>([&] { limited->forward(x, largest); }, text(std::to_string(largest))));
  EXPECT_TRUE(same_bits(limited->forward(x, 0, torch::arange(6) + 1000), posenc::add(x, torch::arange(6) + 1000)))
      << "not checked for positions";
  EXPECT_NO_THROW(PositionalEncoding(4)->forward(x, 1'000'000'000'000));
  PositionalEncoding seq_first(PositionalEncodingOptions(4).max_len(2).batch_first(false));
  EXPECT_NO_THROW(seq_first->forward(x)) << "two rows of six entries";
}

TEST(PositionalEncodingModule, bad_arguments_are_named_with_rule_and_value) {
  using Options = PositionalEncodingOptions;
  using Value = c10::ValueError;
  const std::string name = "PositionalEncoding: ";
  EXPECT_TRUE(throws<Value>([] { PositionalEncoding(0); }, name + "d_model must be at least 1, but got 0."));
  EXPECT_TRUE(throws<Value>([] { PositionalEncoding(Options(4).dropout(1.5)); },
                            name + "dropout must be between 0 and 1, but got 1.5."));
  EXPECT_TRUE(throws<Value>([] { PositionalEncoding(Options(4).dropout(-0.1)); },
                            name + "dropout must be between 0 and 1, but got -0.1."));
  EXPECT_TRUE(throws<Value>([] { PositionalEncoding(Options(4).dropout(std::numeric_limits<double>::quiet_NaN())); },
                            name + "dropout must be between 0 and 1, but got nan."));
  EXPECT_TRUE(throws<Value>([] { PositionalEncoding(Options(4).max_len(-1)); },
                            name + "max_len must be at least 0, but got -1."));
  EXPECT_TRUE(throws<Value>([] { PositionalEncoding(Options(4).convention({-1.0})); },
                            name + "base must be finite and greater than 0, but got -1."));
  EXPECT_TRUE(throws<Value>(
      [] {
        PositionalEncoding(Options(7).convention({10000.0, 0.0, 1.0, Order::kSplit, Odd::kError}));
      },
      name + "d_model must be even with odd=\"error\", but got 7. Use odd=\"sin\", \"zero\" or \"cut\" for an odd "
             "width."));
  PositionalEncoding module(4);
  EXPECT_TRUE(throws<Value>(
      [&] {
        module->forward(torch::zeros({2, 3, 5}));
      },
      name + "x must have a last dimension of d_model 4, but got shape [2, 3, 5]."));
  EXPECT_TRUE(throws<c10::TypeError>(
      [&] {
        module->forward(torch::zeros({2, 3, 4}, torch::kLong));
      },
      name + "x must be float64, float32, bfloat16 or float16, but got int64."));
  EXPECT_TRUE(throws<Value>([&] { module->forward(torch::zeros({4})); },
                            name + "x must have at least 2 dimensions (..., seq_len, d_model), but got shape [4]. Use "
                                   "x.unsqueeze(0) for a single position."));
}

TEST(PositionalEncodingModule, has_no_parameters_no_buffers_and_an_empty_archive) {
  PositionalEncoding module(PositionalEncodingOptions(512).dropout(0.1).max_len(5000));
  EXPECT_TRUE(module->parameters().empty());
  EXPECT_TRUE(module->buffers().empty());
  EXPECT_TRUE(module->children().empty());
  EXPECT_FALSE(module->alpha.defined());
  std::stringstream first;
  std::stringstream second;
  torch::save(module, first);
  torch::save(PositionalEncoding(2), second);
  EXPECT_EQ(first.str().size(), second.str().size()) << "the archive grows with the width or the limit";
}

TEST(PositionalEncodingModule, moving_the_module_changes_nothing_in_what_it_computes) {
  const torch::Tensor x = input({2, 5, 8});
  PositionalEncoding module(8);
  const torch::Tensor expected = posenc::add(x);
  module->to(torch::kHalf);
  EXPECT_TRUE(same_bits(module(x), expected));
  module->to(torch::kMeta);
  EXPECT_TRUE(same_bits(module(x), expected));
}

TEST(PositionalEncodingModule, works_in_sequential_with_x_alone) {
  torch::nn::Sequential model(torch::nn::Linear(6, 8), PositionalEncoding(8), torch::nn::Linear(8, 3));
  const torch::Tensor x = input({2, 5, 6});
  const torch::Tensor hidden = model[0]->as<torch::nn::Linear>()->forward(x);
  const torch::Tensor expected = model[2]->as<torch::nn::Linear>()->forward(posenc::add(hidden));
  EXPECT_TRUE(same_bits(model->forward(x), expected));

  torch::nn::Sequential named({{"positions", torch::nn::AnyModule(PositionalEncoding(6))}});
  EXPECT_TRUE(same_bits(named->forward(x), posenc::add(x)));
  EXPECT_TRUE(same_bits(named->forward(x, std::int64_t{9}), posenc::add(x, 9)));
}

TEST(PositionalEncodingModule, works_in_any_module_with_one_two_or_three_arguments) {
  torch::nn::AnyModule any(PositionalEncoding(6));
  const torch::Tensor x = input({2, 5, 6});
  EXPECT_TRUE(same_bits(any.forward(x), posenc::add(x)));
  EXPECT_TRUE(same_bits(any.forward(x, std::int64_t{9}), posenc::add(x, 9)));
  const torch::Tensor positions = torch::arange(5) * 3;
  EXPECT_TRUE(
      same_bits(any.forward(x, std::int64_t{0}, std::optional<torch::Tensor>(positions)), posenc::add(x, positions)));
}

TEST(PositionalEncodingModule, dropout_acts_on_the_sum_in_training_only) {
  PositionalEncoding module(PositionalEncodingOptions(16).dropout(0.25).input_scale(2.0));
  const torch::Tensor x = input({4, 50, 16}) + 3.0;  // no sum is zero
  const torch::Tensor sum = posenc::add(x, 0, {2.0});
  module->eval();
  EXPECT_TRUE(same_bits(module(x), sum));

  module->train();
  torch::manual_seed(1);
  const torch::Tensor dropped = module(x);
  torch::manual_seed(1);
  EXPECT_TRUE(same_bits(dropped, std::get<0>(posenc::add_dropout(x, 0.25, 0, {2.0})))) << "the fused operator";
  torch::manual_seed(1);
  EXPECT_TRUE(same_bits(module(x, 0, torch::arange(50)), dropped)) << "at positions too";
  const torch::Tensor kept = (sum * (1.0 / 0.75));
  EXPECT_TRUE(same_bits(dropped, torch::where(dropped.ne(0), kept, torch::zeros_like(kept))));
  const double share = dropped.eq(0).to(torch::kDouble).mean().item<double>();
  EXPECT_NEAR(share, 0.25, 5.0 * std::sqrt(0.25 * 0.75 / 3200.0)) << "five standard deviations";
  torch::manual_seed(2);
  EXPECT_FALSE(torch::equal(module(x), dropped));

  EXPECT_TRUE(same_bits(PositionalEncoding(16)->forward(x), posenc::add(x)))
      << "no dropout by default, in training too";
  PositionalEncoding all(PositionalEncodingOptions(16).dropout(1.0));
  EXPECT_TRUE(all(x).eq(0).all().item<bool>());
}

TEST(PositionalEncodingModule, a_learnable_alpha_is_a_parameter_with_the_gradient_of_the_definition) {
  PositionalEncoding module(
      PositionalEncodingOptions(7).alpha(0.5).learnable_alpha(true).input_scale(2.0).convention(kConvention));
  ASSERT_EQ(module->named_parameters().size(), 1u);
  ASSERT_TRUE(module->named_parameters().contains("alpha"));
  EXPECT_TRUE(module->alpha.requires_grad());
  EXPECT_EQ(module->alpha.dim(), 0);
  EXPECT_EQ(module->alpha.item<double>(), 0.5);
  EXPECT_TRUE(module->buffers().empty());

  const AddOptions options{2.0, 0.5, -2, kConvention};
  const torch::Tensor positions = torch::tensor({0.5, -1.5, 1e6, 4.0, 5.0});
  for (const auto dtype : {torch::kDouble, torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    const torch::Tensor x = input({2, 5, 7}, dtype);
    EXPECT_TRUE(same_bits(module->forward(x, 3), posenc::add(x, 3, options)));
    EXPECT_TRUE(same_bits(module->forward(x, 0, positions), posenc::add(x, positions, options)));
    EXPECT_TRUE(same_bits(module->forward(x[0], 3), posenc::add(x[0], 3, options)));
  }

  // One element chosen: the gradient of alpha is its encoding, that of x the input scale.
  const torch::Tensor encoding = posenc::encode(5, 7, 3, kConvention, torch::kFloat);
  for (const auto& [row, column] : std::vector<std::pair<int, int>>{{0, 0}, {4, 2}, {2, 5}, {1, 6}}) {
    const torch::Tensor x = input({2, 5, 7}).requires_grad_();
    module->zero_grad();
    module->forward(x, 3)[1][row][column].backward();
    EXPECT_TRUE(same_bits(module->alpha.grad(), encoding[row][column])) << row << ", " << column;
    EXPECT_EQ(x.grad().sum().item<double>(), 2.0);
  }

  {
    const torch::NoGradGuard guard;
    module->alpha.fill_(-0.25);
  }
  const torch::Tensor x = input({2, 5, 7});
  EXPECT_TRUE(same_bits(module->forward(x, 3), posenc::add(x, 3, {2.0, -0.25, -2, kConvention})))
      << "the parameter counts";

  PositionalEncoding seq_first(PositionalEncodingOptions(6).alpha(0.5).learnable_alpha(true).batch_first(false));
  const torch::Tensor turned = input({5, 2, 6});
  EXPECT_TRUE(same_bits(seq_first->forward(turned, 3), posenc::add(turned, 3, {1.0, 0.5, -3})));
}

TEST(PositionalEncodingModule, gradients_reach_x_through_the_module) {
  PositionalEncoding module(PositionalEncodingOptions(6).input_scale(-3.0));
  const torch::Tensor x = input({2, 5, 6}).requires_grad_();
  module(x).sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), torch::full({2, 5, 6}, -3.0)));
}

TEST(PositionalEncodingModule, a_clone_is_deep_and_keeps_every_option) {
  PositionalEncoding module(PositionalEncodingOptions(7)
                                .dropout(0.5)
                                .max_len(20)
                                .input_scale(2.0)
                                .alpha(0.5)
                                .learnable_alpha(true)
                                .convention(kConvention));
  module->eval();
  const auto copy = std::dynamic_pointer_cast<PositionalEncodingImpl>(module->clone());
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(printed(*copy), printed(*module));
  EXPECT_FALSE(copy->is_training());
  const torch::Tensor x = input({2, 5, 7});
  const torch::Tensor before = module(x);
  EXPECT_TRUE(same_bits(copy->forward(x), before));

  ASSERT_EQ(copy->parameters().size(), 1u);
  EXPECT_TRUE(copy->alpha.is_same(copy->parameters()[0])) << "the clone computes with its own parameter";
  EXPECT_FALSE(copy->alpha.is_alias_of(module->alpha));
  {
    const torch::NoGradGuard guard;
    copy->alpha.fill_(3.0);
  }
  EXPECT_TRUE(same_bits(module(x), before));
  EXPECT_TRUE(same_bits(copy->forward(x), posenc::add(x, 0, {2.0, 3.0, -2, kConvention})));

  const auto stateless = std::dynamic_pointer_cast<PositionalEncodingImpl>(PositionalEncoding(7)->clone());
  EXPECT_TRUE(same_bits(stateless->forward(x), posenc::add(x)));
  torch::nn::Sequential model(torch::nn::Linear(7, 7), PositionalEncoding(7));
  const auto model_copy = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(model->clone());
  EXPECT_TRUE(same_bits(model_copy->forward(x), model->forward(x)));
}

TEST(PositionalEncodingModule, is_saved_and_loaded_with_and_without_parameters) {
  const torch::Tensor x = input({2, 5, 6});
  for (const bool learnable : {false, true}) {
    const PositionalEncodingOptions options = PositionalEncodingOptions(6).alpha(0.5).learnable_alpha(learnable);
    torch::nn::Sequential model(torch::nn::Linear(6, 6), PositionalEncoding(options));
    if (learnable) {
      const torch::NoGradGuard guard;
      model[1]->as<PositionalEncoding>()->alpha.fill_(-2.0);
    }
    std::stringstream stream;
    torch::save(model, stream);
    torch::nn::Sequential loaded(torch::nn::Linear(6, 6), PositionalEncoding(options));
    torch::load(loaded, stream);
    EXPECT_TRUE(same_bits(loaded->forward(x), model->forward(x))) << "learnable " << learnable;
    if (learnable) {
      EXPECT_EQ(loaded[1]->as<PositionalEncoding>()->alpha.item<double>(), -2.0);
    }
  }
  PositionalEncoding alone(6);
  std::stringstream stream;
  torch::save(alone, stream);
  PositionalEncoding loaded(6);
  EXPECT_NO_THROW(torch::load(loaded, stream));
  EXPECT_TRUE(same_bits(loaded(x), posenc::add(x)));
}

TEST(PositionalEncodingModule, prints_what_differs_from_the_defaults) {
  using Options = PositionalEncodingOptions;
  EXPECT_EQ(printed(*PositionalEncoding(512)), "posenc::nn::PositionalEncoding(d_model=512)");
  EXPECT_EQ(printed(*PositionalEncoding(Options(512).dropout(0.1).max_len(5000))),
            "posenc::nn::PositionalEncoding(d_model=512, dropout=0.1, max_len=5000)");
  EXPECT_EQ(printed(*PositionalEncoding(Options(7)
                                            .dropout(0.25)
                                            .max_len(0)
                                            .batch_first(false)
                                            .input_scale(-2.0)
                                            .alpha(0.5)
                                            .learnable_alpha(true)
                                            .convention(kConvention))),
            "posenc::nn::PositionalEncoding(d_model=7, dropout=0.25, max_len=0, batch_first=false, input_scale=-2, "
            "alpha=0.5, learnable_alpha=true, base=500, freq_shift=1, position_scale=-0.5, order=split_cos_first, "
            "odd=zero)");
  torch::nn::Sequential model(PositionalEncoding(8), torch::nn::Linear(8, 2));
  EXPECT_NE(printed(*model).find("(0): posenc::nn::PositionalEncoding(d_model=8)\n"), std::string::npos)
      << printed(*model);
}

}  // namespace
}  // namespace posenc::nn
