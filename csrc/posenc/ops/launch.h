#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include <posenc/math/convention.h>

/// The one place that knows strides, threads, devices and streams: turns tensors into kernel arguments and runs the
/// kernel on the CPU (at::parallel_for) or on the current CUDA stream. Arguments are checked before; nothing here
/// allocates a tensor. `fresh` says that out has just been allocated, so that its pages are not there yet.

namespace posenc::launch {

/// out[i, :] = encoding of position offset + i; out is (seq_len, d_model).
void encode(const at::Tensor& out, bool fresh, int64_t offset, const Convention& convention);

/// out[..., :] = encoding of positions[...]; out is positions.shape + (d_model,).
void encode(const at::Tensor& out, bool fresh, const at::Tensor& positions, const Convention& convention);

/// Dropout of what add computes, with probability 0 < p < 1.
struct Dropout {
  double p;
  const std::optional<at::Generator>& generator;  ///< drawn from; by default the generator of the device
  const at::Tensor& rng_state;                    ///< gets what was drawn, seed and offset: int64, 2 dense elements
};

/// out = x * input_scale + alpha * encoding, positions offset, offset + 1, .. along dimension seq_dim >= 0; or dropout
/// of that.
void add(const at::Tensor& out, bool fresh, const at::Tensor& x, int64_t offset, int64_t seq_dim, double input_scale,
         double alpha, const Convention& convention, const Dropout* dropout = nullptr);

/// The same at given positions, which broadcast to x.shape[:-1].
void add(const at::Tensor& out, bool fresh, const at::Tensor& x, const at::Tensor& positions, double input_scale,
         double alpha, const Convention& convention, const Dropout* dropout = nullptr);

/// out = grad * input_scale / (1 - p) where the mask of rng_state keeps it, else 0; 0 < p < 1.
void dropout_backward(const at::Tensor& out, const at::Tensor& grad, const at::Tensor& rng_state, double p,
                      double input_scale);

}  // namespace posenc::launch
