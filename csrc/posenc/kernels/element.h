#pragma once

#include <cstdint>

#include <posenc/kernels/args.h>
#include <posenc/math/rounding.h>

/// What every kernel does with one element, on the CPU and on CUDA alike, so that they agree by construction.

namespace posenc::kernels {

/// The type in which an element type is added: its own if that is float32 or float64, else float32.
template <typename scalar_t>
struct ComputeType {
  using type = float;
};
template <>
struct ComputeType<double> {
  using type = double;
};
template <typename scalar_t>
using compute_type_t = typename ComputeType<scalar_t>::type;

/// x * input_scale + alpha * encoding: three roundings in the compute type, as eager PyTorch makes them, then the one
/// into the element type. Never a fused multiply-add.
template <typename scalar_t>
POSENC_HOST_DEVICE inline scalar_t add_element(scalar_t x, compute_type_t<scalar_t> encoding,
                                               compute_type_t<scalar_t> input_scale, compute_type_t<scalar_t> alpha) {
  using compute_t = compute_type_t<scalar_t>;
  const compute_t scaled_x = math::to_float(x) * input_scale;
  const compute_t scaled_encoding = alpha * encoding;
  return math::store_as<scalar_t>(scaled_x + scaled_encoding);
}

/// Calls `function.template operator()<scalar_t>()` with the C++ type of `dtype`.
template <typename Function>
inline auto dispatch_dtype(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kFloat64:
      return function.template operator()<double>();
    case DType::kFloat32:
      return function.template operator()<float>();
    case DType::kBFloat16:
      return function.template operator()<math::BFloat16>();
    case DType::kFloat16:
      break;
  }
  return function.template operator()<math::Float16>();
}

}  // namespace posenc::kernels
