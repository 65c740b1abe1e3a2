#include <posenc/ops/encode.h>

#include <utility>

#include <posenc/math/columns.h>
#include <posenc/ops/autograd.h>
#include <posenc/ops/checks.h>
#include <posenc/ops/convention_args.h>
#include <posenc/ops/launch.h>
#include <posenc/ops/memory.h>
#include <posenc/ops/registrar.h>

namespace posenc {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::SymInt;
using OptionalDType = std::optional<at::ScalarType>;
using OptionalDevice = std::optional<at::Device>;

constexpr const char* kOp = "encode";

const auto& range_out_op() {
  static const auto op = detail::typed_handle<void(SymInt, SymInt, SymInt, POSENC_CONVENTION_TYPES, const at::Tensor&)>(
      "posenc::encode", "out");
  return op;
}

const auto& positions_out_op() {
  static const auto op =
      detail::typed_handle<void(const at::Tensor&, SymInt, POSENC_CONVENTION_TYPES, const at::Tensor&)>(
          "posenc::encode", "positions_out");
  return op;
}

c10::SymDimVector result_shape(const at::Tensor& positions, const SymInt& d_model) {
  c10::SymDimVector shape(positions.sym_sizes().begin(), positions.sym_sizes().end());
  shape.push_back(d_model);
  return shape;
}

// The checks of each pair of overloads.

Convention check_range(const SymInt& seq_len, const SymInt& d_model, const SymInt& offset, POSENC_CONVENTION_PARAMS) {
  const Convention convention = checks::convention(kOp, POSENC_CONVENTION_ARGS, d_model);
  checks::range(kOp, seq_len, offset);
  checks::element_count(kOp, seq_len, d_model);
  return convention;
}

Convention check_positions(const at::Tensor& positions, const SymInt& d_model, POSENC_CONVENTION_PARAMS) {
  const Convention convention = checks::convention(kOp, POSENC_CONVENTION_ARGS, d_model);
  checks::positions(kOp, positions);
  checks::element_count(kOp, positions.sym_numel(), d_model);
  return convention;
}

void check_positions_out(const at::Tensor& positions, const SymInt& d_model, const at::Tensor& out) {
  checks::out(kOp, out, result_shape(positions, d_model), std::nullopt, positions.device());
  checks::no_overlap(kOp, "out", out, "positions", positions, /*may_be_equal=*/false);
}

// CPU, CUDA and Meta: one function each, which writes nothing where the result has no memory.

at::Tensor encode_range(SymInt seq_len, SymInt d_model, SymInt offset, POSENC_CONVENTION_PARAMS, OptionalDType dtype,
                        OptionalDevice device) {
  const Convention convention = check_range(seq_len, d_model, offset, POSENC_CONVENTION_ARGS);
  const at::Tensor out = memory::empty({std::move(seq_len), std::move(d_model)}, checks::result_dtype(kOp, dtype),
                                       device.value_or(at::kCPU));
  if (!out.is_meta()) launch::encode(out, /*fresh=*/true, offset.guard_int(__FILE__, __LINE__), convention);
  return out;
}

at::Tensor encode_positions(const at::Tensor& positions, SymInt d_model, POSENC_CONVENTION_PARAMS,
                            OptionalDType dtype) {
  const Convention convention = check_positions(positions, d_model, POSENC_CONVENTION_ARGS);
  const at::Tensor out =
      memory::empty(result_shape(positions, d_model), checks::result_dtype(kOp, dtype), positions.device());
  if (!out.is_meta()) launch::encode(out, /*fresh=*/true, positions, convention);
  return out;
}

void encode_range_out(SymInt seq_len, SymInt d_model, SymInt offset, POSENC_CONVENTION_PARAMS, const at::Tensor& out) {
  const Convention convention = check_range(seq_len, d_model, offset, POSENC_CONVENTION_ARGS);
  checks::out(kOp, out, {std::move(seq_len), std::move(d_model)}, std::nullopt, std::nullopt);
  if (!out.is_meta()) launch::encode(out, /*fresh=*/false, offset.guard_int(__FILE__, __LINE__), convention);
}

void encode_positions_out(const at::Tensor& positions, SymInt d_model, POSENC_CONVENTION_PARAMS,
                          const at::Tensor& out) {
  const Convention convention = check_positions(positions, d_model, POSENC_CONVENTION_ARGS);
  check_positions_out(positions, d_model, out);
  if (!out.is_meta()) launch::encode(out, /*fresh=*/false, positions, convention);
}

// Devices without a kernel of ours: the CPU's result, copied there.

at::Tensor encode_range_elsewhere(SymInt seq_len, SymInt d_model, SymInt offset, POSENC_CONVENTION_PARAMS,
                                  OptionalDType dtype, OptionalDevice device) {
  return detail::encode_range_op()
      .call(std::move(seq_len), std::move(d_model), std::move(offset), POSENC_CONVENTION_ARGS, dtype,
            at::Device(at::kCPU))
      .to(device.value_or(at::kCPU));
}

at::Tensor encode_positions_elsewhere(const at::Tensor& positions, SymInt d_model, POSENC_CONVENTION_PARAMS,
                                      OptionalDType dtype) {
  check_positions(positions, d_model, POSENC_CONVENTION_ARGS);  // a layout that we refuse comes here too
  return detail::encode_positions_op()
      .call(positions.cpu(), std::move(d_model), POSENC_CONVENTION_ARGS, dtype)
      .to(positions.device());
}

void encode_range_out_elsewhere(SymInt seq_len, SymInt d_model, SymInt offset, POSENC_CONVENTION_PARAMS,
                                const at::Tensor& out) {
  check_range(seq_len, d_model, offset, POSENC_CONVENTION_ARGS);
  checks::out(kOp, out, {seq_len, d_model}, std::nullopt, std::nullopt);
  out.copy_(detail::encode_range_op().call(std::move(seq_len), std::move(d_model), std::move(offset),
                                           POSENC_CONVENTION_ARGS, out.scalar_type(), at::Device(at::kCPU)));
}

void encode_positions_out_elsewhere(const at::Tensor& positions, SymInt d_model, POSENC_CONVENTION_PARAMS,
                                    const at::Tensor& out) {
  check_positions(positions, d_model, POSENC_CONVENTION_ARGS);
  check_positions_out(positions, d_model, out);
  out.copy_(detail::encode_positions_op().call(positions.cpu(), std::move(d_model), POSENC_CONVENTION_ARGS,
                                               out.scalar_type()));
}

/// encode has no tensor to dispatch on: the device argument chooses the kernel.
at::Tensor encode_range_select(SymInt seq_len, SymInt d_model, SymInt offset, POSENC_CONVENTION_PARAMS,
                               OptionalDType dtype, OptionalDevice device) {
  const DispatchKey key = c10::computeDispatchKey(std::nullopt, at::kStrided, device.value_or(at::kCPU));
  return detail::encode_range_op().redispatch(DispatchKeySet(key), std::move(seq_len), std::move(d_model),
                                              std::move(offset), POSENC_CONVENTION_ARGS, dtype, device);
}

/// The order with sine and cosine exchanged, every pair in the same columns.
Order exchanged(Order order) {
  switch (order) {
    case Order::kInterleaved:
      return Order::kInterleavedCosFirst;
    case Order::kInterleavedCosFirst:
      return Order::kInterleaved;
    case Order::kSplit:
      return Order::kSplitCosFirst;
    case Order::kSplitCosFirst:
      break;
  }
  return Order::kSplit;
}

/// Columns (..., d_model) from first functions (..., num_first) and second ones of as many pairs; zeros where they
/// belong.
at::Tensor arrange(const at::Tensor& first, const at::Tensor& second, const math::Columns& columns) {
  const int64_t width = columns.num_first + columns.num_second;
  at::Tensor result = columns.first_stride == 2 ? at::stack({first, second}, -1).flatten(-2).narrow(-1, 0, width)
                                                : at::cat({first, second.narrow(-1, 0, columns.num_second)}, -1);
  if (columns.zero_column >= 0) result = at::constant_pad_nd(result, {0, 1});
  return result;
}

/// The frequency of each pair in rad per position, signed as the scale, float64.
at::Tensor frequencies(int64_t d_model, const Convention& convention, at::Device device) {
  const int64_t count = math::make_columns(d_model, convention.order, convention.odd).num_first;
  const auto options = at::TensorOptions().dtype(at::kDouble).device(device);
  if (count <= 1) return at::full({count}, convention.position_scale, options);
  const double width = static_cast<double>(math::effective_width(d_model, convention.odd));
  const at::Tensor exponents = at::arange(count, options) * (-2.0 / (width - 2.0 * convention.freq_shift));
  return at::pow(convention.base, exponents) * convention.position_scale;
}

/// For each column the factor between its derivative by the position and the exchanged encoding: + frequency for a
/// sine, - frequency for a cosine; 0 for the column of zeros. Shape (d_model,), float64.
at::Tensor signed_frequencies(int64_t d_model, const Convention& convention, at::Device device) {
  const math::Columns columns = math::make_columns(d_model, convention.order, convention.odd);
  const at::Tensor sines = frequencies(d_model, convention, device);
  return columns.cos_first ? arrange(-sines, sines, columns) : arrange(sines, -sines, columns);
}

// Note [Derivatives under torch.func and in forward mode]
// There torch refuses a C++ autograd::Function. The value comes from the operator, as ever; to it is added the
// difference of the textbook formula and its own detached value: nothing, but with derivatives of every order and mode.
at::Tensor encode_with_derivatives(const at::Tensor& positions, const SymInt& d_model, const Convention& convention,
                                   OptionalDType dtype) {
  const at::Tensor value =
      detail::encode_positions_op().call(positions.detach(), d_model, POSENC_CONVENTION_FIELDS(convention), dtype);
  const int64_t width = d_model.guard_int(__FILE__, __LINE__);
  const math::Columns columns = math::make_columns(width, convention.order, convention.odd);
  const at::Tensor angles =
      positions.to(at::kDouble).unsqueeze(-1) * frequencies(width, convention, positions.device());
  const at::Tensor formula =
      columns.cos_first ? arrange(angles.cos(), angles.sin(), columns) : arrange(angles.sin(), angles.cos(), columns);
  return value + (formula - formula.detach()).to(value.scalar_type());
}

// E[p, i] = sin(w_k p) or cos(w_k p) for column i of pair k. So dE/dp = w_k cos(w_k p) or -w_k sin(w_k p): the encoding
// with sine and cosine exchanged, times the signed frequency. It is made of encode.positions again, so it can be
// differentiated any number of times.
class EncodePositions : public torch::autograd::Function<EncodePositions> {
 public:
  static constexpr bool is_traceable = true;

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& positions, SymInt d_model,
                            const Convention& convention, OptionalDType dtype) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    at::Tensor result =
        detail::encode_positions_op().call(positions, d_model, POSENC_CONVENTION_FIELDS(convention), dtype);
    context->save_for_backward({positions});
    context->saved_data["d_model"] = d_model;
    context->saved_data["base"] = convention.base;
    context->saved_data["freq_shift"] = convention.freq_shift;
    context->saved_data["position_scale"] = convention.position_scale;
    context->saved_data["order"] = static_cast<int64_t>(convention.order);
    context->saved_data["odd"] = static_cast<int64_t>(convention.odd);
    return result;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const at::Tensor positions = context->get_saved_variables()[0];
    const SymInt d_model = context->saved_data["d_model"].toSymInt();
    const Convention convention{context->saved_data["base"].toDouble(), context->saved_data["freq_shift"].toDouble(),
                                context->saved_data["position_scale"].toDouble(),
                                static_cast<Order>(context->saved_data["order"].toInt()),
                                static_cast<Odd>(context->saved_data["odd"].toInt())};
    Convention derivative = convention;
    derivative.order = exchanged(convention.order);
    const bool wide = positions.scalar_type() == at::kDouble || grads[0].scalar_type() == at::kDouble;
    const at::ScalarType compute = wide ? at::kDouble : at::kFloat;
    const at::Tensor encoding =
        detail::encode_positions_op().call(positions, d_model, POSENC_CONVENTION_FIELDS(derivative), compute);
    const at::Tensor factors =
        signed_frequencies(d_model.guard_int(__FILE__, __LINE__), convention, positions.device()).to(compute);
    const at::Tensor grad = (grads[0].to(compute) * encoding * factors).sum(-1).to(positions.scalar_type());
    return {grad, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor encode_positions_autograd(DispatchKeySet keys, const at::Tensor& positions, SymInt d_model,
                                     POSENC_CONVENTION_PARAMS, OptionalDType dtype) {
  if (!autograd::needs_gradient(positions) && !autograd::has_tangent(positions)) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return detail::encode_positions_op().redispatch(keys & c10::after_autograd_keyset, positions, std::move(d_model),
                                                    POSENC_CONVENTION_ARGS, dtype);
  }
  const Convention convention = check_positions(positions, d_model, POSENC_CONVENTION_ARGS);
  if (autograd::has_tangent(positions) || autograd::in_functorch()) {
    return encode_with_derivatives(positions, d_model, convention, dtype);
  }
  return EncodePositions::apply(positions, std::move(d_model), convention, dtype);
}

void encode_range_out_autograd(DispatchKeySet keys, SymInt seq_len, SymInt d_model, SymInt offset,
                               POSENC_CONVENTION_PARAMS, const at::Tensor& out) {
  autograd::check_out_form(kOp, "out", out);
  range_out_op().redispatch(keys & c10::after_autograd_keyset, std::move(seq_len), std::move(d_model),
                            std::move(offset), POSENC_CONVENTION_ARGS, out);
}

void encode_positions_out_autograd(DispatchKeySet keys, const at::Tensor& positions, SymInt d_model,
                                   POSENC_CONVENTION_PARAMS, const at::Tensor& out) {
  autograd::check_out_form(kOp, "positions", positions);
  autograd::check_out_form(kOp, "out", out);
  positions_out_op().redispatch(keys & c10::after_autograd_keyset, positions, std::move(d_model),
                                POSENC_CONVENTION_ARGS, out);
}

void encode_range_out_version(DispatchKeySet keys, SymInt seq_len, SymInt d_model, SymInt offset,
                              POSENC_CONVENTION_PARAMS, const at::Tensor& out) {
  autograd::check_version(kOp, "out", out);
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    range_out_op().redispatch(keys & c10::after_ADInplaceOrView_keyset, std::move(seq_len), std::move(d_model),
                              std::move(offset), POSENC_CONVENTION_ARGS, out);
  }
  autograd::bump_version(out);
}

void encode_positions_out_version(DispatchKeySet keys, const at::Tensor& positions, SymInt d_model,
                                  POSENC_CONVENTION_PARAMS, const at::Tensor& out) {
  autograd::check_version(kOp, "out", out);
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    positions_out_op().redispatch(keys & c10::after_ADInplaceOrView_keyset, positions, std::move(d_model),
                                  POSENC_CONVENTION_ARGS, out);
  }
  autograd::bump_version(out);
}

}  // namespace

at::Tensor encode(int64_t seq_len, int64_t d_model, int64_t offset, const Convention& convention,
                  at::TensorOptions options) {
  TORCH_CHECK_NOT_IMPLEMENTED(options.layout() == at::kStrided, kOp, ": options must have the strided layout, but got ",
                              options.layout(), ".");
  TORCH_CHECK_NOT_IMPLEMENTED(!options.pinned_memory(), kOp,
                              ": options must not ask for pinned memory, but got pinned_memory=true. Use encode_out.");
  const at::Tensor result =
      detail::encode_range_op().call(seq_len, d_model, offset, POSENC_CONVENTION_FIELDS(convention),
                                     c10::optTypeMetaToScalarType(options.dtype_opt()), options.device_opt());
  return options.requires_grad() ? result.set_requires_grad(true) : result;
}

at::Tensor encode(const at::Tensor& positions, int64_t d_model, const Convention& convention,
                  std::optional<at::ScalarType> dtype) {
  return detail::encode_positions_op().call(positions, d_model, POSENC_CONVENTION_FIELDS(convention), dtype);
}

at::Tensor& encode_out(at::Tensor& out, int64_t seq_len, int64_t d_model, int64_t offset,
                       const Convention& convention) {
  range_out_op().call(seq_len, d_model, offset, POSENC_CONVENTION_FIELDS(convention), out);
  return out;
}

at::Tensor& encode_out(at::Tensor& out, const at::Tensor& positions, int64_t d_model, const Convention& convention) {
  positions_out_op().call(positions, d_model, POSENC_CONVENTION_FIELDS(convention), out);
  return out;
}

const detail::EncodeRangeOp& detail::encode_range_op() {
  static const auto op =
      typed_handle<at::Tensor(SymInt, SymInt, SymInt, POSENC_CONVENTION_TYPES, OptionalDType, OptionalDevice)>(
          "posenc::encode", "");
  return op;
}

const detail::EncodePositionsOp& detail::encode_positions_op() {
  static const auto op = typed_handle<at::Tensor(const at::Tensor&, SymInt, POSENC_CONVENTION_TYPES, OptionalDType)>(
      "posenc::encode", "positions");
  return op;
}

void detail::register_encode(Registrar& registrar) {
  register_devices(registrar, "encode", &encode_range, &encode_range_elsewhere);
  register_devices(registrar, "encode.positions", &encode_positions, &encode_positions_elsewhere);
  register_devices(registrar, "encode.out", &encode_range_out, &encode_range_out_elsewhere);
  register_devices(registrar, "encode.positions_out", &encode_positions_out, &encode_positions_out_elsewhere);

  registrar.at(DispatchKey::BackendSelect).impl("encode", &encode_range_select);

  registrar.at(DispatchKey::Autograd).impl("encode.positions", &encode_positions_autograd);
  registrar.at(DispatchKey::Autograd).impl("encode.out", &encode_range_out_autograd);
  registrar.at(DispatchKey::Autograd).impl("encode.positions_out", &encode_positions_out_autograd);

  // torch's own fallback for negated views expects that what is written is also returned.
  registrar.at(DispatchKey::Negative).impl("encode.out", &encode_range_out_elsewhere);
  registrar.at(DispatchKey::Negative).impl("encode.positions_out", &encode_positions_out_elsewhere);

  registrar.at(DispatchKey::ADInplaceOrView).impl("encode.out", &encode_range_out_version);
  registrar.at(DispatchKey::ADInplaceOrView).impl("encode.positions_out", &encode_positions_out_version);
}

}  // namespace posenc
