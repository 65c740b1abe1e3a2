#include <posenc/ops/library.h>

#include <c10/util/Exception.h>

#include <string>

#include <posenc/kernels/cpu/simd.h>
#include <posenc/ops/memory.h>
#include <posenc/ops/registrar.h>
#include <posenc/version.h>

namespace posenc {
namespace {

// All schemas. The overload on positions stands before the one on a range: torch takes the first that fits, and a
// one-element tensor would also pass as an int. Ops that write return nothing: an alias of an argument cannot be
// functionalised.
#define POSENC_CONVENTION                                                                           \
  "float base=10000.0, float freq_shift=0.0, float position_scale=1.0, str order=\"interleaved\", " \
  "str odd=\"sin\""

constexpr const char* kSchemas[] = {
    "encode.positions(Tensor positions, SymInt d_model, *, " POSENC_CONVENTION ", ScalarType? dtype=None) -> Tensor",
    "encode(SymInt seq_len, SymInt d_model, SymInt offset=0, *, " POSENC_CONVENTION
    ", ScalarType? dtype=None, Device? device=None) -> Tensor",
    "encode.positions_out(Tensor positions, SymInt d_model, *, " POSENC_CONVENTION ", Tensor(a!) out) -> ()",
    "encode.out(SymInt seq_len, SymInt d_model, SymInt offset=0, *, " POSENC_CONVENTION ", Tensor(a!) out) -> ()",

    "add.positions(Tensor x, Tensor positions, *, float input_scale=1.0, float alpha=1.0, " POSENC_CONVENTION
    ") -> Tensor",
    "add(Tensor x, SymInt offset=0, *, int seq_dim=-2, float input_scale=1.0, float alpha=1.0, " POSENC_CONVENTION
    ") -> Tensor",
    "add_.positions(Tensor(a!) x, Tensor positions, *, float input_scale=1.0, float alpha=1.0, " POSENC_CONVENTION
    ") -> ()",
    "add_(Tensor(a!) x, SymInt offset=0, *, int seq_dim=-2, float input_scale=1.0, float alpha=1.0, " POSENC_CONVENTION
    ") -> ()",
    "add.positions_out(Tensor x, Tensor positions, *, float input_scale=1.0, float alpha=1.0, " POSENC_CONVENTION
    ", Tensor(a!) out) -> ()",
    "add.out(Tensor x, SymInt offset=0, *, int seq_dim=-2, float input_scale=1.0, float alpha=1.0, " POSENC_CONVENTION
    ", Tensor(a!) out) -> ()",

    "_dropout_backward(Tensor grad, Tensor rng_state, float p, float input_scale) -> Tensor",
};

// Those that draw from a generator. TorchScript does not look at tags: for it these have side effects, or it would make
// one call of two equal ones.
constexpr const char* kRandomSchemas[] = {
    "add_dropout.positions(Tensor x, float p, Tensor positions, *, float input_scale=1.0, float "
    "alpha=1.0, " POSENC_CONVENTION ", Generator? generator=None) -> (Tensor out, Tensor rng_state)",
    "add_dropout(Tensor x, float p, SymInt offset=0, *, int seq_dim=-2, float input_scale=1.0, float "
    "alpha=1.0, " POSENC_CONVENTION ", Generator? generator=None) -> (Tensor out, Tensor rng_state)",
};

std::string registered_version() { return POSENC_VERSION; }
std::string simd_level() { return kernels::cpu::simd_level_name(kernels::cpu::simd_level()); }
int64_t last_level_cache() { return memory::caches().last_level; }

// Note [Two copies in one process]
// TORCH_LIBRARY aborts the process when a second copy of a library is loaded (one from the wheel and one from
// `cmake --install`, say). So nothing is registered by macro: this object looks first, and a second copy stands back
// and uses the operators of the first. An exception must not leave a static constructor, so a copy of another version
// is noticed here and reported by register_ops(), which every typed function passes through.
class Registration {
 public:
  Registration() {
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    if (const auto other = dispatcher.findSchema({"posenc::_version", ""})) {
      other_version_ = other->typed<std::string()>().call();
      return;
    }
    // Never deleted: other threads may still call an operator while the process ends.
    auto& registrar = *new detail::Registrar;
    torch::Library& schemas = registrar.schemas();
    schemas.def("_version() -> str", &registered_version);
    // What the CPU path found of the machine, for benchmarks and reports.
    schemas.def("_simd_level() -> str", &simd_level);
    schemas.def("_last_level_cache() -> int", &last_level_cache);
    for (const char* schema : kSchemas) schemas.def(schema, {at::Tag::pt2_compliant_tag});
    for (const char* schema : kRandomSchemas) {
      schemas.def(torch::schema(schema, c10::AliasAnalysisKind::CONSERVATIVE),
                  {at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded});
    }
    detail::register_encode(registrar);
    detail::register_add(registrar);
    detail::register_add_dropout(registrar);
  }

  void check() const {
    TORCH_CHECK(other_version_.empty() || other_version_ == POSENC_VERSION,
                "posenc: the process must use one version, "
                "but got ",
                POSENC_VERSION, " after ", other_version_, " had been loaded. Remove one of the two.");
  }

 private:
  std::string other_version_;
};

const Registration registration;

}  // namespace

void register_ops() { registration.check(); }

namespace detail {

torch::Library& Registrar::at(c10::DispatchKey key) {
  const auto found = kernels_.find(key);
  if (found != kernels_.end()) return found->second;
  return kernels_.emplace(key, torch::Library(torch::Library::IMPL, "posenc", key, __FILE__, __LINE__)).first->second;
}

}  // namespace detail
}  // namespace posenc
