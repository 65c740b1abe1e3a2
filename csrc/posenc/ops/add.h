#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include <posenc/macros.h>
#include <posenc/math/convention.h>

namespace posenc {

/// What `add` takes beside x and the positions.
struct AddOptions {
  double input_scale = 1.0;  ///< factor on x
  double alpha = 1.0;        ///< factor on the encoding
  int64_t seq_dim = -2;      ///< dimension of x along which positions count up; not used with given positions
  Convention convention = {};
};

/// x * input_scale + alpha * encoding, for positions offset, offset + 1, .. along dimension seq_dim of x.
///
/// Bit for bit what eager PyTorch gives for
/// `(x.float() * input_scale + alpha * encode(..., float32)).to(x.dtype)` (in float64 for float64 x), in one pass.
///
/// @param x       (..., seq_len, d_model), at least 2 dimensions, float64, float32, bfloat16 or float16, any strides
/// @param offset  position of the first token, in tokens
/// @return the dtype, shape, device and (dense) strides of x; differentiable, twice and more
/// @throws c10::ValueError, c10::TypeError, c10::IndexError on a bad argument, before anything is written
POSENC_API at::Tensor add(const at::Tensor& x, int64_t offset = 0, const AddOptions& options = {});

/// The same at given positions, integer or floating, which broadcast to x.shape[:-1]; on the device of x.
POSENC_API at::Tensor add(const at::Tensor& x, const at::Tensor& positions, const AddOptions& options = {});

/// add in place; returns x. Allocates no tensor unless x needs a gradient.
POSENC_API at::Tensor& add_(at::Tensor& x, int64_t offset = 0, const AddOptions& options = {});
POSENC_API at::Tensor& add_(at::Tensor& x, const at::Tensor& positions, const AddOptions& options = {});

/// add into `out`, of the shape, dtype and device of x; it may be x itself but share no other memory with it. Returns
/// out. Refuses inputs that require grad, as ATen's out forms do.
POSENC_API at::Tensor& add_out(at::Tensor& out, const at::Tensor& x, int64_t offset = 0,
                               const AddOptions& options = {});
POSENC_API at::Tensor& add_out(at::Tensor& out, const at::Tensor& x, const at::Tensor& positions,
                               const AddOptions& options = {});

}  // namespace posenc
