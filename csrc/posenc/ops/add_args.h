#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <cstdint>

#include <posenc/math/convention.h>
#include <posenc/ops/convention_args.h>

/// What `add` and its relatives share: the arguments of the two families of overloads as every kernel takes them, a
/// range of positions and given ones, and their checks.
#define POSENC_RANGE_PARAMS \
  c10::SymInt offset, int64_t seq_dim, double input_scale, double alpha, POSENC_CONVENTION_PARAMS
#define POSENC_RANGE_ARGS offset, seq_dim, input_scale, alpha, POSENC_CONVENTION_ARGS
#define POSENC_RANGE_TYPES c10::SymInt, int64_t, double, double, POSENC_CONVENTION_TYPES
#define POSENC_POSITIONS_PARAMS const at::Tensor &positions, double input_scale, double alpha, POSENC_CONVENTION_PARAMS
#define POSENC_POSITIONS_ARGS positions, input_scale, alpha, POSENC_CONVENTION_ARGS
#define POSENC_POSITIONS_TYPES const at::Tensor&, double, double, POSENC_CONVENTION_TYPES

/// The fields of AddOptions in that order.
#define POSENC_RANGE_OPTIONS(options) \
  (options).seq_dim, (options).input_scale, (options).alpha, POSENC_CONVENTION_FIELDS((options).convention)
#define POSENC_POSITIONS_OPTIONS(options) \
  (options).input_scale, (options).alpha, POSENC_CONVENTION_FIELDS((options).convention)

namespace posenc::detail {

/// What a kernel needs beside the tensors.
struct Range {
  Convention convention;
  int64_t seq_dim;  ///< counted from 0
};

Range check_range(const char* op, const at::Tensor& x, const c10::SymInt& offset, int64_t seq_dim,
                  POSENC_CONVENTION_PARAMS);
Convention check_positions(const char* op, const at::Tensor& x, const at::Tensor& positions, POSENC_CONVENTION_PARAMS);

}  // namespace posenc::detail
