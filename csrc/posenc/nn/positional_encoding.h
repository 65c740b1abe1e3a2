#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>
#include <ostream>

#include <posenc/macros.h>
#include <posenc/math/convention.h>

namespace posenc::nn {

/// Options of PositionalEncoding.
///
/// Example:
/// ```
/// PositionalEncoding encoding(PositionalEncodingOptions(512).dropout(0.1).max_len(5000));
/// ```
struct POSENC_API PositionalEncodingOptions {
  /* implicit */ PositionalEncodingOptions(int64_t d_model) : d_model_(d_model) {}

  /// Width of the encoding, the last dimension of x.
  TORCH_ARG(int64_t, d_model);

  /// Probability with which an element of the sum is zeroed in training. Default: 0.
  TORCH_ARG(double, dropout) = 0.0;

  /// If given, the checked limit of offset + seq_len. Nothing is stored for it. Default: no limit.
  TORCH_ARG(std::optional<int64_t>, max_len) = std::nullopt;

  /// x is (batch, seq_len, d_model) if true, else (seq_len, batch, d_model). Default: true.
  TORCH_ARG(bool, batch_first) = true;

  /// Factor on x. Default: 1.
  TORCH_ARG(double, input_scale) = 1.0;

  /// Factor on the encoding. Default: 1.
  TORCH_ARG(double, alpha) = 1.0;

  /// Makes alpha a parameter that starts at the value of `alpha`. Default: false.
  TORCH_ARG(bool, learnable_alpha) = false;

  /// The convention of the encoding. Default: that of the paper.
  TORCH_ARG(Convention, convention) = {};
};

/// dropout(x * input_scale + alpha * encoding): adds the sinusoidal encoding to x. See posenc::add for the encoding,
/// its dtypes and its accuracy, and posenc::add_dropout for the dropout, which is one pass with the addition (torch's
/// own one follows where alpha is learnable).
///
/// Stateless: no table, no buffer, no parameter but a learnable alpha, and any length unless max_len is given.
class POSENC_API PositionalEncodingImpl : public torch::nn::Cloneable<PositionalEncodingImpl> {
 public:
  PositionalEncodingImpl(int64_t d_model) : PositionalEncodingImpl(PositionalEncodingOptions(d_model)) {}
  explicit PositionalEncodingImpl(const PositionalEncodingOptions& options_);

  void reset() override;

  /// `PositionalEncoding(d_model=512, dropout=0.1)`: what differs from the defaults.
  void pretty_print(std::ostream& stream) const override;

  /// @param x          (batch, seq_len, d_model), (seq_len, batch, d_model) without batch_first, or (seq_len, d_model)
  /// @param offset     position of the first token; other than 0 only without positions
  /// @param positions  (seq_len,) or (batch, seq_len), whatever batch_first says; integer or floating
  torch::Tensor forward(const torch::Tensor& x, int64_t offset = 0,
                        const std::optional<torch::Tensor>& positions = std::nullopt);

  PositionalEncodingOptions options;

  /// The learnable alpha, 0-dimensional; undefined without learnable_alpha.
  torch::Tensor alpha;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(int64_t{0})},
                           {2, torch::nn::AnyValue(std::optional<torch::Tensor>())})
};

TORCH_MODULE(PositionalEncoding);

}  // namespace posenc::nn
