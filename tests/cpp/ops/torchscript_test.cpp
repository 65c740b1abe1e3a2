#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/jit/serialization/import.h>

#include <cstddef>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <posenc/ops/library.h>

#include "ops_testing.h"

namespace posenc::testing {
namespace {

// What C++ calls `torch` in a script has no `ops`; these two add it, so that scripts read as they do in Python.

struct Ops : torch::jit::SugaredValue {
  std::string kind() const override { return "torch.ops"; }
  std::shared_ptr<torch::jit::SugaredValue> attr(const torch::jit::SourceRange&, torch::jit::GraphFunction&,
                                                 const std::string& library) override {
    return std::make_shared<torch::jit::BuiltinModule>(library);
  }
};

struct Torch : torch::jit::BuiltinModule {
  Torch() : BuiltinModule("aten") {}
  std::shared_ptr<torch::jit::SugaredValue> attr(const torch::jit::SourceRange& place,
                                                 torch::jit::GraphFunction& function,
                                                 const std::string& field) override {
    if (field == "ops") return std::make_shared<Ops>();
    return BuiltinModule::attr(place, function, field);
  }
};

struct TorchResolver : torch::jit::Resolver {
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(const std::string& name, torch::jit::GraphFunction&,
                                                         const torch::jit::SourceRange&) override {
    return name == "torch" ? std::make_shared<Torch>() : nullptr;
  }
};

torch::jit::Module make_module(const std::string& source) {
  torch::jit::Module module("Script");
  module.define(source, std::make_shared<TorchResolver>());
  return module;
}

std::shared_ptr<torch::jit::CompilationUnit> compile(const std::string& source) {
  auto unit = std::make_shared<torch::jit::CompilationUnit>();
  unit->define(std::nullopt, source, std::make_shared<TorchResolver>(), nullptr);
  return unit;
}

/// `module` saved to memory and loaded again.
torch::jit::Module reload(const torch::jit::Module& module) {
  std::stringstream stream;
  module.save(stream);
  return torch::jit::load(stream);
}

constexpr const char* kForward = R"SCRIPT(
def forward(self, x, positions, offset: int):
    by_range = torch.ops.posenc.add(x, offset, input_scale=2.5, alpha=-0.3, order="split", odd="zero")
    by_positions = torch.ops.posenc.add(x, positions, input_scale=2.5, alpha=-0.3, freq_shift=1.0)
    table = torch.ops.posenc.encode(x.size(-2), x.size(-1), offset, base=500.0)
    at_positions = torch.ops.posenc.encode(positions, x.size(-1), position_scale=-1.0, order="interleaved_cos_first")
    return by_range, by_positions, table, at_positions
)SCRIPT";

TEST(TorchScript, a_saved_and_loaded_module_gives_the_bits_of_the_typed_functions) {
  posenc::register_ops();
  const torch::jit::Module module = make_module(kForward);
  const torch::jit::Module loaded = reload(module);
  for (const torch::jit::Module& script : {module, loaded}) {
    for (const at::ScalarType dtype : kDTypes) {
      for (const std::int64_t offset : {0, -7, 1000003}) {
        torch::jit::Module callable = script;
        const at::Tensor x = some_tensor({2, 5, 7}, dtype);
        const at::Tensor positions = at::arange(5, at::kDouble) * 0.37;
        const auto results = callable.forward({x, positions, offset}).toTuple()->elements().vec();
        const Convention split{10000.0, 0.0, 1.0, Order::kSplit, Odd::kZero};
        EXPECT_TRUE(same_bits(results[0].toTensor(), posenc::add(x, offset, {2.5, -0.3, -2, split})));
        EXPECT_TRUE(same_bits(results[1].toTensor(), posenc::add(x, positions, {2.5, -0.3, -2, {10000.0, 1.0}})));
        EXPECT_TRUE(same_bits(results[2].toTensor(), posenc::encode(5, 7, offset, {500.0})));
        EXPECT_TRUE(same_bits(results[3].toTensor(),
                              posenc::encode(positions, 7, {10000.0, 0.0, -1.0, Order::kInterleavedCosFirst})));
      }
    }
  }
}

TEST(TorchScript, forms_that_write_write_into_their_argument) {
  const torch::jit::Module module = make_module(R"SCRIPT(
def forward(self, x, out, positions, offset: int):
    torch.ops.posenc.add_(x, offset, alpha=0.5)
    torch.ops.posenc.add_(x, positions)
    torch.ops.posenc.add(x, offset, input_scale=2.0, out=out)
    return out

def encode(self, out, positions):
    torch.ops.posenc.encode(positions, out.size(-1), out=out)
    return out
)SCRIPT");
  torch::jit::Module loaded = reload(module);
  const at::Tensor start = some_tensor({5, 6}, at::kFloat);
  const at::Tensor positions = at::arange(5, at::kLong);
  const at::Tensor x = start.clone();
  const at::Tensor out = at::empty({5, 6});
  loaded.forward({x, out, positions, std::int64_t{3}});
  const at::Tensor expected = posenc::add(posenc::add(start, 3, {1.0, 0.5}), positions);
  EXPECT_TRUE(same_bits(x, expected));
  EXPECT_TRUE(same_bits(out, posenc::add(expected, 3, {2.0})));
  loaded.get_method("encode")({out, positions});
  EXPECT_TRUE(same_bits(out, posenc::encode(positions, 6)));
}

TEST(TorchScript, a_tensor_of_one_element_means_positions_and_not_a_length_or_an_offset) {
  const auto unit = compile(R"SCRIPT(
def encode(positions):
    return torch.ops.posenc.encode(positions, 6)

def add(x, positions):
    return torch.ops.posenc.add(x, positions)
)SCRIPT");
  const at::Tensor three = at::full({1}, 3, at::kLong);
  EXPECT_TRUE(same_bits(unit->run_method("encode", three).toTensor(), posenc::encode(three, 6)));
  const at::Tensor x = some_tensor({4, 6}, at::kFloat);
  EXPECT_TRUE(same_bits(unit->run_method("add", x, three).toTensor(), posenc::add(x, three)));
  EXPECT_FALSE(same_bits(posenc::add(x, three), posenc::add(x, 3))) << "the case tells the two apart";
}

TEST(TorchScript, overloads_on_positions_are_tried_before_those_on_a_range) {
  posenc::register_ops();
  for (const char* name : {"posenc::encode", "posenc::add", "posenc::add_"}) {
    std::ptrdiff_t positions = -1;
    std::ptrdiff_t range = -1;
    const auto operators = torch::jit::getAllSortedOperatorsFor(c10::Symbol::fromQualString(name));
    for (std::size_t i = 0; i < operators.size(); ++i) {
      if (operators[i]->schema().overload_name() == "positions") positions = static_cast<std::ptrdiff_t>(i);
      if (operators[i]->schema().overload_name().empty()) range = static_cast<std::ptrdiff_t>(i);
    }
    EXPECT_GE(positions, 0) << name;
    EXPECT_LT(positions, range) << name << ": a tensor of one element would pass as a number";
  }
}

TEST(TorchScript, gradients_pass_through_a_loaded_module) {
  const torch::jit::Module module = make_module(kForward);
  torch::jit::Module loaded = reload(module);
  const at::Tensor x = some_tensor({2, 5, 7}, at::kDouble).requires_grad_();
  const at::Tensor positions = (at::arange(5, at::kDouble) * 0.37).requires_grad_();
  for (int run = 0; run < 3; ++run) {  // the executor profiles first, then optimises
    x.mutable_grad() = at::Tensor();
    positions.mutable_grad() = at::Tensor();
    const auto results = loaded.forward({x, positions, 3}).toTuple()->elements().vec();
    (results[0].toTensor().sum() + results[1].toTensor().sum()).backward();
    EXPECT_TRUE(same_bits(x.grad(), at::full({2, 5, 7}, 5.0, at::kDouble))) << "run " << run;

    const at::Tensor apart = positions.detach().clone().requires_grad_();
    posenc::add(x.detach(), apart, {2.5, -0.3, -2, {10000.0, 1.0}}).sum().backward();
    EXPECT_TRUE(same_bits(positions.grad(), apart.grad())) << "run " << run;
  }
}

TEST(TorchScript, errors_keep_their_text) {
  const auto unit = compile(R"SCRIPT(
def add(x, order: str, base: float):
    return torch.ops.posenc.add(x, order=order, base=base)
)SCRIPT");
  const auto message = [&](const at::Tensor& x, const char* order, double base) -> std::string {
    try {
      unit->run_method("add", x, std::string(order), base);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const at::Tensor x = some_tensor({4, 6}, at::kFloat);
  const auto contains = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << text;
  };
  EXPECT_TRUE(contains(message(x, "split", -1.0), "add: base must be finite and greater than 0, but got -1."));
  EXPECT_TRUE(contains(message(x, "splat", 100.0),
                       "add: order must be \"interleaved\", \"interleaved_cos_first\", \"split\" or "
                       "\"split_cos_first\", but got \"splat\"."));
  EXPECT_TRUE(contains(message(x.to(at::kLong), "split", 100.0),
                       "add: x must be float64, float32, bfloat16 or float16, but got int64."));
}

}  // namespace
}  // namespace posenc::testing
