#include <posenc/ops/add_dropout.h>

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "ops_testing.h"

namespace posenc::testing {
namespace {

const AddOptions kOptions{-3.3, 0.7, 0, {100.0, 0.25, -0.5, Order::kSplit, Odd::kZero}};

class AddDropout : public OnDevice {
 protected:
  static at::Tensor input(at::ScalarType dtype = at::kFloat) {
    return at::linspace(-2.0, 3.0, 6 * 40 * 37, options(at::kDouble)).view({6, 40, 37}).to(dtype);
  }
};

POSENC_INSTANTIATE_ON_DEVICES(AddDropout);

TEST_P(AddDropout, kept_elements_are_those_of_add_by_1_over_1_minus_p_rounded_once_more) {
  for (const at::ScalarType dtype : kDTypes) {
    const at::Tensor x = input(dtype);
    for (const bool at_positions : {false, true}) {
      const at::Tensor positions = at::arange(6, options(at::kLong)).view({6, 1}) + 3;
      const at::Tensor sum = posenc::add(x, 3, kOptions);
      const auto [out, rng_state] =
          at_positions ? posenc::add_dropout(x, 0.25, positions, kOptions) : posenc::add_dropout(x, 0.25, 3, kOptions);
      const at::Tensor kept = out.ne(0);
      const at::Tensor scaled = (sum.to(compute_dtype(dtype)) * (1.0 / 0.75)).to(dtype);
      EXPECT_TRUE(same_bits(out, at::where(kept, scaled, at::zeros_like(sum)))) << dtype;
      const double share = kept.to(at::kDouble).mean().item<double>();
      EXPECT_NEAR(share, 0.75, 5.0 * std::sqrt(0.25 * 0.75 / 8880.0)) << dtype << ": five standard deviations";
      EXPECT_EQ(rng_state.scalar_type(), at::kLong);
      EXPECT_EQ(rng_state.numel(), 2);
      EXPECT_EQ(rng_state.device().type(), GetParam());
    }
  }
}

TEST_P(AddDropout, p_of_0_is_add_and_p_of_1_is_zero_and_neither_draws) {
  const at::Tensor x = input();
  at::manual_seed(5);
  const at::Tensor expected = std::get<0>(posenc::add_dropout(x, 0.5));
  at::manual_seed(5);
  EXPECT_TRUE(same_bits(std::get<0>(posenc::add_dropout(x, 0.0, 3, kOptions)), posenc::add(x, 3, kOptions)));
  EXPECT_TRUE(same_bits(std::get<0>(posenc::add_dropout(x, 1.0, 3, kOptions)), at::zeros_like(x)));
  EXPECT_EQ(std::get<0>(posenc::add_dropout(x.slice(0, 0, 0), 0.5)).numel(), 0);
  EXPECT_TRUE(same_bits(std::get<0>(posenc::add_dropout(x, 0.5)), expected)) << "as right after manual_seed";
}

TEST_P(AddDropout, a_generator_of_its_own_gives_its_own_masks) {
  const at::Tensor x = input();
  const auto generator = [&] {
    at::Generator result = at::globalContext().defaultGenerator(x.device()).clone();
    result.set_current_seed(11);
    return result;
  };
  at::Generator first = generator();
  at::Generator second = generator();
  const at::Tensor a = std::get<0>(posenc::add_dropout(x, 0.5, 0, {}, first));
  const at::Tensor b = std::get<0>(posenc::add_dropout(x, 0.5, 0, {}, first));
  EXPECT_TRUE(same_bits(std::get<0>(posenc::add_dropout(x, 0.5, 0, {}, second)), a));
  EXPECT_TRUE(same_bits(std::get<0>(posenc::add_dropout(x, 0.5, at::arange(40, options(at::kLong)), {}, second)), b));
  EXPECT_FALSE(a.equal(b));
}

TEST_P(AddDropout, the_gradient_has_the_mask_of_the_result) {
  for (const at::ScalarType dtype : kDTypes) {
    const at::Tensor x = input(dtype).requires_grad_();
    const at::Tensor out = std::get<0>(posenc::add_dropout(x, 0.25, 3, kOptions));
    const at::Tensor weight = input(dtype).flip(0) + 4.0;
    const at::Tensor gradient = torch::autograd::grad({out}, {x}, {weight})[0];
    EXPECT_TRUE(gradient.ne(0).equal(out.ne(0))) << dtype;
    const at::Tensor scaled = (weight.to(compute_dtype(dtype)) * (-3.3 / 0.75)).to(dtype);
    EXPECT_TRUE(same_bits(gradient, at::where(out.ne(0), scaled, at::zeros_like(scaled)))) << dtype;
  }
}

TEST_P(AddDropout, errors_name_rule_and_value) {
  const at::Tensor x = input();
  at::manual_seed(5);
  const at::Tensor expected = std::get<0>(posenc::add_dropout(x, 0.5));
  at::manual_seed(5);
  EXPECT_TRUE(throws<c10::ValueError>([&] { posenc::add_dropout(x, 1.5); },
                                      "add_dropout: p must be between 0 and 1, but got 1.5."));
  EXPECT_TRUE(throws<c10::ValueError>([&] { posenc::add_dropout(x, std::nan("")); },
                                      "add_dropout: p must be between 0 and 1, but got nan."));
  EXPECT_TRUE(throws<c10::ValueError>([&] { posenc::add_dropout(x.select(1, 0).select(0, 0), 0.5); },
                                      "add_dropout: x must have at least 2 dimensions (..., seq_len, d_model), but got "
                                      "shape [37]. Use x.unsqueeze(0) for a single position."));
  EXPECT_TRUE(same_bits(std::get<0>(posenc::add_dropout(x, 0.5)), expected)) << "nothing was drawn";
}

TEST(AddDropoutCpu, threads_do_not_change_a_mask) {
  const at::Tensor x = at::ones({3, 700, 64});
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> results;
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    at::manual_seed(7);
    at::Tensor needy = x.clone().requires_grad_();
    const at::Tensor out = std::get<0>(posenc::add_dropout(needy, 0.5));
    out.sum().backward();
    results.push_back(at::stack({out.detach(), needy.grad()}));
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(same_bits(results[1], results[0]));
  EXPECT_TRUE(same_bits(results[2], results[0]));
}

}  // namespace
}  // namespace posenc::testing
