#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ops_testing.h"

namespace posenc::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr double kFill = -32768.0;

/// Every error on the CPU and on the meta device, where fake tensors take the same checks: one text for both.
class Errors : public ::testing::TestWithParam<at::DeviceType> {
 protected:
  static at::TensorOptions options(at::ScalarType dtype = at::kFloat) {
    return at::TensorOptions().dtype(dtype).device(GetParam());
  }

  static at::Tensor filled(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
    return at::full(sizes, kFill, options(dtype));
  }

  static at::Tensor counting(std::int64_t n, at::ScalarType dtype = at::kLong) { return at::arange(n, options(dtype)); }

  /// Expects the error, and `target`, which the call would have written, as it was.
  template <typename Exception, typename Call>
  static void expect_error(Call&& call, const std::string& text, const at::Tensor& target = {}) {
    const std::int64_t version = target.defined() ? target._version() : 0;
    EXPECT_TRUE(throws<Exception>(call, text));
    if (!target.defined()) return;
    EXPECT_EQ(target._version(), version) << text;
    if (target.is_meta()) return;
    EXPECT_TRUE(target.eq(kFill).all().item<bool>()) << "written in spite of: " << text;
  }

  /// Expects `text` behind the name of the op from each of the ten overloads, called with this width and convention.
  template <typename Exception>
  static void expect_of_every_op(std::int64_t d_model, const Convention& convention, const std::string& text) {
    const AddOptions chosen{1.0, 1.0, -2, convention};
    const at::Tensor x = filled({3, d_model});
    const at::Tensor positions = counting(3);
    at::Tensor target = filled({3, d_model});
    expect_error<Exception>([&] { posenc::encode(3, d_model, 0, convention, options()); }, "encode: " + text);
    expect_error<Exception>([&] { posenc::encode(positions, d_model, convention); }, "encode: " + text);
    expect_error<Exception>([&] { posenc::encode_out(target, 3, d_model, 0, convention); }, "encode: " + text, target);
    expect_error<Exception>([&] { posenc::encode_out(target, positions, d_model, convention); }, "encode: " + text,
                            target);
    expect_error<Exception>([&] { posenc::add(x, 0, chosen); }, "add: " + text);
    expect_error<Exception>([&] { posenc::add(x, positions, chosen); }, "add: " + text);
    expect_error<Exception>([&] { posenc::add_(target, 0, chosen); }, "add_: " + text, target);
    expect_error<Exception>([&] { posenc::add_(target, positions, chosen); }, "add_: " + text, target);
    expect_error<Exception>([&] { posenc::add_out(target, x, 0, chosen); }, "add: " + text, target);
    expect_error<Exception>([&] { posenc::add_out(target, x, positions, chosen); }, "add: " + text, target);
    // The same on the way to a gradient.
    const at::Tensor leaf = x.clone().requires_grad_();
    expect_error<Exception>([&] { posenc::add(leaf, 0, chosen); }, "add: " + text);
    expect_error<Exception>([&] { posenc::add(leaf, positions, chosen); }, "add: " + text);
    const at::Tensor floating = counting(3, at::kFloat).requires_grad_();
    expect_error<Exception>([&] { posenc::encode(floating, d_model, convention); }, "encode: " + text);
    expect_error<Exception>([&] { posenc::add(x, floating, chosen); }, "add: " + text);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, Errors, ::testing::Values(at::kCPU, at::kMeta),
                         [](const auto& instance) { return c10::DeviceTypeName(instance.param, /*lower_case=*/true); });

TEST_P(Errors, base_is_finite_and_positive) {
  const std::vector<std::pair<double, std::string>> values = {{0.0, "0"},         {-0.0, "-0"},         {-2.5, "-2.5"},
                                                              {kInfinity, "inf"}, {-kInfinity, "-inf"}, {kNaN, "nan"}};
  for (const auto& [base, text] : values) {
    expect_of_every_op<c10::ValueError>(4, {base}, "base must be finite and greater than 0, but got " + text + ".");
  }
}

TEST_P(Errors, freq_shift_and_position_scale_are_finite) {
  const std::vector<std::pair<double, std::string>> values = {{kInfinity, "inf"}, {-kInfinity, "-inf"}, {kNaN, "nan"}};
  for (const auto& [value, text] : values) {
    expect_of_every_op<c10::ValueError>(4, {10000.0, value}, "freq_shift must be finite, but got " + text + ".");
    expect_of_every_op<c10::ValueError>(4, {10000.0, 0.0, value},
                                        "position_scale must be finite, but got " + text + ".");
  }
}

TEST_P(Errors, odd_error_refuses_an_odd_width_only) {
  const Convention convention{10000.0, 0.0, 1.0, Order::kInterleaved, Odd::kError};
  for (const std::int64_t d_model : {1, 7}) {
    expect_of_every_op<c10::ValueError>(d_model, convention,
                                        "d_model must be even with odd=\"error\", but got " + std::to_string(d_model) +
                                            ". Use odd=\"sin\", \"zero\" or \"cut\" for an odd width.");
  }
  EXPECT_NO_THROW(posenc::encode(3, 6, 0, convention, options()));
}

TEST_P(Errors, a_denominator_of_zero_needs_at_most_one_pair) {
  struct Case {
    std::int64_t d_model;
    double freq_shift;
    Odd odd;
    const char* shown;
  };
  for (const Case& c : {Case{8, 4.0, Odd::kSin, "4"}, Case{7, 3.5, Odd::kSin, "3.5"}, Case{7, 3.0, Odd::kZero, "3"},
                        Case{7, 4.0, Odd::kCut, "4"}, Case{3, 1.5, Odd::kSin, "1.5"}, Case{3, 2.0, Odd::kCut, "2"}}) {
    expect_of_every_op<c10::ValueError>(c.d_model, {10000.0, c.freq_shift, 1.0, Order::kInterleaved, c.odd},
                                        std::string("freq_shift must leave a denominator d_model - 2 * freq_shift "
                                                    "other than 0, but got ") +
                                            c.shown + " with d_model " + std::to_string(c.d_model) + ".");
  }
  for (const Case& c : {Case{2, 1.0, Odd::kSin, ""}, Case{1, 0.5, Odd::kSin, ""}, Case{1, 0.0, Odd::kZero, ""},
                        Case{3, 1.0, Odd::kZero, ""}, Case{1, 1.0, Odd::kCut, ""}}) {
    const Convention convention{10000.0, c.freq_shift, 1.0, Order::kInterleaved, c.odd};
    EXPECT_NO_THROW(posenc::encode(3, c.d_model, 0, convention, options())) << c.d_model << ", " << c.freq_shift;
    EXPECT_NO_THROW(posenc::add(filled({3, c.d_model}), 0, {1.0, 1.0, -2, convention}));
  }
}

TEST_P(Errors, order_and_odd_are_one_of_their_names) {
  const std::string orders =
      "order must be \"interleaved\", \"interleaved_cos_first\", \"split\" or \"split_cos_first\"";
  const std::string odds = "odd must be \"sin\", \"zero\", \"cut\" or \"error\"";
  expect_of_every_op<c10::ValueError>(4, {10000.0, 0.0, 1.0, static_cast<Order>(99)},
                                      orders + ", but got \"unknown\".");
  expect_of_every_op<c10::ValueError>(4, {10000.0, 0.0, 1.0, Order::kSplit, static_cast<Odd>(99)},
                                      odds + ", but got \"unknown\".");

  // By name, as Python and TorchScript call.
  const auto call = [&](const char* order, const char* odd) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("posenc::encode", "positions");
    torch::jit::Stack stack{counting(3), 4, 10000.0, 0.0, 1.0, order, odd, c10::IValue()};
    op.callBoxed(stack);
  };
  EXPECT_NO_THROW(call("split", "zero"));
  for (const char* name : {"diagonal", "Split", "split ", "spli", ""}) {
    expect_error<c10::ValueError>([&] { call(name, "sin"); }, "encode: " + orders + ", but got \"" + name + "\".");
    expect_error<c10::ValueError>([&] { call("split", name); }, "encode: " + odds + ", but got \"" + name + "\".");
  }
}

TEST_P(Errors, d_model_is_at_least_one) {
  for (const std::int64_t d_model : {0, -3}) {
    const std::string text = "encode: d_model must be at least 1, but got " + std::to_string(d_model) + ".";
    at::Tensor out = filled({3, 1});
    expect_error<c10::ValueError>([&] { posenc::encode(3, d_model, 0, {}, options()); }, text);
    expect_error<c10::ValueError>([&] { posenc::encode(counting(3), d_model); }, text);
    expect_error<c10::ValueError>([&] { posenc::encode_out(out, 3, d_model); }, text, out);
    expect_error<c10::ValueError>([&] { posenc::encode_out(out, counting(3), d_model); }, text, out);
  }
  at::Tensor x = filled({3, 0});
  const std::string text = "x must have a last dimension (d_model) of at least 1, but got shape [3, 0].";
  expect_error<c10::ValueError>([&] { posenc::add(x); }, "add: " + text);
  expect_error<c10::ValueError>([&] { posenc::add(x, counting(3)); }, "add: " + text);
  expect_error<c10::ValueError>([&] { posenc::add_(x); }, "add_: " + text, x);
}

TEST_P(Errors, seq_len_is_not_negative) {
  at::Tensor out = filled({1, 4});
  const std::string text = "encode: seq_len must be at least 0, but got -1.";
  expect_error<c10::ValueError>([&] { posenc::encode(-1, 4, 0, {}, options()); }, text);
  expect_error<c10::ValueError>([&] { posenc::encode_out(out, -1, 4); }, text, out);
}

TEST_P(Errors, offset_and_seq_len_stay_within_int64) {
  const std::string text =
      "offset + seq_len must be at most 2^63 - 1, but got offset 9223372036854775806 and seq_len 2.";
  at::Tensor target = filled({2, 4});
  const at::Tensor x = filled({2, 4});
  expect_error<c10::ValueError>([&] { posenc::encode(2, 4, kInt64Max - 1, {}, options()); }, "encode: " + text);
  expect_error<c10::ValueError>([&] { posenc::encode_out(target, 2, 4, kInt64Max - 1); }, "encode: " + text, target);
  expect_error<c10::ValueError>([&] { posenc::add(x, kInt64Max - 1); }, "add: " + text);
  expect_error<c10::ValueError>([&] { posenc::add_(target, kInt64Max - 1); }, "add_: " + text, target);
  expect_error<c10::ValueError>([&] { posenc::add_out(target, x, kInt64Max - 1); }, "add: " + text, target);
  EXPECT_NO_THROW(posenc::encode(2, 4, kInt64Max - 2, {}, options()));
}

TEST_P(Errors, a_result_has_at_most_int64_elements) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  const std::string text =
      "encode: the result must have at most 2^63 - 1 elements, but got 1099511627776 rows of d_model 1099511627776.";
  at::Tensor out = filled({3, 4});
  const at::Tensor positions = counting(1).expand({kHuge});
  expect_error<c10::ValueError>([&] { posenc::encode(kHuge, kHuge, 0, {}, options()); }, text);
  expect_error<c10::ValueError>([&] { posenc::encode(positions, kHuge); }, text);
  expect_error<c10::ValueError>([&] { posenc::encode_out(out, kHuge, kHuge); }, text, out);
  expect_error<c10::ValueError>([&] { posenc::encode_out(out, positions, kHuge); }, text, out);
}

TEST_P(Errors, dtype_of_a_result_is_one_of_four) {
  for (const auto& [dtype, name] :
       std::vector<std::pair<at::ScalarType, std::string>>{{at::kInt, "int32"},
                                                           {at::kBool, "bool"},
                                                           {at::kComplexFloat, "complex64"},
                                                           {at::kFloat8_e5m2, "float8_e5m2"}}) {
    const std::string text = "must be float64, float32, bfloat16 or float16, but got " + name + ".";
    expect_error<c10::TypeError>([&] { posenc::encode(3, 4, 0, {}, options(dtype)); }, "encode: dtype " + text);
    expect_error<c10::TypeError>([&] { posenc::encode(counting(3), 4, {}, dtype); }, "encode: dtype " + text);
    at::Tensor out = at::empty({3, 4}, options(dtype));
    expect_error<c10::TypeError>([&] { posenc::encode_out(out, 3, 4); }, "encode: out " + text);
    expect_error<c10::TypeError>([&] { posenc::encode_out(out, counting(3), 4); }, "encode: out " + text);
    EXPECT_EQ(out._version(), 0);
  }
}

TEST_P(Errors, positions_are_integer_or_floating_and_not_bool_complex_or_uint64) {
  for (const auto& [dtype, ending] :
       std::vector<std::pair<at::ScalarType, std::string>>{{at::kBool, "bool."},
                                                           {at::kComplexDouble, "complex128."},
                                                           {at::kUInt64, "uint64. Use positions.to(torch.int64)."},
                                                           {at::kFloat8_e4m3fn, "float8_e4m3fn."}}) {
    const std::string text =
        "positions must be integer (not bool or uint64) or float64, float32, bfloat16 or float16, "
        "but got " +
        ending;
    const at::Tensor positions = at::empty({3}, options(dtype));
    const at::Tensor x = filled({3, 4});
    at::Tensor target = filled({3, 4});
    expect_error<c10::TypeError>([&] { posenc::encode(positions, 4); }, "encode: " + text);
    expect_error<c10::TypeError>([&] { posenc::encode_out(target, positions, 4); }, "encode: " + text, target);
    expect_error<c10::TypeError>([&] { posenc::add(x, positions); }, "add: " + text);
    expect_error<c10::TypeError>([&] { posenc::add_(target, positions); }, "add_: " + text, target);
    expect_error<c10::TypeError>([&] { posenc::add_out(target, x, positions); }, "add: " + text, target);
  }
  const at::Tensor differentiable = at::empty({3}, options(at::kComplexFloat)).requires_grad_();
  EXPECT_THROW(posenc::encode(differentiable, 4), c10::TypeError);
  EXPECT_THROW(posenc::add(filled({3, 4}), differentiable), c10::TypeError);
}

TEST_P(Errors, x_is_floating) {
  for (const auto& [dtype, name] :
       std::vector<std::pair<at::ScalarType, std::string>>{{at::kLong, "int64"},
                                                           {at::kBool, "bool"},
                                                           {at::kComplexFloat, "complex64"},
                                                           {at::kFloat8_e5m2, "float8_e5m2"}}) {
    const std::string text = "x must be float64, float32, bfloat16 or float16, but got " + name + ".";
    at::Tensor x = at::empty({3, 4}, options(dtype));
    at::Tensor out = at::empty({3, 4}, options(dtype));
    expect_error<c10::TypeError>([&] { posenc::add(x); }, "add: " + text);
    expect_error<c10::TypeError>([&] { posenc::add(x, counting(3)); }, "add: " + text);
    expect_error<c10::TypeError>([&] { posenc::add_(x); }, "add_: " + text);
    expect_error<c10::TypeError>([&] { posenc::add_(x, counting(3)); }, "add_: " + text);
    expect_error<c10::TypeError>([&] { posenc::add_out(out, x); }, "add: " + text);
    expect_error<c10::TypeError>([&] { posenc::add_out(out, x, counting(3)); }, "add: " + text);
    EXPECT_EQ(x._version() + out._version(), 0);
  }
}

TEST_P(Errors, x_has_at_least_two_dimensions) {
  const std::string text = "x must have at least 2 dimensions (..., seq_len, d_model), but got shape ";
  const std::string remedy = " Use x.unsqueeze(0) for a single position.";
  at::Tensor vector = filled({4});
  at::Tensor scalar = filled({});
  expect_error<c10::ValueError>([&] { posenc::add(vector); }, "add: " + text + "[4]." + remedy);
  expect_error<c10::ValueError>([&] { posenc::add(vector, counting(1)); }, "add: " + text + "[4]." + remedy);
  expect_error<c10::ValueError>([&] { posenc::add_(vector); }, "add_: " + text + "[4]." + remedy, vector);
  expect_error<c10::ValueError>([&] { posenc::add(scalar); }, "add: " + text + "[].");
  expect_error<c10::ValueError>([&] { posenc::add_(scalar, counting(1)); }, "add_: " + text + "[].", scalar);
}

TEST_P(Errors, seq_dim_is_a_dimension_of_x_and_not_the_last) {
  const at::Tensor x = filled({2, 3, 4});
  at::Tensor target = filled({2, 3, 4});
  for (const std::int64_t seq_dim : {3, 7, -4}) {
    const AddOptions chosen{1.0, 1.0, seq_dim, {}};
    const std::string text = "seq_dim must be in the range [-3, 2], but got " + std::to_string(seq_dim) + ".";
    expect_error<c10::IndexError>([&] { posenc::add(x, 0, chosen); }, "add: " + text);
    expect_error<c10::IndexError>([&] { posenc::add_(target, 0, chosen); }, "add_: " + text, target);
    expect_error<c10::IndexError>([&] { posenc::add_out(target, x, 0, chosen); }, "add: " + text, target);
  }
  for (const std::int64_t seq_dim : {2, -1}) {
    const AddOptions chosen{1.0, 1.0, seq_dim, {}};
    const std::string text =
        "seq_dim must not be the last dimension (d_model), but got " + std::to_string(seq_dim) + ".";
    expect_error<c10::ValueError>([&] { posenc::add(x, 0, chosen); }, "add: " + text);
    expect_error<c10::ValueError>([&] { posenc::add_(target, 0, chosen); }, "add_: " + text, target);
    expect_error<c10::ValueError>([&] { posenc::add_out(target, x, 0, chosen); }, "add: " + text, target);
  }
}

TEST_P(Errors, positions_broadcast_to_the_tokens_of_x) {
  const at::Tensor x = filled({2, 3, 4});
  at::Tensor target = filled({2, 3, 4});
  const auto check = [&](const at::Tensor& positions, const std::string& shape) {
    const std::string text =
        "positions must broadcast to the shape of x without its last dimension, [2, 3], but got "
        "shape " +
        shape + ".";
    expect_error<c10::ValueError>([&] { posenc::add(x, positions); }, "add: " + text);
    expect_error<c10::ValueError>([&] { posenc::add_(target, positions); }, "add_: " + text, target);
    expect_error<c10::ValueError>([&] { posenc::add_out(target, x, positions); }, "add: " + text, target);
  };
  check(counting(4), "[4]");
  check(counting(2), "[2]");
  check(counting(0), "[0]");
  check(counting(6).view({3, 2}), "[3, 2]");
  check(counting(6).view({1, 2, 3}), "[1, 2, 3]");  // broadcasting may not enlarge x
  check(counting(3).view({1, 1, 3}), "[1, 1, 3]");
}

TEST_P(Errors, positions_stand_on_the_device_of_x_and_out) {
  const bool is_meta = GetParam() == at::kMeta;
  const at::Tensor elsewhere =
      at::empty({3}, at::TensorOptions().dtype(at::kLong).device(is_meta ? at::kCPU : at::kMeta));
  const at::Tensor x = filled({3, 4});
  at::Tensor target = filled({3, 4});
  const std::string here = is_meta ? "meta" : "cpu";
  const std::string there = is_meta ? "cpu" : "meta";
  const std::string text =
      "positions must be on the device of x (" + here + "), but got " + there + ". Use positions.to(x.device).";
  expect_error<c10::ValueError>([&] { posenc::add(x, elsewhere); }, "add: " + text);
  expect_error<c10::ValueError>([&] { posenc::add_(target, elsewhere); }, "add_: " + text, target);
  expect_error<c10::ValueError>([&] { posenc::add_out(target, x, elsewhere); }, "add: " + text, target);
  expect_error<c10::ValueError>([&] { posenc::encode_out(target, elsewhere, 4); },
                                "encode: out must be on device " + there + ", but got " + here + ".", target);
}

TEST_P(Errors, out_has_the_shape_dtype_and_device_of_the_result) {
  const at::Tensor x = filled({3, 4});
  for (const auto& [sizes, shown] : std::vector<std::pair<std::vector<std::int64_t>, std::string>>{
           {{3, 5}, "[3, 5]"}, {{4, 3}, "[4, 3]"}, {{12}, "[12]"}, {{1, 3, 4}, "[1, 3, 4]"}, {{0, 4}, "[0, 4]"}}) {
    at::Tensor out = filled(sizes);
    const std::string text = "out must have shape [3, 4], but got " + shown + ".";
    expect_error<c10::ValueError>([&] { posenc::encode_out(out, 3, 4); }, "encode: " + text, out);
    expect_error<c10::ValueError>([&] { posenc::encode_out(out, counting(3), 4); }, "encode: " + text, out);
    expect_error<c10::ValueError>([&] { posenc::add_out(out, x); }, "add: " + text, out);
    expect_error<c10::ValueError>([&] { posenc::add_out(out, x, counting(3)); }, "add: " + text, out);
    EXPECT_EQ(out.sizes(), sizes) << "never resized";
  }
  for (const auto& [dtype, name] : std::vector<std::pair<at::ScalarType, std::string>>{
           {at::kDouble, "float64"}, {at::kBFloat16, "bfloat16"}, {at::kHalf, "float16"}}) {
    at::Tensor out = filled({3, 4}, dtype);
    const std::string text = "add: out must have dtype float32, but got " + name + ".";
    expect_error<c10::TypeError>([&] { posenc::add_out(out, x); }, text, out);
    expect_error<c10::TypeError>([&] { posenc::add_out(out, x, counting(3)); }, text, out);
  }
  const bool is_meta = GetParam() == at::kMeta;
  at::Tensor elsewhere = at::full({3, 4}, kFill, at::TensorOptions().device(is_meta ? at::kCPU : at::kMeta));
  const std::string text = std::string("add: out must be on device ") + (is_meta ? "meta" : "cpu") + ", but got " +
                           (is_meta ? "cpu" : "meta") + ".";
  expect_error<c10::ValueError>([&] { posenc::add_out(elsewhere, x); }, text, elsewhere);
  expect_error<c10::ValueError>([&] { posenc::add_out(elsewhere, x, counting(3)); }, text, elsewhere);
}

TEST_P(Errors, what_is_written_has_no_element_twice) {
  const at::Tensor x = filled({3, 4});
  at::Tensor twice = filled({1, 4}).expand({3, 4});
  const std::string place =
      " must have no two elements in one place of memory, but got strides [0, 1] for shape [3, 4]. Use ";
  const std::string out_text = "out" + place + "out.contiguous() or out.clone().";
  const std::string x_text = "x" + place + "x.contiguous() or x.clone().";
  expect_error<c10::ValueError>([&] { posenc::encode_out(twice, 3, 4); }, "encode: " + out_text, twice);
  expect_error<c10::ValueError>([&] { posenc::encode_out(twice, counting(3), 4); }, "encode: " + out_text, twice);
  expect_error<c10::ValueError>([&] { posenc::add_out(twice, x); }, "add: " + out_text, twice);
  expect_error<c10::ValueError>([&] { posenc::add_out(twice, x, counting(3)); }, "add: " + out_text, twice);
  expect_error<c10::ValueError>([&] { posenc::add_(twice); }, "add_: " + x_text, twice);
  expect_error<c10::ValueError>([&] { posenc::add_(twice, counting(3)); }, "add_: " + x_text, twice);
  EXPECT_NO_THROW(posenc::add(twice));

  // The same on the way to a gradient.
  const at::Tensor leaf = filled({1, 4}).requires_grad_();
  at::Tensor intermediate = (leaf * 1.0).expand({3, 4});
  expect_error<c10::ValueError>([&] { posenc::add_(intermediate); }, "add_: " + x_text, intermediate);
  expect_error<c10::ValueError>([&] { posenc::add_(intermediate, counting(3)); }, "add_: " + x_text, intermediate);
}

TEST_P(Errors, what_is_written_shares_no_memory_with_what_is_read) {
  const at::Tensor memory = filled({4, 4});
  const at::Tensor x = memory.narrow(0, 0, 3);
  at::Tensor shifted = memory.narrow(0, 1, 3);
  const std::string text =
      "add: out must not share memory with x unless they are the same view, but got overlapping "
      "tensors. Use x.clone().";
  expect_error<c10::ValueError>([&] { posenc::add_out(shifted, x); }, text, memory);
  expect_error<c10::ValueError>([&] { posenc::add_out(shifted, x, counting(3)); }, text, memory);
  at::Tensor target = filled({3, 1});
  const at::Tensor positions = target.select(1, 0);
  const auto positions_text = [](const std::string& op, const std::string& name) {
    return op + ": " + name +
           " must not share memory with positions, but got overlapping tensors. Use positions.clone().";
  };
  expect_error<c10::ValueError>([&] { posenc::encode_out(target, positions, 1); }, positions_text("encode", "out"),
                                target);
  expect_error<c10::ValueError>([&] { posenc::add_(target, positions); }, positions_text("add_", "x"), target);
  expect_error<c10::ValueError>(
      [&] {
        posenc::add_out(target, filled({3, 1}), positions);
      },
      positions_text("add", "out"), target);
}

TEST(ErrorsOfLayout, tensors_that_are_not_strided_are_not_supported) {
  const auto text = [](const std::string& op, const std::string& name) {
    return op + ": " + name + " must be a strided tensor, but got layout Sparse. Use " + name + ".to_dense().";
  };
  using NotSupported = c10::NotImplementedError;
  at::Tensor sparse = at::ones({3, 4}).to_sparse();
  const at::Tensor positions = at::ones({3}, at::kLong).to_sparse();
  const at::Tensor x = at::zeros({3, 4});
  at::Tensor target = at::full({3, 4}, kFill);
  EXPECT_TRUE(throws<NotSupported>([&] { posenc::add(sparse); }, text("add", "x")));
  EXPECT_TRUE(throws<NotSupported>([&] { posenc::add_(sparse); }, text("add_", "x")));
  EXPECT_TRUE(throws<NotSupported>([&] { posenc::add_out(target, sparse); }, text("add", "x")));
  EXPECT_TRUE(throws<NotSupported>([&] { posenc::add_out(sparse, x); }, text("add", "out")));
  EXPECT_TRUE(throws<NotSupported>([&] { posenc::add(x, positions); }, text("add", "positions")));
  EXPECT_TRUE(throws<NotSupported>([&] { posenc::add_(target, positions); }, text("add_", "positions")));
  EXPECT_TRUE(throws<NotSupported>([&] { posenc::add_out(target, x, positions); }, text("add", "positions")));
  EXPECT_TRUE(throws<NotSupported>([&] { posenc::encode_out(sparse, 3, 4); }, text("encode", "out")));
  EXPECT_TRUE(throws<NotSupported>([&] { posenc::encode(3, 4, 0, {}, at::TensorOptions().layout(at::kSparse)); },
                                   "encode: options must have the strided layout, but got Sparse."));
  EXPECT_TRUE(target.eq(kFill).all().item<bool>());
}

TEST(ErrorsOfLayout, positions_that_are_not_strided_are_not_supported) {
  at::Tensor target = at::full({3, 4}, kFill);
  const auto check = [&](const at::Tensor& positions, const std::string& layout) {
    const std::string text =
        "encode: positions must be a strided tensor, but got layout " + layout + ". Use positions.to_dense().";
    EXPECT_TRUE(throws<c10::NotImplementedError>([&] { posenc::encode(positions, 4); }, text));
    EXPECT_TRUE(throws<c10::NotImplementedError>([&] { posenc::encode_out(target, positions, 4); }, text));
  };
  check(at::ones({3}, at::kLong).to_sparse(), "Sparse");
  check(at::ones({3}).to_mkldnn(), "Mkldnn");
  EXPECT_TRUE(target.eq(kFill).all().item<bool>());
}

TEST(ErrorsOfLayout, quantized_positions_are_refused_by_their_dtype) {
  const at::Tensor positions = at::quantize_per_tensor(at::ones({3}), 1.0, 0, at::kQInt8);
  EXPECT_TRUE(throws<c10::TypeError>([&] { posenc::encode(positions, 4); },
                                     "encode: positions must be integer (not bool or uint64) or float64, float32, "
                                     "bfloat16 or float16, but got qint8."));
}

}  // namespace
}  // namespace posenc::testing
