#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <posenc/ops/add_dropout.h>

#include "ops_testing.h"

/// A device without a kernel of ours gets the CPU's result, copied there. The device is torch's PrivateUse1 with the
/// least that a backend needs: host memory that only the functions below may touch, views, copies, and torch's own CPU
/// fallback for every other operator.

namespace posenc::testing {
namespace {

constexpr at::DeviceType kType = at::kPrivateUse1;
const at::Device kDevice(kType, 0);

class DeviceMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* memory = std::malloc(bytes == 0 ? 1 : bytes);
    return {memory, memory, &std::free, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

struct DeviceGuard final : c10::impl::NoOpDeviceGuardImpl<kType> {
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, DeviceGuard);

struct DeviceHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

/// Makes the device torch's current accelerator, whose streams the autograd engine asks for. A torch built with CUDA
/// would ask CUDA instead, also on a machine without a driver.
void make_accelerator() {
  static DeviceHooks hooks;
  if (c10::is_privateuse1_backend_registered()) return;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::register_privateuse1_backend("device_without_kernels");
}

DeviceMemory device_memory;
int num_copies_to_device = 0;

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &device_memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      sizes, strides, &device_memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

at::Tensor as_host_tensor(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions(tensor.scalar_type()));
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool) {
  if (target.device() == kDevice && source.is_cpu()) ++num_copies_to_device;
  const at::NoGradGuard guard;
  as_host_tensor(target).copy_(as_host_tensor(source));
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  if (target.sizes() != source.sizes()) {
    const at::Tensor fitting = at::empty(source.sizes(), target.options());
    target.unsafeGetTensorImpl()->set_storage_keep_dtype(fitting.storage());
    target.unsafeGetTensorImpl()->set_sizes_and_strides(fitting.sizes(), fitting.strides());
  }
  return copy_from(source, target, false);
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

/// On the device with the CPU's bits.
::testing::AssertionResult same_on_device(const at::Tensor& result, const at::Tensor& expected) {
  if (result.device() != kDevice) return ::testing::AssertionFailure() << "a result on " << result.device();
  return same_bits(result.detach().cpu(), expected.detach());
}

const Convention kConvention{10000.0, 1.0, -0.5, Order::kSplit, Odd::kZero};
const AddOptions kOptions{-3.3, 0.7, -2, kConvention};

TEST(Fallback, encode_gives_the_bits_of_the_cpu_on_the_device) {
  for (const at::ScalarType dtype : kDTypes) {
    const auto options = at::TensorOptions().dtype(dtype);
    const int copies = num_copies_to_device;
    const at::Tensor result = posenc::encode(9, 7, 100, kConvention, options.device(kDevice));
    EXPECT_EQ(result.scalar_type(), dtype);
    EXPECT_TRUE(same_on_device(result, posenc::encode(9, 7, 100, kConvention, options)));
    EXPECT_EQ(num_copies_to_device, copies + 1) << "one copy of the finished result";
  }
  EXPECT_TRUE(same_on_device(posenc::encode(0, 4, 0, {}, at::TensorOptions().device(kDevice)), posenc::encode(0, 4)));
}

TEST(Fallback, encode_of_positions_stays_on_their_device) {
  const at::Tensor grid = at::arange(-6, 6, at::kLong).view({3, 4});
  for (const at::ScalarType dtype : kDTypes) {
    for (const at::ScalarType type : {at::kLong, at::kInt, at::kDouble, at::kBFloat16}) {
      const at::Tensor host = grid.to(type);
      const at::Tensor device = host.to(kDevice);
      EXPECT_TRUE(
          same_on_device(posenc::encode(device, 7, kConvention, dtype), posenc::encode(host, 7, kConvention, dtype)));
      EXPECT_TRUE(same_on_device(posenc::encode(device.t(), 7, kConvention, dtype),
                                 posenc::encode(host.t(), 7, kConvention, dtype)));
    }
  }
}

TEST(Fallback, out_forms_of_encode_write_into_memory_of_the_device_at_any_strides) {
  const at::Tensor positions = at::arange(5, at::kLong);
  for (const at::ScalarType dtype : kDTypes) {
    const at::Tensor expected = posenc::encode(5, 7, 0, kConvention, at::TensorOptions().dtype(dtype));
    const at::Tensor memory = at::zeros({7, 10}, at::TensorOptions().dtype(dtype)).to(kDevice);
    at::Tensor out = memory.slice(1, 0, 10, 2).t();
    EXPECT_EQ(&posenc::encode_out(out, 5, 7, 0, kConvention), &out);
    EXPECT_TRUE(same_on_device(out, expected));
    EXPECT_TRUE(memory.cpu().slice(1, 1, 10, 2).eq(0).all().item<bool>());
    out.zero_();
    EXPECT_EQ(&posenc::encode_out(out, positions.to(kDevice), 7, kConvention), &out);
    EXPECT_TRUE(same_on_device(out, expected));
  }
}

TEST(Fallback, every_form_of_add_gives_the_bits_of_the_cpu) {
  const at::Tensor positions = at::arange(-2, 3, at::kLong);
  const at::Tensor real_positions = at::arange(10, at::kDouble).view({2, 5}) * 0.37;
  for (const at::ScalarType dtype : kDTypes) {
    const at::Tensor base = some_tensor({5, 2, 7}, dtype);
    for (const at::Tensor& host : {base.permute({1, 0, 2}), base.permute({1, 0, 2}).contiguous()}) {
      const at::Tensor device = host.to(kDevice);
      const at::Tensor by_range = posenc::add(device, 11, kOptions);
      EXPECT_TRUE(same_on_device(by_range, posenc::add(host, 11, kOptions)));
      EXPECT_EQ(by_range.strides(), device.strides());
      AddOptions along_first = kOptions;
      along_first.seq_dim = 0;
      EXPECT_TRUE(same_on_device(posenc::add(device, 11, along_first), posenc::add(host, 11, along_first)));
      for (const at::Tensor& p : {positions, real_positions}) {
        const at::Tensor expected = posenc::add(host, p, kOptions);
        EXPECT_TRUE(same_on_device(posenc::add(device, p.to(kDevice), kOptions), expected));
        at::Tensor in_place = device.clone();
        EXPECT_TRUE(same_on_device(posenc::add_(in_place, p.to(kDevice), kOptions), expected));
        at::Tensor out = at::empty_like(device);
        EXPECT_TRUE(same_on_device(posenc::add_out(out, device, p.to(kDevice), kOptions), expected));
      }
      at::Tensor in_place = device.clone();
      EXPECT_TRUE(same_on_device(posenc::add_(in_place, 11, kOptions), posenc::add(host, 11, kOptions)));
      at::Tensor out = at::empty_like(device);
      EXPECT_TRUE(same_on_device(posenc::add_out(out, device, 11, kOptions), posenc::add(host, 11, kOptions)));
      EXPECT_TRUE(same_on_device(posenc::add_out(out, out, 3, {}), posenc::add(out.cpu(), 3, {}))) << "into itself";
    }
  }
}

TEST(Fallback, gradients_of_add_are_those_of_the_cpu) {
  make_accelerator();
  const auto gradients = [](const at::Device& device, at::ScalarType dtype) {
    const at::Tensor x = some_tensor({2, 5, 7}, dtype).to(device).requires_grad_();
    const at::Tensor positions = (at::arange(5, at::kDouble) * 0.37).to(device).requires_grad_();
    const at::Tensor weight = some_tensor({2, 5, 7}, dtype).flip(0).to(device);
    std::vector<at::Tensor> result;
    const auto append = [&](const at::Tensor& output, const std::vector<at::Tensor>& inputs) {
      for (const at::Tensor& gradient : torch::autograd::grad({output}, inputs, {weight})) {
        EXPECT_EQ(gradient.device(), device);
        result.push_back(gradient.cpu());
      }
    };
    append(posenc::add(x, 3, kOptions), {x});
    append(posenc::add(x, positions.detach(), kOptions), {x});
    append(posenc::add(x, positions, kOptions), {x, positions});
    append(posenc::encode(positions.expand({2, 5}), 7, kConvention, dtype), {positions});
    at::Tensor written = x * 1.0;
    posenc::add_(written, 3, kOptions);
    append(written, {x});
    return result;
  };
  for (const at::ScalarType dtype : kDTypes) {
    const std::vector<at::Tensor> on_device = gradients(kDevice, dtype);
    const std::vector<at::Tensor> on_cpu = gradients(at::kCPU, dtype);
    for (std::size_t i = 0; i < on_cpu.size(); ++i) {
      EXPECT_TRUE(same_bits(on_device[i], on_cpu[i])) << dtype << ", gradient " << i;
    }
  }
}

TEST(Fallback, dropout_on_the_device_is_the_composite_form) {
  make_accelerator();
  const at::Tensor sum = posenc::add(some_tensor({2, 50, 7}, at::kFloat), 3, kOptions);
  for (const bool needs_gradient : {false, true}) {
    const at::Tensor x = some_tensor({2, 50, 7}, at::kFloat).to(kDevice).requires_grad_(needs_gradient);
    const auto [out, rng_state] = posenc::add_dropout(x, 0.5, 3, kOptions);
    EXPECT_EQ(rng_state.numel(), 0);
    EXPECT_EQ(rng_state.device(), kDevice);
    const at::Tensor kept = out.detach().cpu().ne(0);
    EXPECT_TRUE(same_on_device(out, at::where(kept, sum * 2.0, at::zeros_like(sum))));
    EXPECT_NEAR(kept.to(at::kDouble).mean().item<double>(), 0.5, 5.0 * std::sqrt(0.25 / 700.0));
    if (!needs_gradient) continue;
    const at::Tensor gradient = torch::autograd::grad({out}, {x}, {at::ones_like(out)})[0].cpu();
    EXPECT_TRUE(gradient.ne(0).equal(kept));
  }
}

TEST(Fallback, every_form_that_writes_raises_the_version) {
  const at::Tensor x = some_tensor({5, 7}, at::kFloat).to(kDevice);
  const at::Tensor positions = at::arange(5, at::kLong).to(kDevice);
  at::Tensor out = at::empty_like(x);
  std::int64_t version = out._version();
  const auto rises = [&](const char* name) {
    EXPECT_GT(out._version(), version) << name;
    version = out._version();
  };
  posenc::encode_out(out, 5, 7);
  rises("encode_out");
  posenc::encode_out(out, positions, 7);
  rises("encode_out of positions");
  posenc::add_(out);
  rises("add_");
  posenc::add_(out, positions);
  rises("add_ of positions");
  posenc::add_out(out, x);
  rises("add_out");
  posenc::add_out(out, x, positions);
  rises("add_out of positions");
  EXPECT_EQ(x._version(), 0);
}

TEST(Fallback, errors_are_those_of_the_cpu_and_nothing_is_written) {
  const at::Tensor x = at::zeros({3, 4}).to(kDevice);
  const at::Tensor host_positions = at::arange(3, at::kLong);
  const at::Tensor positions = host_positions.to(kDevice);
  at::Tensor out = at::full({3, 5}, 7.0).to(kDevice);
  at::Tensor target = at::full({3, 4}, 7.0).to(kDevice);
  const auto options = at::TensorOptions().device(kDevice);
  const AddOptions bad_base{1.0, 1.0, -2, {0.0}};
  using Value = c10::ValueError;

  const std::string base = "base must be finite and greater than 0, but got 0.";
  EXPECT_TRUE(throws<Value>([&] { posenc::encode(3, 4, 0, {0.0}, options); }, "encode: " + base));
  EXPECT_TRUE(throws<Value>([&] { posenc::encode(positions, 4, {0.0}); }, "encode: " + base));
  EXPECT_TRUE(throws<Value>([&] { posenc::encode_out(target, 3, 4, 0, {0.0}); }, "encode: " + base));
  EXPECT_TRUE(throws<Value>([&] { posenc::encode_out(target, positions, 4, {0.0}); }, "encode: " + base));
  EXPECT_TRUE(throws<Value>([&] { posenc::add(x, 0, bad_base); }, "add: " + base));
  EXPECT_TRUE(throws<Value>([&] { posenc::add(x, positions, bad_base); }, "add: " + base));
  EXPECT_TRUE(throws<Value>([&] { posenc::add_(target, 0, bad_base); }, "add_: " + base));
  EXPECT_TRUE(throws<Value>([&] { posenc::add_(target, positions, bad_base); }, "add_: " + base));
  EXPECT_TRUE(throws<Value>([&] { posenc::add_out(target, x, 0, bad_base); }, "add: " + base));
  EXPECT_TRUE(throws<Value>([&] { posenc::add_out(target, x, positions, bad_base); }, "add: " + base));

  const std::string shape = "out must have shape [3, 4], but got [3, 5].";
  EXPECT_TRUE(throws<Value>([&] { posenc::encode_out(out, 3, 4); }, "encode: " + shape));
  EXPECT_TRUE(throws<Value>([&] { posenc::encode_out(out, positions, 4); }, "encode: " + shape));
  EXPECT_TRUE(throws<Value>([&] { posenc::add_out(out, x); }, "add: " + shape));
  EXPECT_TRUE(throws<Value>([&] { posenc::add_out(out, x, positions); }, "add: " + shape));

  const std::string device =
      "positions must be on the device of x (" + kDevice.str() + "), but got cpu. Use positions.to(x.device).";
  EXPECT_TRUE(throws<Value>([&] { posenc::add(x, host_positions); }, "add: " + device));
  EXPECT_TRUE(throws<Value>([&] { posenc::add_(target, host_positions); }, "add_: " + device));
  EXPECT_TRUE(throws<Value>([&] { posenc::add_out(target, x, host_positions); }, "add: " + device));
  EXPECT_TRUE(throws<Value>([&] { posenc::encode_out(target, host_positions, 4); },
                            "encode: out must be on device cpu, but got " + kDevice.str() + "."));
  EXPECT_TRUE(
      throws<Value>([&] { posenc::encode_out(target, -1, 4); }, "encode: seq_len must be at least 0, but got -1."));

  const std::string place =
      " must have no two elements in one place of memory, but got strides [0, 1] for shape [3, 4]. Use ";
  at::Tensor twice = at::full({1, 4}, 7.0).to(kDevice).expand({3, 4});
  EXPECT_TRUE(throws<Value>([&] { posenc::add_(twice); }, "add_: x" + place + "x.contiguous() or x.clone()."));
  EXPECT_TRUE(
      throws<Value>([&] { posenc::add_(twice, positions); }, "add_: x" + place + "x.contiguous() or x.clone()."));
  EXPECT_TRUE(
      throws<Value>([&] { posenc::add_out(twice, x); }, "add: out" + place + "out.contiguous() or out.clone()."));

  for (const at::Tensor& written : {out, target, twice}) EXPECT_TRUE(written.cpu().eq(7.0).all().item<bool>());
}

}  // namespace
}  // namespace posenc::testing
