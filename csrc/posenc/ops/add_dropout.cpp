#include <posenc/ops/add_dropout.h>

#include <utility>

#include <posenc/ops/add_args.h>
#include <posenc/ops/autograd.h>
#include <posenc/ops/checks.h>
#include <posenc/ops/launch.h>
#include <posenc/ops/registrar.h>

namespace posenc {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::SymInt;
using detail::check_positions;
using detail::check_range;
using Generator = std::optional<at::Generator>;
using Result = std::tuple<at::Tensor, at::Tensor>;

constexpr const char* kOp = "add_dropout";
constexpr const char* kBackwardOp = "_dropout_backward";

const auto& range_op() {
  static const auto op =
      detail::typed_handle<Result(const at::Tensor&, double, POSENC_RANGE_TYPES, Generator)>("posenc::add_dropout", "");
  return op;
}

const auto& positions_op() {
  static const auto op = detail::typed_handle<Result(const at::Tensor&, double, POSENC_POSITIONS_TYPES, Generator)>(
      "posenc::add_dropout", "positions");
  return op;
}

const auto& backward_op() {
  static const auto op = detail::typed_handle<at::Tensor(const at::Tensor&, const at::Tensor&, double, double)>(
      "posenc::_dropout_backward", "");
  return op;
}

const auto& add_range_op() {
  static const auto op = detail::typed_handle<at::Tensor(const at::Tensor&, POSENC_RANGE_TYPES)>("posenc::add", "");
  return op;
}

const auto& add_positions_op() {
  static const auto op =
      detail::typed_handle<at::Tensor(const at::Tensor&, POSENC_POSITIONS_TYPES)>("posenc::add", "positions");
  return op;
}

at::TensorOptions state_options(const at::Tensor& x) { return x.options().dtype(at::kLong); }

// CPU, CUDA and Meta.

/// Calls fill(out, dropout), with null where there is no dropout; p = 1 needs no sum.
template <typename Fill>
Result run(const at::Tensor& x, double p, const Generator& generator, const Fill& fill) {
  checks::probability(kOp, p);
  checks::generator(kOp, generator, x);
  const bool draws = p > 0.0 && p < 1.0 && (x.is_meta() || x.numel() != 0);
  at::Tensor rng_state = draws ? at::empty({2}, state_options(x)) : at::zeros({2}, state_options(x));
  at::Tensor out = p == 1.0 ? at::zeros_like(x) : at::empty_like(x);
  if (!x.is_meta() && p != 1.0) {
    const launch::Dropout dropout{p, generator, rng_state};
    fill(out, draws ? &dropout : nullptr);
  }
  return {std::move(out), std::move(rng_state)};
}

Result add_dropout_range(const at::Tensor& x, double p, POSENC_RANGE_PARAMS, Generator generator) {
  const detail::Range range = check_range(kOp, x, offset, seq_dim, POSENC_CONVENTION_ARGS);
  return run(x, p, generator, [&](const at::Tensor& out, const launch::Dropout* dropout) {
    launch::add(out, /*fresh=*/true, x, offset.guard_int(__FILE__, __LINE__), range.seq_dim, input_scale, alpha,
                range.convention, dropout);
  });
}

Result add_dropout_positions(const at::Tensor& x, double p, POSENC_POSITIONS_PARAMS, Generator generator) {
  const Convention convention = check_positions(kOp, x, positions, POSENC_CONVENTION_ARGS);
  return run(x, p, generator, [&](const at::Tensor& out, const launch::Dropout* dropout) {
    launch::add(out, /*fresh=*/true, x, positions, input_scale, alpha, convention, dropout);
  });
}

at::Tensor dropout_backward(const at::Tensor& grad, const at::Tensor& rng_state, double p, double input_scale) {
  checks::x(kBackwardOp, grad);
  checks::probability(kBackwardOp, p);
  checks::rng_state(kBackwardOp, rng_state, grad);
  if (p == 0.0) return grad * input_scale;
  if (p == 1.0) return at::zeros_like(grad);
  const at::Tensor out = at::empty_like(grad);
  if (!out.is_meta()) launch::dropout_backward(out, grad, rng_state, p, input_scale);
  return out;
}

// The composite form: `add` and dropout in ATen operations, for functorch, forward mode, differentiable positions, and
// devices without a kernel of ours. ATen draws its mask and keeps it for the backward, so rng_state has no elements.
// Not at::dropout: below the transforms that writes in place, which vmap refuses, and its zeros have the sign of the
// sum.

Result drop(const at::Tensor& sum, double p, const Generator& generator) {
  at::Tensor rng_state = at::empty({0}, state_options(sum));
  if (p == 0.0) return {sum, std::move(rng_state)};
  const bool drops_all = p == 1.0;
  // By sizes, which know no batch of a transform: vmap makes one mask of it, or one for each entry, as `randomness`
  // says.
  const auto sizes = sum.sym_sizes();
  const at::Tensor kept = drops_all
                              ? at::zeros_symint(sizes, sum.options().dtype(at::kBool))
                              : at::bernoulli(at::empty_symint(sizes, sum.options()), 1.0 - p, generator).to(at::kBool);
  return {at::where(kept, sum * (drops_all ? 1.0 : 1.0 / (1.0 - p)), 0.0), std::move(rng_state)};
}

Result add_dropout_range_composite(const at::Tensor& x, double p, POSENC_RANGE_PARAMS, Generator generator) {
  check_range(kOp, x, offset, seq_dim, POSENC_CONVENTION_ARGS);
  checks::probability(kOp, p);
  checks::generator(kOp, generator, x);
  return drop(add_range_op().call(x, POSENC_RANGE_ARGS), p, generator);
}

Result add_dropout_positions_composite(const at::Tensor& x, double p, POSENC_POSITIONS_PARAMS, Generator generator) {
  check_positions(kOp, x, positions, POSENC_CONVENTION_ARGS);
  checks::probability(kOp, p);
  checks::generator(kOp, generator, x);
  return drop(add_positions_op().call(x, POSENC_POSITIONS_ARGS), p, generator);
}

/// The gradient as a product with the mask, which has no batch dimension of a transform and no tangent.
at::Tensor dropout_backward_composite(const at::Tensor& grad, const at::Tensor& rng_state, double p,
                                      double input_scale) {
  const at::ScalarType dtype = grad.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor ones = at::ones_symint(grad.sym_sizes(), grad.options().dtype(dtype));
  return (grad.to(dtype) * backward_op().call(ones, rng_state, p, input_scale)).to(grad.scalar_type());
}

bool has_kernel(const at::Tensor& x) {
#if defined(POSENC_WITH_CUDA)
  if (x.is_cuda()) return true;
#endif
  return x.is_cpu() || x.is_meta();
}

// Gradients. y = m * (x * input_scale + alpha * E(p)) with the mask m = 0 or 1 / (1 - p), so
// dL/dx = dL/dy * m * input_scale: linear in dL/dy, so it is its own gradient too.

at::Tensor gradient(torch::autograd::AutogradContext* context, const at::Tensor& grad) {
  if (!grad.defined()) return grad;
  const double p = context->saved_data["p"].toDouble();
  const double input_scale = context->saved_data["input_scale"].toDouble();
  return backward_op().call(grad, context->get_saved_variables()[0], p, input_scale);
}

void save(torch::autograd::AutogradContext* context, const at::Tensor& rng_state, double p, double input_scale) {
  context->save_for_backward({rng_state});
  context->saved_data["p"] = p;
  context->saved_data["input_scale"] = input_scale;
  context->set_materialize_grads(false);
}

template <typename Call>
torch::autograd::variable_list forward_below(torch::autograd::AutogradContext* context, double p, double input_scale,
                                             const Call& call) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  auto [out, rng_state] = call();
  save(context, rng_state, p, input_scale);
  context->mark_non_differentiable({rng_state});
  return {out, rng_state};
}

class AddDropoutRange : public torch::autograd::Function<AddDropoutRange> {
 public:
  static constexpr bool is_traceable = true;

  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                                                double p, POSENC_RANGE_PARAMS, const Generator& generator) {
    return forward_below(context, p, input_scale, [&] { return range_op().call(x, p, POSENC_RANGE_ARGS, generator); });
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    torch::autograd::variable_list result(12);
    result[0] = gradient(context, grads[0]);
    return result;
  }
};

class AddDropoutPositions : public torch::autograd::Function<AddDropoutPositions> {
 public:
  static constexpr bool is_traceable = true;

  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                                                double p, POSENC_POSITIONS_PARAMS, const Generator& generator) {
    return forward_below(context, p, input_scale,
                         [&] { return positions_op().call(x, p, POSENC_POSITIONS_ARGS, generator); });
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    torch::autograd::variable_list result(11);
    result[0] = gradient(context, grads[0]);
    return result;
  }
};

class DropoutBackward : public torch::autograd::Function<DropoutBackward> {
 public:
  static constexpr bool is_traceable = true;

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& grad,
                            const at::Tensor& rng_state, double p, double input_scale) {
    save(context, rng_state, p, input_scale);
    const at::AutoDispatchBelowADInplaceOrView guard;
    return backward_op().call(grad, rng_state, p, input_scale);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    return {gradient(context, grads[0]), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

Result add_dropout_range_autograd(DispatchKeySet keys, const at::Tensor& x, double p, POSENC_RANGE_PARAMS,
                                  Generator generator) {
  const bool tangent = autograd::has_tangent(x);
  if (!tangent && !autograd::needs_gradient(x)) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return range_op().redispatch(keys & c10::after_autograd_keyset, x, p, POSENC_RANGE_ARGS, generator);
  }
  if (tangent || autograd::in_functorch() || !has_kernel(x)) {
    return add_dropout_range_composite(x, p, POSENC_RANGE_ARGS, generator);
  }
  const torch::autograd::variable_list results = AddDropoutRange::apply(x, p, POSENC_RANGE_ARGS, generator);
  return {results[0], results[1]};
}

Result add_dropout_positions_autograd(DispatchKeySet keys, const at::Tensor& x, double p, POSENC_POSITIONS_PARAMS,
                                      Generator generator) {
  const bool tangent = autograd::has_tangent(x) || autograd::has_tangent(positions);
  const bool positions_need = autograd::needs_gradient(positions);
  if (!tangent && !positions_need && !autograd::needs_gradient(x)) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return positions_op().redispatch(keys & c10::after_autograd_keyset, x, p, POSENC_POSITIONS_ARGS, generator);
  }
  if (tangent || positions_need || autograd::in_functorch() || !has_kernel(x)) {
    return add_dropout_positions_composite(x, p, POSENC_POSITIONS_ARGS, generator);
  }
  const torch::autograd::variable_list results = AddDropoutPositions::apply(x, p, POSENC_POSITIONS_ARGS, generator);
  return {results[0], results[1]};
}

at::Tensor dropout_backward_autograd(DispatchKeySet keys, const at::Tensor& grad, const at::Tensor& rng_state, double p,
                                     double input_scale) {
  const bool tangent = autograd::has_tangent(grad);
  if (!tangent && !autograd::needs_gradient(grad)) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return backward_op().redispatch(keys & c10::after_autograd_keyset, grad, rng_state, p, input_scale);
  }
  if (tangent || autograd::in_functorch()) return dropout_backward_composite(grad, rng_state, p, input_scale);
  return DropoutBackward::apply(grad, rng_state, p, input_scale);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> add_dropout(const at::Tensor& x, double p, int64_t offset, const AddOptions& options,
                                               const std::optional<at::Generator>& generator) {
  return range_op().call(x, p, offset, POSENC_RANGE_OPTIONS(options), generator);
}

std::tuple<at::Tensor, at::Tensor> add_dropout(const at::Tensor& x, double p, const at::Tensor& positions,
                                               const AddOptions& options,
                                               const std::optional<at::Generator>& generator) {
  return positions_op().call(x, p, positions, POSENC_POSITIONS_OPTIONS(options), generator);
}

void detail::register_add_dropout(Registrar& registrar) {
  register_devices(registrar, "add_dropout", &add_dropout_range, &add_dropout_range_composite);
  register_devices(registrar, "add_dropout.positions", &add_dropout_positions, &add_dropout_positions_composite);
  register_devices(registrar, "_dropout_backward", &dropout_backward);

  // Batched inputs, and inputs without a batch dimension inside vmap, which says by `randomness` what they get.
  for (const DispatchKey key : {DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchVmapMode}) {
    torch::Library& batched = registrar.at(key);
    batched.impl("add_dropout", &add_dropout_range_composite);
    batched.impl("add_dropout.positions", &add_dropout_positions_composite);
  }
  registrar.at(DispatchKey::FuncTorchBatched).impl("_dropout_backward", &dropout_backward_composite);

  torch::Library& gradient = registrar.at(DispatchKey::Autograd);
  gradient.impl("add_dropout", &add_dropout_range_autograd);
  gradient.impl("add_dropout.positions", &add_dropout_positions_autograd);
  gradient.impl("_dropout_backward", &dropout_backward_autograd);
}

}  // namespace posenc
