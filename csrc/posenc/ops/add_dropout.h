#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include <posenc/macros.h>
#include <posenc/ops/add.h>

namespace posenc {

/// Dropout of `add(x, offset, options)`, in one pass: with probability p an element is +0, else that value times
/// 1 / (1 - p), multiplied in float32 (float64 for float64 x) and rounded to the dtype of x once more.
///
/// p is met to 2^-32. The mask depends on seed, offset and the index of an element in the shape of x, not on strides,
/// threads, instruction set or device. Nothing of the size of x is kept for the backward.
///
/// @param x          as in add
/// @param p          probability of a zero, 0 to 1; 0 gives the bits of add and draws nothing, 1 gives zeros
/// @param generator  of the device of x; by default the device's own, which torch::manual_seed sets
/// @return the result, differentiable any number of times, and rng_state: int64, seed and offset of the mask; zeros
///         where nothing was drawn; no elements where ATen operations have run: in forward mode, under functorch,
///         for positions that need a gradient and on devices without a kernel of ours
/// @throws c10::ValueError, c10::TypeError, c10::IndexError on a bad argument, before anything is drawn
POSENC_API std::tuple<at::Tensor, at::Tensor> add_dropout(const at::Tensor& x, double p, int64_t offset = 0,
                                                          const AddOptions& options = {},
                                                          const std::optional<at::Generator>& generator = {});

/// The same at given positions, integer or floating, which broadcast to x.shape[:-1]; on the device of x.
POSENC_API std::tuple<at::Tensor, at::Tensor> add_dropout(const at::Tensor& x, double p, const at::Tensor& positions,
                                                          const AddOptions& options = {},
                                                          const std::optional<at::Generator>& generator = {});

}  // namespace posenc
