#include <torch/csrc/autograd/autograd.h>

#include <c10/core/InferenceMode.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "ops_testing.h"

namespace posenc::testing {
namespace {

at::Tensor gradient(const at::Tensor& output, const at::Tensor& input, const at::Tensor& weight,
                    bool create_graph = false) {
  return torch::autograd::grad({output}, {input}, {weight}, /*retain_graph=*/true, create_graph)[0];
}

class Autograd : public OnDevice {
 protected:
  static at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType dtype) {
    return some_tensor(sizes, dtype).requires_grad_();
  }
};
POSENC_INSTANTIATE_ON_DEVICES(Autograd);

TEST_P(Autograd, gradient_of_x_is_the_incoming_one_times_input_scale) {
  for (const at::ScalarType dtype : kDTypes) {
    for (const double input_scale : {1.0, -3.3}) {
      const AddOptions chosen{input_scale, 0.7, -2, {10000.0, 0.0, 1.0, Order::kSplit, Odd::kZero}};
      const at::Tensor x = leaf({2, 5, 7}, dtype);
      const at::Tensor weight = some_tensor({2, 5, 7}, dtype).flip(0);
      const at::Tensor positions = at::arange(5, options(at::kLong));
      for (const at::Tensor& sum : {posenc::add(x, 3, chosen), posenc::add(x, positions, chosen)}) {
        EXPECT_TRUE(sum.requires_grad());
        EXPECT_TRUE(same_bits(gradient(sum, x, weight), weight * input_scale)) << format_of(dtype).name;
      }
      EXPECT_TRUE(same_bits(posenc::add(x, 3, chosen), posenc::add(x.detach(), 3, chosen))) << "the value";
      EXPECT_TRUE(same_bits(posenc::add(x, positions, chosen), posenc::add(x.detach(), positions, chosen)));
    }
  }
}

TEST_P(Autograd, backward_reaches_a_leaf_through_strides_and_other_operators) {
  const at::Tensor x = leaf({4, 3, 6}, at::kDouble);
  const AddOptions chosen{2.0, 1.0, 0, {}};
  at::Tensor loss = (posenc::add(x.permute({1, 0, 2}).slice(2, 0, 6, 2) * 5.0, 1, chosen) * 3.0).sum();
  loss.backward();
  at::Tensor expected = at::zeros_like(x);
  expected.slice(2, 0, 6, 2).fill_(30.0);
  EXPECT_TRUE(same_bits(x.grad(), expected));
}

TEST_P(Autograd, second_order_gradient_of_x_is_that_of_the_composed_definition) {
  const AddOptions chosen{-1.5, 0.5, -2, {}};
  const at::Tensor positions = at::arange(5, options(at::kLong));
  const at::Tensor encoding = posenc::encode(5, 6, 0, {}, options(at::kDouble));
  const at::Tensor direction = some_tensor({2, 5, 6}, at::kDouble).flip(1);
  // f = sum (add(x)^3), so H v = 6 add(x) input_scale^2 v, and the third order 6 input_scale^3 v v.
  const auto orders = [&](const std::function<at::Tensor(const at::Tensor&)>& function) {
    const at::Tensor x = leaf({2, 5, 6}, at::kDouble);
    const at::Tensor cube = function(x).pow(3).sum();
    const at::Tensor first = gradient(cube, x, at::ones_like(cube), /*create_graph=*/true);
    const at::Tensor second = gradient(first, x, direction, /*create_graph=*/true);
    return std::vector<at::Tensor>{first.detach(), second.detach(), gradient(second, x, direction)};
  };
  const auto expected = orders([&](const at::Tensor& x) { return definition(x, encoding, chosen); });
  const auto by_range = orders([&](const at::Tensor& x) { return posenc::add(x, 0, chosen); });
  const auto by_positions = orders([&](const at::Tensor& x) { return posenc::add(x, positions, chosen); });
  for (std::size_t order = 0; order < expected.size(); ++order) {
    EXPECT_TRUE(same_bits(by_range[order], expected[order])) << "order " << order + 1;
    EXPECT_TRUE(same_bits(by_positions[order], expected[order])) << "order " << order + 1;
  }
}

TEST_P(Autograd, the_gradient_by_the_incoming_gradient_is_input_scale) {
  const at::Tensor x = leaf({3, 4}, at::kDouble);
  const at::Tensor weight = leaf({3, 4}, at::kDouble);
  const at::Tensor first = gradient(posenc::add(x, 0, {-2.5, 1.0}), x, weight, /*create_graph=*/true);
  const at::Tensor direction = some_tensor({3, 4}, at::kDouble);
  EXPECT_TRUE(same_bits(gradient(first, weight, direction), direction * -2.5));
}

TEST_P(Autograd, nothing_is_recorded_where_no_gradient_is_needed) {
  const at::Tensor plain = some_tensor({3, 4}, at::kFloat);
  const at::Tensor positions = tensor({0.5, 1.5, 2.5});
  EXPECT_FALSE(posenc::add(plain).requires_grad());
  EXPECT_FALSE(posenc::add(plain, positions).requires_grad());
  EXPECT_FALSE(posenc::encode(positions, 4).requires_grad());
  EXPECT_EQ(count_allocations([&] { posenc::add(plain); }), 1);

  const at::Tensor x = plain.clone().requires_grad_();
  const at::Tensor p = positions.clone().requires_grad_();
  const at::NoGradGuard guard;
  for (const at::Tensor& result : {posenc::add(x), posenc::add(x, p), posenc::encode(p, 4)}) {
    EXPECT_FALSE(result.requires_grad());
    EXPECT_EQ(result.grad_fn(), nullptr);
  }
  EXPECT_TRUE(same_bits(posenc::add(x), posenc::add(plain)));
  EXPECT_EQ(count_allocations([&] { posenc::add(x); }), 1) << "one kernel, one result";
  at::Tensor written = x;
  posenc::add_(written);
  EXPECT_TRUE(same_bits(x, posenc::add(plain))) << "a leaf may be written under no_grad";
}

TEST_P(Autograd, integer_positions_take_no_gradient_and_stop_none) {
  const at::Tensor x = leaf({2, 3, 4}, at::kDouble);
  const at::Tensor weight = some_tensor({2, 3, 4}, at::kDouble);
  for (const at::ScalarType type : {at::kLong, at::kInt, at::kByte}) {
    const at::Tensor sum = posenc::add(x, at::arange(3, options(type)));
    EXPECT_TRUE(same_bits(gradient(sum, x, weight), weight)) << type;
  }
}

// ---- Gradients of positions ----

/// What a central difference of a sum of weighted encodings can be off by: h^2 / 6 of the third derivative, and the
/// error of two encodings (4e-16 each, and one rounding) over 2 h; each frequency is at most |position_scale|.
double difference_error(const Encoding& encoding, double step, double sum_of_weights) {
  const double frequency = std::max(1.0, std::fabs(encoding.convention.position_scale));
  return sum_of_weights * (step * step / 6.0 * frequency * frequency * frequency + 2.0 * 6e-16 / (2.0 * step));
}

TEST_P(Autograd, gradient_of_positions_is_the_central_difference) {
  constexpr double kStep = 1e-5;
  const std::vector<double> values = {0.0, 0.5, -3.25, 41.7, 1000.0};
  for (const Encoding& encoding : encodings()) {
    const at::Tensor positions = tensor(values).requires_grad_();
    const std::int64_t count = static_cast<std::int64_t>(values.size());
    const at::Tensor weight = some_tensor({count, encoding.d_model}, at::kDouble);
    const auto encode = [&](const at::Tensor& p) {
      return posenc::encode(p, encoding.d_model, encoding.convention, at::kDouble);
    };
    const at::Tensor result = gradient(encode(positions), positions, weight).cpu();
    const at::Tensor above = positions.detach() + kStep;
    const at::Tensor below = positions.detach() - kStep;
    const at::Tensor difference =
        ((encode(above) - encode(below)) * weight / (above - below).unsqueeze(1)).sum(1).cpu();
    for (std::int64_t i = 0; i < count; ++i) {
      const double bound = difference_error(encoding, kStep, weight[i].abs().sum().item<double>());
      const double error = std::fabs(result[i].item<double>() - difference[i].item<double>());
      EXPECT_LE(error, bound) << encoding.name() << ", position " << values[static_cast<std::size_t>(i)] << ": got "
                              << result[i].item<double>() << ", central difference " << difference[i].item<double>();
    }
  }
}

TEST_P(Autograd, every_order_of_the_gradient_of_positions_is_the_central_difference_of_the_one_before) {
  constexpr double kStep = 1e-5;
  for (const Encoding& encoding : encodings()) {
    const at::Tensor weight = some_tensor({3, encoding.d_model}, at::kDouble);
    const auto derivative = [&](const at::Tensor& start, int order) {
      const at::Tensor p = start.detach().clone().requires_grad_();
      at::Tensor value = (posenc::encode(p, encoding.d_model, encoding.convention, at::kDouble) * weight).sum(1);
      for (int i = 0; i < order; ++i) value = gradient(value, p, at::ones_like(value), /*create_graph=*/true);
      return value.detach().cpu();
    };
    const at::Tensor p = tensor({0.5, -3.25, 41.7});
    const at::Tensor above = p + kStep;
    const at::Tensor below = p - kStep;
    for (const int order : {2, 3}) {
      const at::Tensor result = derivative(p, order);
      const at::Tensor difference =
          (derivative(above, order - 1) - derivative(below, order - 1)) / (above - below).cpu();
      for (std::int64_t i = 0; i < 3; ++i) {
        // A sum of d_model terms rounds d_model times more.
        const double bound = difference_error(encoding, kStep, weight[i].abs().sum().item<double>()) *
                             static_cast<double>(encoding.d_model + 1);
        EXPECT_LE(std::fabs(result[i].item<double>() - difference[i].item<double>()), bound)
            << encoding.name() << ", order " << order << ", element " << i << ": got " << result[i].item<double>()
            << ", central difference " << difference[i].item<double>();
      }
    }
  }
}

TEST_P(Autograd, gradient_of_positions_keeps_their_dtype_and_shape) {
  for (const at::ScalarType type : kDTypes) {
    for (const at::ScalarType dtype : kDTypes) {
      const at::Tensor positions = some_tensor({2, 3}, type).requires_grad_();
      const at::Tensor encoding = posenc::encode(positions, 6, {}, dtype);
      EXPECT_EQ(encoding.scalar_type(), dtype);
      const at::Tensor result = gradient(encoding, positions, at::ones_like(encoding));
      EXPECT_EQ(result.scalar_type(), type);
      EXPECT_EQ(result.sizes(), positions.sizes());
      // Six terms below 1: the encoding, the factor and their product are rounded, then five sums below 6; at last the
      // result is rounded to the dtype of the positions.
      const at::Tensor wide = positions.detach().to(at::kDouble).requires_grad_();
      const at::Tensor exact = posenc::encode(wide, 6, {}, at::kDouble);
      const at::Tensor expected = gradient(exact, wide, at::ones_like(exact));
      const bool is_wide = type == at::kDouble || dtype == at::kDouble;
      const double rounding = std::ldexp(6.0 * 1.5 + 5.0 * 3.0, is_wide ? -53 : -24);
      for (std::int64_t i = 0; i < 6; ++i) {
        const double value = expected.flatten()[i].item<double>();
        const double bound = rounding + static_cast<double>(half_ulp(format_of(type), std::fabs(value) + rounding));
        EXPECT_LE(std::fabs(result.flatten()[i].to(at::kDouble).item<double>() - value), bound)
            << "positions " << type << ", encoding " << dtype << ", element " << i;
      }
    }
  }
}

TEST_P(Autograd, add_passes_gradients_to_x_and_to_broadcast_positions) {
  const AddOptions chosen{2.0, -0.5, -2, {10000.0, 0.0, 1.0, Order::kInterleavedCosFirst}};
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{5}, {2, 5}, {2, 1}, {1, 5}, {}}) {
    const at::Tensor x = leaf({2, 5, 6}, at::kDouble);
    const at::Tensor positions = (some_tensor(shape, at::kDouble) + 3.0).requires_grad_();
    const at::Tensor weight = some_tensor({2, 5, 6}, at::kDouble).flip(0);
    const at::Tensor sum = posenc::add(x, positions, chosen);
    EXPECT_TRUE(same_bits(sum, posenc::add(x.detach(), positions.detach(), chosen)));
    EXPECT_TRUE(same_bits(gradient(sum, x, weight), weight * 2.0));

    const at::Tensor apart = positions.detach().clone().requires_grad_();
    const at::Tensor composed =
        definition(x.detach(), posenc::encode(apart, 6, chosen.convention, at::kDouble), chosen);
    const at::Tensor result = gradient(sum, positions, weight);
    EXPECT_EQ(result.sizes(), positions.sizes());
    EXPECT_TRUE(same_bits(result, gradient(composed, apart, weight)));
  }
}

// ---- Forms that write ----

TEST_P(Autograd, add_in_place_on_an_intermediate_result_passes_the_gradient_on) {
  const AddOptions chosen{-3.3, 0.7, -2, {}};
  for (const at::ScalarType dtype : kDTypes) {
    const at::Tensor x = leaf({2, 5, 6}, dtype);
    const at::Tensor weight = some_tensor({2, 5, 6}, dtype) + 20.0;  // nowhere zero: copies drop the sign of zeros
    const at::Tensor positions = at::arange(5, options(at::kLong));
    at::Tensor by_range = x * 1.0;
    posenc::add_(by_range, 0, chosen);
    at::Tensor by_positions = x * 1.0;
    posenc::add_(by_positions, positions, chosen);
    for (const at::Tensor& sum : {by_range, by_positions}) {
      EXPECT_TRUE(same_bits(sum, posenc::add(x.detach(), 0, chosen))) << format_of(dtype).name;
      EXPECT_EQ(sum._version(), 1);
      EXPECT_TRUE(same_bits(gradient(sum, x, weight), gradient(posenc::add(x, 0, chosen), x, weight)))
          << format_of(dtype).name;
    }
  }
}

TEST_P(Autograd, add_in_place_makes_x_depend_on_differentiable_positions) {
  const at::Tensor positions = tensor({0.5, 1.5, 2.5}).requires_grad_();
  at::Tensor x = some_tensor({3, 4}, at::kDouble);
  const at::Tensor expected = posenc::add(x, positions);
  posenc::add_(x, positions);
  EXPECT_TRUE(x.requires_grad());
  EXPECT_TRUE(same_bits(x, expected));
  const at::Tensor weight = some_tensor({3, 4}, at::kDouble);
  EXPECT_TRUE(same_bits(gradient(x, positions, weight), gradient(expected, positions, weight)));
}

TEST_P(Autograd, add_in_place_refuses_a_leaf_and_writes_nothing) {
  at::Tensor x = leaf({3, 4}, at::kFloat);
  const at::Tensor before = x.detach().clone();
  const at::Tensor positions = at::arange(3, options(at::kLong));
  const std::string text = "add_: x must not be a leaf that requires grad, but got one. Use add, or torch.no_grad().";
  EXPECT_TRUE(throws<c10::Error>([&] { posenc::add_(x); }, text));
  EXPECT_TRUE(throws<c10::Error>([&] { posenc::add_(x, positions); }, text));
  at::Tensor view = x.view({12}).view({3, 4});
  EXPECT_ANY_THROW(posenc::add_(view));
  EXPECT_TRUE(same_bits(x, before));
  EXPECT_EQ(x._version(), 0);
}

TEST_P(Autograd, out_forms_refuse_what_requires_grad_and_write_nothing) {
  const at::Tensor plain = some_tensor({3, 4}, at::kFloat);
  const at::Tensor x = plain.clone().requires_grad_();
  const at::Tensor counting = at::arange(3, options(at::kLong));
  const at::Tensor positions = tensor({0.0, 1.0, 2.0}).requires_grad_();
  at::Tensor out = at::full({3, 4}, 7.0, options(at::kFloat));
  at::Tensor leaf_out = at::full({3, 4}, 7.0, options(at::kFloat)).requires_grad_();
  const std::int64_t version = out._version();
  const auto text = [](const std::string& op, const std::string& argument) {
    return op + ": " + argument +
           " must not require grad in a form that writes into out, but got requires_grad=True. "
           "Use the form that returns its result, or torch.no_grad().";
  };
  using Refused = c10::NotImplementedError;
  EXPECT_TRUE(throws<Refused>([&] { posenc::add_out(out, x); }, text("add", "x")));
  EXPECT_TRUE(throws<Refused>([&] { posenc::add_out(out, x, counting); }, text("add", "x")));
  EXPECT_TRUE(throws<Refused>([&] { posenc::add_out(out, plain, positions); }, text("add", "positions")));
  EXPECT_TRUE(throws<Refused>([&] { posenc::add_out(leaf_out, plain); }, text("add", "out")));
  EXPECT_TRUE(throws<Refused>([&] { posenc::add_out(leaf_out, plain, counting); }, text("add", "out")));
  EXPECT_TRUE(throws<Refused>([&] { posenc::encode_out(out, positions, 4); }, text("encode", "positions")));
  EXPECT_TRUE(throws<Refused>([&] { posenc::encode_out(leaf_out, 3, 4); }, text("encode", "out")));
  EXPECT_TRUE(throws<Refused>([&] { posenc::encode_out(leaf_out, counting, 4); }, text("encode", "out")));
  EXPECT_TRUE(out.eq(7.0).all().item<bool>());
  EXPECT_TRUE(leaf_out.eq(7.0).all().item<bool>());
  EXPECT_EQ(out._version(), version);

  const at::NoGradGuard guard;
  EXPECT_TRUE(same_bits(posenc::add_out(out, x), posenc::add(plain)));
  EXPECT_TRUE(same_bits(posenc::add_out(out, plain, positions), posenc::add(plain)));
  EXPECT_TRUE(same_bits(posenc::encode_out(out, positions, 4), posenc::encode(3, 4, 0, {}, options(at::kFloat))));
  EXPECT_TRUE(same_bits(posenc::add_out(leaf_out, plain), posenc::add(plain)));
}

TEST_P(Autograd, every_form_that_writes_raises_the_version_once_and_no_other_does) {
  const at::Tensor x = some_tensor({3, 4}, at::kFloat);
  const at::Tensor positions = at::arange(3, options(at::kLong));
  at::Tensor out = at::empty_like(x);
  const auto rises_by_one = [&](const std::function<void()>& call, const char* name) {
    for (const bool with_grad : {true, false}) {
      const at::AutoGradMode mode(with_grad);
      const std::int64_t version = out._version();
      const std::int64_t input_version = x._version() + positions._version();
      call();
      EXPECT_EQ(out._version(), version + 1) << name;
      EXPECT_EQ(x._version() + positions._version(), input_version) << name;
    }
  };
  rises_by_one([&] { posenc::encode_out(out, 3, 4); }, "encode_out");
  rises_by_one([&] { posenc::encode_out(out, positions, 4); }, "encode_out of positions");
  rises_by_one([&] { posenc::add_out(out, x); }, "add_out");
  rises_by_one([&] { posenc::add_out(out, x, positions); }, "add_out of positions");
  rises_by_one([&] { posenc::add_(out); }, "add_");
  rises_by_one([&] { posenc::add_(out, positions); }, "add_ of positions");

  const std::int64_t version = out._version();
  posenc::add(out);
  posenc::add(out, positions);
  EXPECT_EQ(out._version(), version);
  at::Tensor view = out.view({12}).view({3, 4});
  posenc::add_(view);
  EXPECT_EQ(out._version(), version + 1) << "a view shares the counter";
}

TEST_P(Autograd, a_backward_pass_notices_that_its_input_was_written) {
  const at::Tensor positions = at::arange(3, options(at::kLong));
  const std::vector<std::function<void(at::Tensor&)>> writers = {
      [](at::Tensor& y) { posenc::add_(y); },
      [&](at::Tensor& y) { posenc::add_(y, positions); },
      [&](at::Tensor& y) { posenc::add_out(y, at::zeros_like(y)); },
      [&](at::Tensor& y) { posenc::add_out(y, at::zeros_like(y), positions); },
      [](at::Tensor& y) { posenc::encode_out(y, 3, 4); },
      [&](at::Tensor& y) { posenc::encode_out(y, positions, 4); },
  };
  for (std::size_t i = 0; i < writers.size(); ++i) {
    const at::Tensor x = leaf({3, 4}, at::kFloat);
    at::Tensor saved = some_tensor({3, 4}, at::kFloat);
    const at::Tensor loss = (x * saved).sum();  // saves `saved` for the gradient of x
    writers[i](saved);
    EXPECT_ANY_THROW(loss.backward()) << "writer " << i;
  }
  at::Tensor written = tensor({0.5, 1.5, 2.5}).requires_grad_();
  const at::Tensor encoding = posenc::encode(written, 4, {}, at::kDouble);
  {
    const at::NoGradGuard guard;
    written.add_(1.0);
  }
  EXPECT_ANY_THROW(encoding.sum().backward()) << "encode saves its positions";
}

TEST_P(Autograd, inference_mode_gives_the_same_bits_and_inference_tensors) {
  const at::Tensor x = some_tensor({3, 4}, at::kFloat);
  const at::Tensor parameter = x.clone().requires_grad_();
  const at::Tensor positions = tensor({0.5, 1.5, 2.5});
  const at::Tensor sum = posenc::add(x);
  const at::Tensor at_positions = posenc::add(x, positions);
  const at::Tensor encoding = posenc::encode(positions, 4);
  at::Tensor normal = x.clone();

  const c10::InferenceMode guard;
  for (const at::Tensor& result : {posenc::add(x), posenc::add(parameter)}) {
    EXPECT_TRUE(result.is_inference());
    EXPECT_FALSE(result.requires_grad());
    EXPECT_TRUE(same_bits(result, sum));
  }
  EXPECT_TRUE(same_bits(posenc::add(parameter, positions), at_positions));
  EXPECT_TRUE(same_bits(posenc::encode(positions, 4), encoding));
  EXPECT_TRUE(posenc::encode(3, 4, 0, {}, options(at::kFloat)).is_inference());
  at::Tensor fresh = x.clone();
  EXPECT_TRUE(fresh.is_inference());
  posenc::add_(fresh);
  EXPECT_TRUE(same_bits(fresh, sum));
  posenc::add_out(fresh, x, positions);
  EXPECT_TRUE(same_bits(fresh, at_positions));
  posenc::encode_out(fresh, positions, 4);
  EXPECT_TRUE(same_bits(fresh, encoding));
  posenc::add_(normal);
  EXPECT_TRUE(same_bits(normal, sum));
  EXPECT_EQ(normal._version(), 1) << "a normal tensor written in inference mode still counts";
}

}  // namespace
}  // namespace posenc::testing
