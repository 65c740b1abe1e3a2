#include <posenc/ops/checks.h>

#include <ATen/MemoryOverlap.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/Exception.h>
#include <c10/util/bit_cast.h>

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <posenc/math/columns.h>

// SymInt comparisons that a check relies on: recorded as a run-time assertion where the sizes are not known yet.
#define POSENC_SYM_CHECK(condition) ((condition).expect_true(__FILE__, __LINE__))

namespace posenc {
namespace {

constexpr std::array<std::pair<const char*, Order>, 4> kOrders{{
    {"interleaved", Order::kInterleaved},
    {"interleaved_cos_first", Order::kInterleavedCosFirst},
    {"split", Order::kSplit},
    {"split_cos_first", Order::kSplitCosFirst},
}};

constexpr std::array<std::pair<const char*, Odd>, 4> kOdds{{
    {"sin", Odd::kSin},
    {"zero", Odd::kZero},
    {"cut", Odd::kCut},
    {"error", Odd::kError},
}};

template <typename Enum, std::size_t n>
Enum parse(const char* op, const char* argument, const std::array<std::pair<const char*, Enum>, n>& names,
           c10::string_view text) {
  for (const auto& [name, value] : names) {
    if (text == name) return value;
  }
  std::string choices;
  for (std::size_t i = 0; i < n; ++i) {
    choices += i == 0 ? "" : (i + 1 == n ? " or " : ", ");
    choices += std::string("\"") + names[i].first + "\"";
  }
  TORCH_CHECK_VALUE(false, op, ": ", argument, " must be ", choices, ", but got \"", text, "\".");
}

template <typename Enum, std::size_t n>
c10::string_view name_of(const std::array<std::pair<const char*, Enum>, n>& names, Enum value) {
  for (const auto& [name, candidate] : names) {
    if (candidate == value) return name;
  }
  return "unknown";  // a value cast from outside the enum: parse() refuses it by name
}

/// "float32", not the "Float" that ScalarType prints.
c10::string_view dtype_name(at::ScalarType dtype) { return c10::getDtypeNames(dtype).first; }

bool is_result_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf;
}

void strided(const char* op, const char* name, const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(!tensor.is_nested(), op, ": ", name, " must be a plain tensor, but got a nested one.");
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided, op, ": ", name,
                              " must be a strided tensor, but got layout ", tensor.layout(), ". Use ", name,
                              ".to_dense().");
}

}  // namespace

c10::string_view order_name(Order order) { return name_of(kOrders, order); }

c10::string_view odd_name(Odd odd) { return name_of(kOdds, odd); }

namespace checks {

Convention convention(const char* op, double base, double freq_shift, double position_scale, c10::string_view order,
                      c10::string_view odd, const c10::SymInt& d_model) {
  TORCH_CHECK_VALUE(POSENC_SYM_CHECK(d_model.sym_ge(1)), op, ": d_model must be at least 1, but got ", d_model, ".");
  // By bits: where subnormal numbers are read as zero, such a base is still one.
  const auto base_bits = c10::bit_cast<std::uint64_t>(base);
  TORCH_CHECK_VALUE(base_bits > 0 && base_bits < 0x7FF0000000000000u, op,
                    ": base must be finite and greater than 0, but got ", base, ".");
  TORCH_CHECK_VALUE(std::isfinite(freq_shift), op, ": freq_shift must be finite, but got ", freq_shift, ".");
  TORCH_CHECK_VALUE(std::isfinite(position_scale), op, ": position_scale must be finite, but got ", position_scale,
                    ".");
  Convention result{base, freq_shift, position_scale, parse(op, "order", kOrders, order), parse(op, "odd", kOdds, odd)};
  // Of a width that is not known yet the rest is checked when the kernel runs.
  const std::optional<int64_t> width = d_model.maybe_as_int();
  if (!width.has_value()) return result;
  TORCH_CHECK_VALUE(*width % 2 == 0 || result.odd != Odd::kError, op,
                    ": d_model must be even with odd=\"error\", but got ", *width,
                    ". Use odd=\"sin\", \"zero\" or \"cut\" for an odd width.");
  TORCH_CHECK_VALUE(*width < std::numeric_limits<int64_t>::max() || result.odd != Odd::kCut, op,
                    ": d_model must be below 2^63 - 1 with odd=\"cut\", but got ", *width, ".");
  // Exact: 2 * freq_shift is exact in double, and a width beyond 2^53 equals it only if it is that very integer.
  const int64_t effective = math::effective_width(*width, result.odd);
  const double twice_shift = 2.0 * freq_shift;
  const bool vanishes = twice_shift >= 0.0 && twice_shift < 0x1p63 && static_cast<int64_t>(twice_shift) == effective &&
                        static_cast<double>(static_cast<int64_t>(twice_shift)) == twice_shift;
  TORCH_CHECK_VALUE(!vanishes || math::make_columns(*width, result.order, result.odd).num_first <= 1, op,
                    ": freq_shift must leave a denominator d_model - 2 * freq_shift other than 0, but got ", freq_shift,
                    " with d_model ", *width, ".");
  return result;
}

void range(const char* op, const c10::SymInt& seq_len, const c10::SymInt& offset) {
  TORCH_CHECK_VALUE(POSENC_SYM_CHECK(seq_len.sym_ge(0)), op, ": seq_len must be at least 0, but got ", seq_len, ".");
  const std::optional<int64_t> count = seq_len.maybe_as_int();
  const std::optional<int64_t> first = offset.maybe_as_int();
  if (!count.has_value() || !first.has_value()) return;
  TORCH_CHECK_VALUE(*first <= std::numeric_limits<int64_t>::max() - *count, op,
                    ": offset + seq_len must be at most 2^63 - 1, but got offset ", *first, " and seq_len ", *count,
                    ".");
}

void element_count(const char* op, const c10::SymInt& tokens, const c10::SymInt& d_model) {
  const std::optional<int64_t> rows = tokens.maybe_as_int();
  const std::optional<int64_t> width = d_model.maybe_as_int();
  if (!rows.has_value() || !width.has_value()) return;
  int64_t elements = 0;
  TORCH_CHECK_VALUE(!__builtin_mul_overflow(*rows, *width, &elements), op,
                    ": the result must have at most 2^63 - 1 elements, but got ", *rows, " rows of d_model ", *width,
                    ".");
}

at::ScalarType result_dtype(const char* op, std::optional<at::ScalarType> dtype) {
  const at::ScalarType result = dtype.has_value() ? *dtype : c10::get_default_dtype_as_scalartype();
  TORCH_CHECK_TYPE(is_result_dtype(result), op, ": dtype must be float64, float32, bfloat16 or float16, but got ",
                   dtype_name(result), ".");
  return result;
}

void positions(const char* op, const at::Tensor& positions) {
  const at::ScalarType dtype = positions.scalar_type();
  const bool integer = c10::isIntegralType(dtype, /*includeBool=*/false) && dtype != at::kUInt64 &&
                       !c10::isQIntType(dtype) && !c10::isBitsType(dtype);
  TORCH_CHECK_TYPE(
      integer || is_result_dtype(dtype), op,
      ": positions must be integer (not bool or uint64) or float64, float32, bfloat16 or float16, but got ",
      dtype_name(dtype), ".", dtype == at::kUInt64 ? " Use positions.to(torch.int64)." : "");
  strided(op, "positions", positions);
}

void x(const char* op, const at::Tensor& x) {
  TORCH_CHECK_TYPE(is_result_dtype(x.scalar_type()), op, ": x must be float64, float32, bfloat16 or float16, but got ",
                   dtype_name(x.scalar_type()), ".");
  strided(op, "x", x);
  TORCH_CHECK_VALUE(x.dim() >= 2, op, ": x must have at least 2 dimensions (..., seq_len, d_model), but got shape ",
                    x.sym_sizes(), ".", x.dim() == 1 ? " Use x.unsqueeze(0) for a single position." : "");
  TORCH_CHECK_VALUE(POSENC_SYM_CHECK(x.sym_size(-1).sym_ge(1)), op,
                    ": x must have a last dimension (d_model) of at least 1, but got shape ", x.sym_sizes(), ".");
}

void positions_of_x(const char* op, const at::Tensor& positions, const at::Tensor& x) {
  checks::positions(op, positions);
  TORCH_CHECK_VALUE(positions.device() == x.device(), op, ": positions must be on the device of x (", x.device(),
                    "), but got ", positions.device(), ". Use positions.to(x.device).");
  const int64_t token_dims = x.dim() - 1;
  const c10::SymIntArrayRef shape = positions.sym_sizes();
  bool broadcasts = positions.dim() <= token_dims;
  for (int64_t i = 1; broadcasts && i <= positions.dim(); ++i) {
    const c10::SymInt& size = shape[static_cast<std::size_t>(positions.dim() - i)];
    // A size that is only known to be equal at run time is asserted there; 1 is the one size that broadcasts.
    if (TORCH_GUARD_OR_FALSE(size.sym_eq(1))) continue;
    broadcasts = POSENC_SYM_CHECK(size.sym_eq(x.sym_size(token_dims - i)));
  }
  TORCH_CHECK_VALUE(broadcasts, op, ": positions must broadcast to the shape of x without its last dimension, ",
                    x.sym_sizes().slice(0, static_cast<std::size_t>(token_dims)), ", but got shape ", shape, ".");
}

int64_t seq_dim(const char* op, const at::Tensor& x, int64_t seq_dim) {
  const int64_t rank = x.dim();
  TORCH_CHECK_INDEX(seq_dim >= -rank && seq_dim < rank, op, ": seq_dim must be in the range [", -rank, ", ", rank - 1,
                    "], but got ", seq_dim, ".");
  const int64_t dim = seq_dim < 0 ? seq_dim + rank : seq_dim;
  TORCH_CHECK_VALUE(dim != rank - 1, op, ": seq_dim must not be the last dimension (d_model), but got ", seq_dim, ".");
  return dim;
}

void probability(const char* op, double p) {
  TORCH_CHECK_VALUE(p >= 0.0 && p <= 1.0, op, ": p must be between 0 and 1, but got ", p, ".");
}

void generator(const char* op, const std::optional<at::Generator>& generator, const at::Tensor& x) {
  // A fake tensor shows itself here as one on the meta device.
  if (!generator.has_value() || !generator->defined() || x.is_meta()) return;
  TORCH_CHECK_VALUE(generator->device().type() == x.device().type(), op, ": generator must be of the device of x (",
                    x.device(), "), but got one of ", generator->device(), ". Use torch.Generator(x.device).");
}

void rng_state(const char* op, const at::Tensor& rng_state, const at::Tensor& grad) {
  TORCH_CHECK_TYPE(rng_state.scalar_type() == at::kLong, op, ": rng_state must be int64, but got ",
                   dtype_name(rng_state.scalar_type()), ".");
  const bool two = rng_state.dim() == 1 && POSENC_SYM_CHECK(rng_state.sym_size(0).sym_eq(2));
  TORCH_CHECK_VALUE(two, op, ": rng_state must have shape [2], but got ", rng_state.sym_sizes(), ".");
  TORCH_CHECK_VALUE(rng_state.device() == grad.device(), op, ": rng_state must be on the device of grad (",
                    grad.device(), "), but got ", rng_state.device(), ".");
}

void out(const char* op, const at::Tensor& out, c10::SymIntArrayRef shape, std::optional<at::ScalarType> dtype,
         std::optional<at::Device> device) {
  if (dtype.has_value()) {
    TORCH_CHECK_TYPE(out.scalar_type() == *dtype, op, ": out must have dtype ", dtype_name(*dtype), ", but got ",
                     dtype_name(out.scalar_type()), ".");
  } else {
    TORCH_CHECK_TYPE(is_result_dtype(out.scalar_type()), op,
                     ": out must be float64, float32, bfloat16 or float16, but got ", dtype_name(out.scalar_type()),
                     ".");
  }
  strided(op, "out", out);
  TORCH_CHECK_VALUE(!device.has_value() || out.device() == *device, op, ": out must be on device ", *device,
                    ", but got ", out.device(), ".");
  bool equal = out.dim() == static_cast<int64_t>(shape.size());
  for (std::size_t i = 0; equal && i < shape.size(); ++i) {
    equal = POSENC_SYM_CHECK(out.sym_size(static_cast<int64_t>(i)).sym_eq(shape[i]));
  }
  TORCH_CHECK_VALUE(equal, op, ": out must have shape ", shape, ", but got ", out.sym_sizes(), ".");
  writable(op, "out", out);
}

void writable(const char* op, const char* name, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, op, ": ", name,
                    " must have no two elements in one place of memory, but got strides ", tensor.sym_strides(),
                    " for shape ", tensor.sym_sizes(), ". Use ", name, ".contiguous() or ", name, ".clone().");
}

void no_overlap(const char* op, const char* name, const at::Tensor& out, const char* input_name,
                const at::Tensor& input, bool may_be_equal) {
  const at::MemOverlapStatus status = at::get_overlap_status(out, input);
  const bool fine = status == at::MemOverlapStatus::No || status == at::MemOverlapStatus::TooHard ||
                    (may_be_equal && status == at::MemOverlapStatus::Full);
  TORCH_CHECK_VALUE(fine, op, ": ", name, " must not share memory with ", input_name,
                    may_be_equal ? " unless they are the same view" : "", ", but got overlapping tensors. Use ",
                    input_name, ".clone().");
}

}  // namespace checks
}  // namespace posenc
