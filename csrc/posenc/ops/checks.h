#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/core/SymInt.h>
#include <c10/util/string_view.h>

#include <cstdint>
#include <optional>

#include <posenc/math/convention.h>

/// Every check of an argument and its text, shared by all ops and all backends (fake tensors included, so sizes are
/// SymInt). A text reads `<op>: <argument> must <rule>, but got <value>.` and names the remedy where there is one.
/// ValueError for values, TypeError for types and dtypes, IndexError for dimensions, NotImplementedError for the rest.

namespace posenc::checks {

/// The convention that the five arguments mean for an encoding of width d_model.
Convention convention(const char* op, double base, double freq_shift, double position_scale, c10::string_view order,
                      c10::string_view odd, const c10::SymInt& d_model);

/// seq_len and offset of a range of positions: seq_len >= 0, offset + seq_len within int64.
void range(const char* op, const c10::SymInt& seq_len, const c10::SymInt& offset);

/// A result of `tokens` rows of d_model columns has at most 2^63 - 1 elements.
void element_count(const char* op, const c10::SymInt& tokens, const c10::SymInt& d_model);

/// The dtype of a result: torch's default where none is asked for; float64, float32, bfloat16 or float16.
at::ScalarType result_dtype(const char* op, std::optional<at::ScalarType> dtype);

/// positions are strided and integer or floating, not uint64.
void positions(const char* op, const at::Tensor& positions);

/// x is a strided floating tensor (..., d_model) of at least 2 dimensions and d_model >= 1.
void x(const char* op, const at::Tensor& x);

/// positions broadcast to x.shape[:-1] and stand on the device of x.
void positions_of_x(const char* op, const at::Tensor& positions, const at::Tensor& x);

/// seq_dim as a dimension from 0; it is a dimension of x and not the last one.
int64_t seq_dim(const char* op, const at::Tensor& x, int64_t seq_dim);

/// p is a probability.
void probability(const char* op, double p);

/// A generator, where one is given, is of the device of x.
void generator(const char* op, const std::optional<at::Generator>& generator, const at::Tensor& x);

/// rng_state is what dropout of a tensor on the device of grad has returned: 2 integers.
void rng_state(const char* op, const at::Tensor& rng_state, const at::Tensor& grad);

/// `out` has the expected shape, dtype and device, and no element twice.
void out(const char* op, const at::Tensor& out, c10::SymIntArrayRef shape, std::optional<at::ScalarType> dtype,
         std::optional<at::Device> device);

/// A tensor that is written has no element twice; `name` is the argument.
void writable(const char* op, const char* name, const at::Tensor& tensor);

/// out and an input share no memory, or (where `may_be_equal`) every element.
void no_overlap(const char* op, const char* name, const at::Tensor& out, const char* input_name,
                const at::Tensor& input, bool may_be_equal);

}  // namespace posenc::checks

namespace posenc {

/// The names of api arguments `order` and `odd`.
c10::string_view order_name(Order order);
c10::string_view odd_name(Odd odd);

}  // namespace posenc
