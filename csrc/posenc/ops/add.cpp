#include <posenc/ops/add.h>

#include <utility>

#include <posenc/ops/add_args.h>
#include <posenc/ops/autograd.h>
#include <posenc/ops/checks.h>
#include <posenc/ops/convention_args.h>
#include <posenc/ops/encode.h>
#include <posenc/ops/launch.h>
#include <posenc/ops/memory.h>
#include <posenc/ops/registrar.h>

namespace posenc {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::SymInt;
using detail::check_positions;
using detail::check_range;
using detail::Range;

constexpr const char* kOp = "add";
constexpr const char* kInPlaceOp = "add_";

const auto& range_op() {
  static const auto op = detail::typed_handle<at::Tensor(const at::Tensor&, POSENC_RANGE_TYPES)>("posenc::add", "");
  return op;
}

const auto& positions_op() {
  static const auto op =
      detail::typed_handle<at::Tensor(const at::Tensor&, POSENC_POSITIONS_TYPES)>("posenc::add", "positions");
  return op;
}

const auto& range_in_place_op() {
  static const auto op = detail::typed_handle<void(at::Tensor&, POSENC_RANGE_TYPES)>("posenc::add_", "");
  return op;
}

const auto& positions_in_place_op() {
  static const auto op = detail::typed_handle<void(at::Tensor&, POSENC_POSITIONS_TYPES)>("posenc::add_", "positions");
  return op;
}

const auto& range_out_op() {
  static const auto op =
      detail::typed_handle<void(const at::Tensor&, POSENC_RANGE_TYPES, const at::Tensor&)>("posenc::add", "out");
  return op;
}

const auto& positions_out_op() {
  static const auto op = detail::typed_handle<void(const at::Tensor&, POSENC_POSITIONS_TYPES, const at::Tensor&)>(
      "posenc::add", "positions_out");
  return op;
}

void check_out(const at::Tensor& out, const at::Tensor& x) {
  checks::out(kOp, out, x.sym_sizes(), x.scalar_type(), x.device());
  checks::no_overlap(kOp, "out", out, "x", x, /*may_be_equal=*/true);
}

// CPU, CUDA and Meta.

at::Tensor add_range(const at::Tensor& x, POSENC_RANGE_PARAMS) {
  const Range range = check_range(kOp, x, offset, seq_dim, POSENC_CONVENTION_ARGS);
  const at::Tensor out = memory::empty_like(x);
  if (!out.is_meta()) {
    launch::add(out, /*fresh=*/true, x, offset.guard_int(__FILE__, __LINE__), range.seq_dim, input_scale, alpha,
                range.convention);
  }
  return out;
}

at::Tensor add_positions(const at::Tensor& x, POSENC_POSITIONS_PARAMS) {
  const Convention convention = check_positions(kOp, x, positions, POSENC_CONVENTION_ARGS);
  const at::Tensor out = memory::empty_like(x);
  if (!out.is_meta()) launch::add(out, /*fresh=*/true, x, positions, input_scale, alpha, convention);
  return out;
}

void add_range_in_place(at::Tensor& x, POSENC_RANGE_PARAMS) {
  const Range range = check_range(kInPlaceOp, x, offset, seq_dim, POSENC_CONVENTION_ARGS);
  checks::writable(kInPlaceOp, "x", x);
  if (!x.is_meta()) {
    launch::add(x, /*fresh=*/false, x, offset.guard_int(__FILE__, __LINE__), range.seq_dim, input_scale, alpha,
                range.convention);
  }
}

void add_positions_in_place(at::Tensor& x, POSENC_POSITIONS_PARAMS) {
  const Convention convention = check_positions(kInPlaceOp, x, positions, POSENC_CONVENTION_ARGS);
  checks::writable(kInPlaceOp, "x", x);
  checks::no_overlap(kInPlaceOp, "x", x, "positions", positions, /*may_be_equal=*/false);
  if (!x.is_meta()) launch::add(x, /*fresh=*/false, x, positions, input_scale, alpha, convention);
}

void add_range_out(const at::Tensor& x, POSENC_RANGE_PARAMS, const at::Tensor& out) {
  const Range range = check_range(kOp, x, offset, seq_dim, POSENC_CONVENTION_ARGS);
  check_out(out, x);
  if (!x.is_meta()) {
    launch::add(out, /*fresh=*/false, x, offset.guard_int(__FILE__, __LINE__), range.seq_dim, input_scale, alpha,
                range.convention);
  }
}

void add_positions_out(const at::Tensor& x, POSENC_POSITIONS_PARAMS, const at::Tensor& out) {
  const Convention convention = check_positions(kOp, x, positions, POSENC_CONVENTION_ARGS);
  check_out(out, x);
  checks::no_overlap(kOp, "out", out, "positions", positions, /*may_be_equal=*/false);
  if (!x.is_meta()) launch::add(out, /*fresh=*/false, x, positions, input_scale, alpha, convention);
}

// Note [Composite form]
// The same value as the kernel's, bit for bit, from encode and ATen arithmetic: what torch.compile fuses with its
// neighbours, what functorch, forward mode and differentiable positions go through, and what a device without a kernel
// of ours runs. Eager code on CPU and CUDA runs the one fused kernel.

at::Tensor combine(const at::Tensor& x, const at::Tensor& encoding, double input_scale, double alpha) {
  at::Tensor scaled_x = x.to(encoding.scalar_type());
  if (input_scale != 1.0) scaled_x = scaled_x * input_scale;
  return (scaled_x + (alpha == 1.0 ? encoding : alpha * encoding)).to(x.scalar_type());
}

at::ScalarType compute_dtype(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

at::Tensor composite_range(const char* op, const at::Tensor& x, POSENC_RANGE_PARAMS) {
  const Range range = check_range(op, x, offset, seq_dim, POSENC_CONVENTION_ARGS);
  at::Tensor encoding = detail::encode_range_op().call(x.sym_size(range.seq_dim), x.sym_size(-1), std::move(offset),
                                                       POSENC_CONVENTION_ARGS, compute_dtype(x), x.device());
  for (int64_t dim = range.seq_dim + 2; dim < x.dim(); ++dim) encoding = encoding.unsqueeze(1);
  return combine(x, encoding, input_scale, alpha);
}

at::Tensor composite_positions(const char* op, const at::Tensor& x, POSENC_POSITIONS_PARAMS) {
  check_positions(op, x, positions, POSENC_CONVENTION_ARGS);
  const at::Tensor encoding =
      detail::encode_positions_op().call(positions, x.sym_size(-1), POSENC_CONVENTION_ARGS, compute_dtype(x));
  return combine(x, encoding, input_scale, alpha);
}

at::Tensor add_range_composite(const at::Tensor& x, POSENC_RANGE_PARAMS) {
  return composite_range(kOp, x, POSENC_RANGE_ARGS);
}

at::Tensor add_positions_composite(const at::Tensor& x, POSENC_POSITIONS_PARAMS) {
  return composite_positions(kOp, x, POSENC_POSITIONS_ARGS);
}

void add_range_in_place_composite(at::Tensor& x, POSENC_RANGE_PARAMS) {
  const at::Tensor sum = composite_range(kInPlaceOp, x, POSENC_RANGE_ARGS);
  checks::writable(kInPlaceOp, "x", x);
  x.copy_(sum);
}

void add_positions_in_place_composite(at::Tensor& x, POSENC_POSITIONS_PARAMS) {
  const at::Tensor sum = composite_positions(kInPlaceOp, x, POSENC_POSITIONS_ARGS);
  checks::writable(kInPlaceOp, "x", x);
  x.copy_(sum);
}

void add_range_out_composite(const at::Tensor& x, POSENC_RANGE_PARAMS, const at::Tensor& out) {
  const at::Tensor sum = composite_range(kOp, x, POSENC_RANGE_ARGS);
  check_out(out, x);
  out.copy_(sum);
}

void add_positions_out_composite(const at::Tensor& x, POSENC_POSITIONS_PARAMS, const at::Tensor& out) {
  const at::Tensor sum = composite_positions(kOp, x, POSENC_POSITIONS_ARGS);
  check_out(out, x);
  out.copy_(sum);
}

// Gradients. y = x * input_scale + alpha * E(p) with E constant in x, so dL/dx = dL/dy * input_scale: a registered op,
// which can be differentiated again. Differentiable positions take the composite form.

template <typename Call>
at::Tensor forward_below(torch::autograd::AutogradContext* context, double input_scale, const Call& call) {
  context->saved_data["input_scale"] = input_scale;
  const at::AutoDispatchBelowADInplaceOrView guard;
  return call();
}

at::Tensor scale_gradient(torch::autograd::AutogradContext* context, const at::Tensor& grad) {
  const double input_scale = context->saved_data["input_scale"].toDouble();
  return grad.defined() && input_scale != 1.0 ? grad * input_scale : grad;
}

class AddRange : public torch::autograd::Function<AddRange> {
 public:
  static constexpr bool is_traceable = true;

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, POSENC_RANGE_PARAMS) {
    return forward_below(context, input_scale, [&] { return range_op().call(x, POSENC_RANGE_ARGS); });
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    torch::autograd::variable_list result(10);
    result[0] = scale_gradient(context, grads[0]);
    return result;
  }
};

class AddPositions : public torch::autograd::Function<AddPositions> {
 public:
  static constexpr bool is_traceable = true;

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, POSENC_POSITIONS_PARAMS) {
    return forward_below(context, input_scale, [&] { return positions_op().call(x, POSENC_POSITIONS_ARGS); });
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    torch::autograd::variable_list result(9);
    result[0] = scale_gradient(context, grads[0]);
    return result;
  }
};

at::Tensor add_range_autograd(DispatchKeySet keys, const at::Tensor& x, POSENC_RANGE_PARAMS) {
  const bool tangent = autograd::has_tangent(x);
  if (!tangent && !autograd::needs_gradient(x)) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return range_op().redispatch(keys & c10::after_autograd_keyset, x, POSENC_RANGE_ARGS);
  }
  if (tangent || autograd::in_functorch()) return composite_range(kOp, x, POSENC_RANGE_ARGS);
  return AddRange::apply(x, POSENC_RANGE_ARGS);
}

at::Tensor add_positions_autograd(DispatchKeySet keys, const at::Tensor& x, POSENC_POSITIONS_PARAMS) {
  const bool tangent = autograd::has_tangent(x) || autograd::has_tangent(positions);
  const bool positions_need = autograd::needs_gradient(positions);
  if (!tangent && !positions_need && !autograd::needs_gradient(x)) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return positions_op().redispatch(keys & c10::after_autograd_keyset, x, POSENC_POSITIONS_ARGS);
  }
  if (tangent || positions_need || autograd::in_functorch()) {
    return composite_positions(kOp, x, POSENC_POSITIONS_ARGS);
  }
  return AddPositions::apply(x, POSENC_POSITIONS_ARGS);
}

/// As ATen: a leaf that requires grad is not written in place.
void check_not_leaf(const at::Tensor& x) {
  TORCH_CHECK(!(x.is_leaf() && autograd::needs_gradient(x)), kInPlaceOp,
              ": x must not be a leaf that requires grad, but got one. Use add, or torch.no_grad().");
}

void add_range_in_place_autograd(DispatchKeySet keys, at::Tensor& x, POSENC_RANGE_PARAMS) {
  if (autograd::has_tangent(x) || autograd::needs_gradient(x)) {
    check_not_leaf(x);
    return add_range_in_place_composite(x, POSENC_RANGE_ARGS);
  }
  range_in_place_op().redispatch(keys & c10::after_autograd_keyset, x, POSENC_RANGE_ARGS);
}

void add_positions_in_place_autograd(DispatchKeySet keys, at::Tensor& x, POSENC_POSITIONS_PARAMS) {
  const bool tangent = autograd::has_tangent(x) || autograd::has_tangent(positions);
  if (tangent || autograd::needs_gradient(x) || autograd::needs_gradient(positions)) {
    check_not_leaf(x);
    return add_positions_in_place_composite(x, POSENC_POSITIONS_ARGS);
  }
  positions_in_place_op().redispatch(keys & c10::after_autograd_keyset, x, POSENC_POSITIONS_ARGS);
}

void add_range_out_autograd(DispatchKeySet keys, const at::Tensor& x, POSENC_RANGE_PARAMS, const at::Tensor& out) {
  autograd::check_out_form(kOp, "x", x);
  autograd::check_out_form(kOp, "out", out);
  range_out_op().redispatch(keys & c10::after_autograd_keyset, x, POSENC_RANGE_ARGS, out);
}

void add_positions_out_autograd(DispatchKeySet keys, const at::Tensor& x, POSENC_POSITIONS_PARAMS,
                                const at::Tensor& out) {
  autograd::check_out_form(kOp, "x", x);
  autograd::check_out_form(kOp, "positions", positions);
  autograd::check_out_form(kOp, "out", out);
  positions_out_op().redispatch(keys & c10::after_autograd_keyset, x, POSENC_POSITIONS_ARGS, out);
}

// Forms that write: redispatched below ADInplaceOrView, then the version counter of what they wrote goes up.

template <typename Call>
void write_below(const char* op, const char* name, const at::Tensor& written, const Call& call) {
  autograd::check_version(op, name, written);
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    call();
  }
  autograd::bump_version(written);
}

void add_range_in_place_version(DispatchKeySet keys, at::Tensor& x, POSENC_RANGE_PARAMS) {
  write_below(kInPlaceOp, "x", x,
              [&] { range_in_place_op().redispatch(keys & c10::after_ADInplaceOrView_keyset, x, POSENC_RANGE_ARGS); });
}

void add_positions_in_place_version(DispatchKeySet keys, at::Tensor& x, POSENC_POSITIONS_PARAMS) {
  write_below(kInPlaceOp, "x", x, [&] {
    positions_in_place_op().redispatch(keys & c10::after_ADInplaceOrView_keyset, x, POSENC_POSITIONS_ARGS);
  });
}

void add_range_out_version(DispatchKeySet keys, const at::Tensor& x, POSENC_RANGE_PARAMS, const at::Tensor& out) {
  write_below(kOp, "out", out,
              [&] { range_out_op().redispatch(keys & c10::after_ADInplaceOrView_keyset, x, POSENC_RANGE_ARGS, out); });
}

void add_positions_out_version(DispatchKeySet keys, const at::Tensor& x, POSENC_POSITIONS_PARAMS,
                               const at::Tensor& out) {
  write_below(kOp, "out", out, [&] {
    positions_out_op().redispatch(keys & c10::after_ADInplaceOrView_keyset, x, POSENC_POSITIONS_ARGS, out);
  });
}

}  // namespace

detail::Range detail::check_range(const char* op, const at::Tensor& x, const SymInt& offset, int64_t seq_dim,
                                  POSENC_CONVENTION_PARAMS) {
  checks::x(op, x);
  const int64_t dim = checks::seq_dim(op, x, seq_dim);
  checks::range(op, x.sym_size(dim), offset);
  return {checks::convention(op, POSENC_CONVENTION_ARGS, x.sym_size(-1)), dim};
}

Convention detail::check_positions(const char* op, const at::Tensor& x, const at::Tensor& positions,
                                   POSENC_CONVENTION_PARAMS) {
  checks::x(op, x);
  checks::positions_of_x(op, positions, x);
  return checks::convention(op, POSENC_CONVENTION_ARGS, x.sym_size(-1));
}

at::Tensor add(const at::Tensor& x, int64_t offset, const AddOptions& options) {
  return range_op().call(x, offset, POSENC_RANGE_OPTIONS(options));
}

at::Tensor add(const at::Tensor& x, const at::Tensor& positions, const AddOptions& options) {
  return positions_op().call(x, positions, POSENC_POSITIONS_OPTIONS(options));
}

at::Tensor& add_(at::Tensor& x, int64_t offset, const AddOptions& options) {
  range_in_place_op().call(x, offset, POSENC_RANGE_OPTIONS(options));
  return x;
}

at::Tensor& add_(at::Tensor& x, const at::Tensor& positions, const AddOptions& options) {
  positions_in_place_op().call(x, positions, POSENC_POSITIONS_OPTIONS(options));
  return x;
}

at::Tensor& add_out(at::Tensor& out, const at::Tensor& x, int64_t offset, const AddOptions& options) {
  range_out_op().call(x, offset, POSENC_RANGE_OPTIONS(options), out);
  return out;
}

at::Tensor& add_out(at::Tensor& out, const at::Tensor& x, const at::Tensor& positions, const AddOptions& options) {
  positions_out_op().call(x, positions, POSENC_POSITIONS_OPTIONS(options), out);
  return out;
}

void detail::register_add(Registrar& registrar) {
  register_devices(registrar, "add", &add_range);
  register_devices(registrar, "add.positions", &add_positions);
  register_devices(registrar, "add_", &add_range_in_place, &add_range_in_place_composite);
  register_devices(registrar, "add_.positions", &add_positions_in_place, &add_positions_in_place_composite);
  register_devices(registrar, "add.out", &add_range_out, &add_range_out_composite);
  register_devices(registrar, "add.positions_out", &add_positions_out, &add_positions_out_composite);

  torch::Library& composite = registrar.at(DispatchKey::CompositeImplicitAutograd);
  composite.impl("add", &add_range_composite);
  composite.impl("add.positions", &add_positions_composite);

  torch::Library& batched = registrar.at(DispatchKey::FuncTorchBatched);
  batched.impl("add", &add_range_composite);
  batched.impl("add.positions", &add_positions_composite);
  batched.impl("add_", &add_range_in_place_composite);
  batched.impl("add_.positions", &add_positions_in_place_composite);

  // torch's own fallback for negated views (x.conj().imag) expects that what is written is also returned.
  torch::Library& negative = registrar.at(DispatchKey::Negative);
  negative.impl("add_", &add_range_in_place_composite);
  negative.impl("add_.positions", &add_positions_in_place_composite);
  negative.impl("add.out", &add_range_out_composite);
  negative.impl("add.positions_out", &add_positions_out_composite);

  torch::Library& gradient = registrar.at(DispatchKey::Autograd);
  gradient.impl("add", &add_range_autograd);
  gradient.impl("add.positions", &add_positions_autograd);
  gradient.impl("add_", &add_range_in_place_autograd);
  gradient.impl("add_.positions", &add_positions_in_place_autograd);
  gradient.impl("add.out", &add_range_out_autograd);
  gradient.impl("add.positions_out", &add_positions_out_autograd);

  torch::Library& version = registrar.at(DispatchKey::ADInplaceOrView);
  version.impl("add_", &add_range_in_place_version);
  version.impl("add_.positions", &add_positions_in_place_version);
  version.impl("add.out", &add_range_out_version);
  version.impl("add.positions_out", &add_positions_out_version);
}

}  // namespace posenc
