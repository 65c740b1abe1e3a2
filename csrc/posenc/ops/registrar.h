#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <map>

#include <posenc/ops/convention_args.h>
#include <posenc/ops/library.h>

namespace posenc::detail {

/// The torch libraries that hold our registrations, one for each dispatch key, made when first asked for.
class Registrar {
 public:
  torch::Library& schemas() { return schemas_; }
  torch::Library& at(c10::DispatchKey key);

 private:
  torch::Library schemas_{torch::Library::DEF, "posenc", std::nullopt, __FILE__, __LINE__};
  std::map<c10::DispatchKey, torch::Library> kernels_;
};

void register_encode(Registrar& registrar);
void register_add(Registrar& registrar);
void register_add_dropout(Registrar& registrar);

/// The typed handle of an operator; callers keep it in a static.
template <typename Signature>
c10::TypedOperatorHandle<Signature> typed_handle(const char* name, const char* overload) {
  register_ops();
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Signature>();
}

/// Registers `kernel` for the devices that have kernels of ours and for fake tensors.
template <typename Function>
void register_devices(Registrar& registrar, const char* name, Function* kernel) {
  registrar.at(c10::DispatchKey::CPU).impl(name, kernel);
#if defined(POSENC_WITH_CUDA)
  registrar.at(c10::DispatchKey::CUDA).impl(name, kernel);
#endif
  registrar.at(c10::DispatchKey::Meta).impl(name, kernel);
}

/// The same, and `elsewhere` for every other device.
template <typename Function>
void register_devices(Registrar& registrar, const char* name, Function* kernel, Function* elsewhere) {
  register_devices(registrar, name, kernel);
  registrar.at(c10::DispatchKey::CompositeExplicitAutograd).impl(name, elsewhere);
}

/// The operators that the composite form of another is made of, with symbolic sizes.
using EncodeRangeOp =
    c10::TypedOperatorHandle<at::Tensor(c10::SymInt, c10::SymInt, c10::SymInt, POSENC_CONVENTION_TYPES,
                                        std::optional<at::ScalarType>, std::optional<at::Device>)>;
using EncodePositionsOp = c10::TypedOperatorHandle<at::Tensor(const at::Tensor&, c10::SymInt, POSENC_CONVENTION_TYPES,
                                                              std::optional<at::ScalarType>)>;
const EncodeRangeOp& encode_range_op();
const EncodePositionsOp& encode_positions_op();

}  // namespace posenc::detail
