#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

/// What the Autograd and ADInplaceOrView kernels of all ops share.

namespace posenc::autograd {

inline bool needs_gradient(const at::Tensor& tensor) { return at::GradMode::is_enabled() && tensor.requires_grad(); }

/// A forward-mode tangent rides on the tensor.
inline bool has_tangent(const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }

/// A functorch transform is active, under which a C++ autograd::Function is refused.
inline bool in_functorch() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
}

/// Out forms do not differentiate, as in ATen.
inline void check_out_form(const char* op, const char* name, const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(!needs_gradient(tensor), op, ": ", name,
                              " must not require grad in a form that writes into out, but got requires_grad=True. Use "
                              "the form that returns its result, or torch.no_grad().");
  TORCH_CHECK_NOT_IMPLEMENTED(!has_tangent(tensor), op, ": ", name,
                              " must not carry a forward-mode tangent in a form that writes into out, but got one. Use "
                              "the form that returns its result.");
}

/// Before a kernel of ours writes: the counter below must be able to go up.
inline void check_version(const char* op, const char* name, const at::Tensor& tensor) {
  TORCH_CHECK(!tensor.is_inference() || c10::InferenceMode::is_enabled(), op, ": ", name,
              " must not be an inference tensor outside InferenceMode, but got one. Use ", name, ".clone().");
}

/// Tells autograd that a kernel of ours has written into `tensor`.
inline void bump_version(const at::Tensor& tensor) { tensor.unsafeGetTensorImpl()->bump_version(); }

}  // namespace posenc::autograd
