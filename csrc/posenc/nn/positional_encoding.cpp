#include <posenc/nn/positional_encoding.h>

#include <c10/util/Exception.h>
#include <torch/types.h>

#include <tuple>

#include <posenc/ops/add.h>
#include <posenc/ops/add_dropout.h>
#include <posenc/ops/checks.h>
#include <posenc/ops/encode.h>

namespace posenc::nn {
namespace {

constexpr const char* kName = "PositionalEncoding";

/// Positions as they broadcast to x without its last dimension: (batch, seq_len) is turned where x is seq-first.
torch::Tensor align_positions(const torch::Tensor& positions, const torch::Tensor& x, bool batch_first) {
  if (batch_first || x.dim() < 3) return positions;
  return positions.dim() == 2 ? positions.t() : positions.unsqueeze(-1);
}

}  // namespace

PositionalEncodingImpl::PositionalEncodingImpl(const PositionalEncodingOptions& options_) : options(options_) {
  reset();
}

void PositionalEncodingImpl::reset() {
  const Convention& convention = options.convention();
  checks::convention(kName, convention.base, convention.freq_shift, convention.position_scale,
                     order_name(convention.order), odd_name(convention.odd), options.d_model());
  TORCH_CHECK_VALUE(options.dropout() >= 0.0 && options.dropout() <= 1.0, kName,
                    ": dropout must be between 0 and 1, but got ", options.dropout(), ".");
  TORCH_CHECK_VALUE(!options.max_len().has_value() || *options.max_len() >= 0, kName,
                    ": max_len must be at least 0, but got ", options.max_len().value_or(0), ".");
  if (options.learnable_alpha()) alpha = register_parameter("alpha", torch::tensor(options.alpha()));
}

void PositionalEncodingImpl::pretty_print(std::ostream& stream) const {
  const PositionalEncodingOptions defaults(options.d_model());
  const Convention& convention = options.convention();
  const Convention standard;
  stream << "posenc::nn::PositionalEncoding(d_model=" << options.d_model();
  if (options.dropout() != defaults.dropout()) stream << ", dropout=" << options.dropout();
  if (options.max_len().has_value()) stream << ", max_len=" << *options.max_len();
  if (!options.batch_first()) stream << ", batch_first=false";
  if (options.input_scale() != defaults.input_scale()) stream << ", input_scale=" << options.input_scale();
  if (options.alpha() != defaults.alpha()) stream << ", alpha=" << options.alpha();
  if (options.learnable_alpha()) stream << ", learnable_alpha=true";
  if (convention.base != standard.base) stream << ", base=" << convention.base;
  if (convention.freq_shift != standard.freq_shift) stream << ", freq_shift=" << convention.freq_shift;
  if (convention.position_scale != standard.position_scale) stream << ", position_scale=" << convention.position_scale;
  if (convention.order != standard.order) stream << ", order=" << order_name(convention.order);
  if (convention.odd != standard.odd) stream << ", odd=" << odd_name(convention.odd);
  stream << ")";
}

torch::Tensor PositionalEncodingImpl::forward(const torch::Tensor& x, int64_t offset,
                                              const std::optional<torch::Tensor>& positions) {
  checks::x(kName, x);
  TORCH_CHECK_VALUE(x.size(-1) == options.d_model(), kName, ": x must have a last dimension of d_model ",
                    options.d_model(), ", but got shape ", x.sizes(), ".");
  TORCH_CHECK_VALUE(!positions.has_value() || offset == 0, kName,
                    ": offset must be 0 where positions are given, but got ", offset, ". Add it to the positions.");
  const int64_t seq_dim = options.batch_first() || x.dim() == 2 ? -2 : -3;
  if (options.max_len().has_value() && !positions.has_value()) {
    const int64_t seq_len = x.size(seq_dim);
    const bool fits = offset >= 0 && offset <= *options.max_len() - seq_len;
    TORCH_CHECK_VALUE(fits, kName, ": offset and offset + seq_len must be between 0 and max_len ", *options.max_len(),
                      ", but got offset ", offset, " and seq_len ", seq_len, ".");
  }

  const AddOptions add_options{options.input_scale(), options.alpha(), seq_dim, options.convention()};
  torch::Tensor aligned;
  if (positions.has_value()) aligned = align_positions(*positions, x, options.batch_first());

  if (!alpha.defined()) {
    const double p = is_training() ? options.dropout() : 0.0;
    if (p == 0.0) return aligned.defined() ? add(x, aligned, add_options) : add(x, offset, add_options);
    return std::get<0>(aligned.defined() ? add_dropout(x, p, aligned, add_options)
                                         : add_dropout(x, p, offset, add_options));
  }

  const auto dtype = x.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  torch::Tensor encoding = aligned.defined() ? encode(aligned, options.d_model(), options.convention(), dtype)
                                             : encode(x.size(seq_dim), options.d_model(), offset, options.convention(),
                                                      x.options().dtype(dtype));
  if (!aligned.defined() && seq_dim == -3) encoding = encoding.unsqueeze(1);
  const torch::Tensor sum = (x.to(dtype) * options.input_scale() + alpha * encoding).to(x.scalar_type());
  return at::dropout(sum, options.dropout(), is_training());
}

}  // namespace posenc::nn
