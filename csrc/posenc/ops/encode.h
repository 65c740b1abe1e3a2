#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <optional>

#include <posenc/macros.h>
#include <posenc/math/convention.h>

namespace posenc {

/// The sinusoidal encoding of positions offset, offset + 1, .., offset + seq_len - 1.
///
/// Angle of pair k at position p: p * position_scale * base^(-2k / (w - 2 * freq_shift)); see Convention for the
/// columns and for odd widths.
///
/// @param seq_len  number of positions, >= 0
/// @param d_model  width, >= 1
/// @param offset   position of the first row, in tokens, any int64; offset + seq_len <= 2^63 - 1
/// @param options  dtype float64, float32, bfloat16 or float16 (default: torch's default dtype), device (default: CPU)
/// @return (seq_len, d_model), contiguous
/// @throws c10::ValueError, c10::TypeError on a bad argument, before anything is written
///
/// Accuracy: float64 within 4e-16 while the angle is at most 2^64 rad; smaller types are that value rounded once. The
/// bits depend on nothing but (position, column, convention, dtype).
/// Source: Vaswani et al., "Attention Is All You Need", 2017, section 3.5.
POSENC_API at::Tensor encode(int64_t seq_len, int64_t d_model, int64_t offset = 0, const Convention& convention = {},
                             at::TensorOptions options = {});

/// The sinusoidal encoding of given positions.
///
/// @param positions  angle multipliers, in tokens, any shape, integer (not uint64) or floating, at their exact value;
///                   NaN or infinity gives a row of NaN. Differentiable where floating.
/// @param dtype      of the result; default: torch's default dtype, never that of positions
/// @return positions.shape + (d_model,), contiguous, on the device of positions
POSENC_API at::Tensor encode(const at::Tensor& positions, int64_t d_model, const Convention& convention = {},
                             std::optional<at::ScalarType> dtype = {});

/// encode into `out` of shape (seq_len, d_model), any strides without overlap; its dtype and device decide. Allocates
/// no tensor. Returns out.
POSENC_API at::Tensor& encode_out(at::Tensor& out, int64_t seq_len, int64_t d_model, int64_t offset = 0,
                                  const Convention& convention = {});

/// encode of positions into `out` of shape positions.shape + (d_model,).
POSENC_API at::Tensor& encode_out(at::Tensor& out, const at::Tensor& positions, int64_t d_model,
                                  const Convention& convention = {});

}  // namespace posenc
