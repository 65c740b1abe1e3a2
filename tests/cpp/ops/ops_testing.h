#pragma once

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/cuda.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include <posenc/ops/add.h>
#include <posenc/ops/encode.h>

#include "reference.h"

/// What the tests of all operators share: devices, dtypes and conventions, comparison of tensors bit by bit, and the
/// judgement of encodings by their documented bound.

namespace posenc::testing {

inline constexpr at::ScalarType kDTypes[] = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

inline const Format& format_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return kFloat64;
    case at::kFloat:
      return kFloat32;
    case at::kBFloat16:
      return kBFloat16;
    default:
      return kFloat16;
  }
}

/// The dtype of the encoding inside `add`.
inline at::ScalarType compute_dtype(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

/// A width and a convention.
struct Encoding {
  std::int64_t d_model;
  Convention convention;

  std::string name() const { return describe(convention, d_model); }
};

/// Every order and meaning of an odd width at the small widths, and each of the other arguments off its default.
inline std::vector<Encoding> encodings() {
  std::vector<Encoding> result;
  for (const std::int64_t d_model : {1, 2, 3, 7, 64}) {
    for (const Order order : kOrders) {
      for (const Odd odd : {Odd::kSin, Odd::kZero, Odd::kCut}) {
        if (d_model % 2 == 1 || odd == Odd::kSin) result.push_back({d_model, {10000.0, 0.0, 1.0, order, odd}});
      }
    }
  }
  result.push_back({6, {10000.0, 0.0, 1.0, Order::kSplit, Odd::kError}});
  result.push_back({16, {100.0, 0.0, 1.0}});
  result.push_back({16, {10000.0, 1.0, 1.0}});
  result.push_back({16, {10000.0, 0.0, -0.5}});
  result.push_back({7, {2.0, 0.25, -0.75, Order::kSplitCosFirst, Odd::kZero}});
  return result;
}

/// Same dtype, shape, device type and bits; names the first element that differs.
inline ::testing::AssertionResult same_bits(const at::Tensor& result, const at::Tensor& expected) {
  if (result.scalar_type() != expected.scalar_type() || result.sizes() != expected.sizes() ||
      result.device().type() != expected.device().type()) {
    return ::testing::AssertionFailure() << result.toString() << result.sizes() << " instead of " << expected.toString()
                                         << expected.sizes();
  }
  const auto integers = [](const at::Tensor& tensor) {
    const auto type = tensor.element_size() == 8 ? at::kLong : tensor.element_size() == 4 ? at::kInt : at::kShort;
    return tensor.detach().cpu().contiguous().view(type).flatten();
  };
  const at::Tensor differing = integers(result).ne(integers(expected)).nonzero();
  if (differing.numel() == 0) return ::testing::AssertionSuccess();
  const std::int64_t first = differing[0].item<std::int64_t>();
  return ::testing::AssertionFailure() << differing.size(0) << " of " << result.numel()
                                       << " elements differ, the first at " << first << " of shape " << result.sizes()
                                       << ": " << result.detach().cpu().flatten()[first].to(at::kDouble).item<double>()
                                       << " instead of "
                                       << expected.detach().cpu().flatten()[first].to(at::kDouble).item<double>();
}

/// Values of both signs and many sizes, the same at every call.
inline at::Tensor some_tensor(at::IntArrayRef sizes, at::ScalarType dtype) {
  const at::Tensor steps = at::arange(c10::multiply_integers(sizes), at::kDouble);
  return (at::sin(steps * 0.7) * at::exp2(steps.remainder(9) - 4)).view(sizes).to(dtype);
}

/// Row i of `result` against the exact encoding of positions[i], which lie near zero.
inline ::testing::AssertionResult meets_bound(const at::Tensor& result, const std::vector<double>& positions,
                                              const Encoding& encoding) {
  const Columns columns = columns_of(encoding.d_model, encoding.convention.order, encoding.convention.odd);
  const at::Tensor wide = result.detach().cpu().to(at::kDouble).contiguous();
  if (wide.dim() != 2 || wide.size(0) != static_cast<std::int64_t>(positions.size()) ||
      wide.size(1) != encoding.d_model) {
    return ::testing::AssertionFailure() << encoding.name() << ": shape " << wide.sizes();
  }
  const double* element = wide.const_data_ptr<double>();
  Judge judge(encoding.name(), format_of(result.scalar_type()));
  for (const double position : positions) {
    const std::string name = std::to_string(position);
    for (std::size_t column = 0; column < columns.list.size(); ++column) {
      judge.check(*element++, reference(encoding.convention, columns, column, position), name,
                  static_cast<std::int64_t>(column));
    }
  }
  return judge.verdict();
}

/// The definition of `add` in ATen arithmetic, given the encoding in the compute dtype, broadcast to x.
inline at::Tensor definition(const at::Tensor& x, const at::Tensor& encoding, const AddOptions& options) {
  return (x.to(compute_dtype(x.scalar_type())) * options.input_scale + options.alpha * encoding).to(x.scalar_type());
}

/// Whether `call` throws an Exception (that class, not one derived from it) with this text.
template <typename Exception, typename Call>
::testing::AssertionResult throws(Call&& call, const std::string& text) {
  try {
    call();
  } catch (const c10::Error& error) {
    if (typeid(error) != typeid(Exception)) {
      return ::testing::AssertionFailure()
             << "an error of type " << typeid(error).name() << ": " << error.what_without_backtrace();
    }
    if (error.what_without_backtrace() == text) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "\n  got      " << error.what_without_backtrace() << "\n  expected "
                                         << text;
  }
  return ::testing::AssertionFailure() << "nothing was thrown instead of: " << text;
}

/// Tensor memory that `call` allocates, in allocations.
template <typename Call>
std::int64_t count_allocations(Call&& call) {
  struct Counter : c10::MemoryReportingInfoBase {
    std::int64_t count = 0;
    void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t, c10::Device) override {
      if (bytes > 0) ++count;
    }
    bool memoryProfilingEnabled() const override { return true; }
  };
  const auto counter = std::make_shared<Counter>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
    call();
  }
  return counter->count;
}

/// A tensor in the middle of a larger one whose every second place is free in each dimension, dimensions reversed in
/// memory: nothing about it is contiguous. `untouched` looks at the places around.
struct Embedded {
  at::Tensor whole;
  at::Tensor inner;

  Embedded(at::IntArrayRef sizes, const at::TensorOptions& options) {
    const std::vector<std::int64_t> reversed(sizes.rbegin(), sizes.rend());
    std::vector<std::int64_t> larger;
    for (const std::int64_t size : reversed) larger.push_back(2 * size + 3);
    whole = at::full(larger, kFill, options);
    inner = whole;
    std::vector<std::int64_t> order;
    for (std::size_t d = 0; d < reversed.size(); ++d) {
      inner = inner.slice(static_cast<std::int64_t>(d), 1, 2 * reversed[d] + 1, 2);
      order.insert(order.begin(), static_cast<std::int64_t>(d));
    }
    inner = inner.permute(order);
  }

  bool untouched_around() const { return whole.eq(kFill).sum().item<std::int64_t>() == whole.numel() - inner.numel(); }
  bool untouched() const { return whole.eq(kFill).all().item<bool>(); }

  static constexpr double kFill = -32768.0;
};

/// A suite that runs once for each kind of device. Without a CUDA device its CUDA half is skipped, and fails instead
/// where POSENC_REQUIRE_CUDA=1 says that there must be one.
class OnDevice : public ::testing::TestWithParam<at::DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() != at::kCUDA || torch::cuda::is_available()) return;
    const char* required = std::getenv("POSENC_REQUIRE_CUDA");
    if (required != nullptr && std::string(required) == "1") {
      FAIL() << "POSENC_REQUIRE_CUDA=1 asks for a CUDA device, and there is none";
    }
    GTEST_SKIP() << "no CUDA device";
  }

  static at::TensorOptions options(at::ScalarType dtype) { return at::TensorOptions().dtype(dtype).device(GetParam()); }

  static at::Tensor tensor(const std::vector<double>& values, at::ScalarType dtype = at::kDouble) {
    return at::tensor(values, at::kDouble).to(dtype).to(GetParam());
  }

  static at::Tensor integers(const std::vector<std::int64_t>& values) { return at::tensor(values).to(GetParam()); }

  static at::Tensor some_tensor(at::IntArrayRef sizes, at::ScalarType dtype) {
    return posenc::testing::some_tensor(sizes, dtype).to(GetParam());
  }
};

#define POSENC_INSTANTIATE_ON_DEVICES(Suite)                                                                  \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, ::testing::Values(at::kCPU, at::kCUDA), [](const auto& instance) { \
    return c10::DeviceTypeName(instance.param, /*lower_case=*/true);                                          \
  })

}  // namespace posenc::testing
