#pragma once

#include <cstdint>

#include <posenc/macros.h>
#include <posenc/math/columns.h>
#include <posenc/math/float16.h>
#include <posenc/math/position.h>

namespace posenc::kernels {

/// Element type of x and of the result.
enum class DType : std::uint8_t { kFloat64, kFloat32, kBFloat16, kFloat16 };
inline constexpr int kNumDTypes = 4;

/// Bytes of an element.
constexpr std::int64_t element_size(DType dtype) {
  return dtype == DType::kFloat64 ? 8 : dtype == DType::kFloat32 ? 4 : 2;
}

/// Where positions come from: kRange counts up from an offset along the only row dimension, the others are read.
enum class PositionType : std::uint8_t {
  kRange,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
};

/// One dimension of the loop over tokens. Strides are in elements of the tensor they belong to.
struct Dim {
  std::int64_t size;
  std::int64_t position_stride;
  std::int64_t x_stride;
  std::int64_t out_stride;
  std::int64_t token_stride = 0;  ///< tokens from one to the next, counted row-major in the shape of x; for dropout
};

/// Which elements are dropped, see Note [The mask of an element].
struct DropoutLimit {
  std::int16_t first;
  std::uint16_t further;
};

/// Dropout of a result: kernels/dropout.h.
struct Dropout {
  std::uint64_t seed;
  std::uint64_t offset;
  const std::int64_t* seed_source;    ///< null, or where the seed is read in the kernel: of a captured CUDA graph
  const std::int64_t* offset_source;  ///< with seed_source: what is read here is added to `offset`
  std::int64_t* saved_state;          ///< null, or where the kernel writes seed and offset
  std::int64_t first_token;           ///< number of the token at place 0
  double factor;                      ///< on kept elements
  DropoutLimit limit;
};

/// Dimensions of each kind that a kernel takes after merging; a caller with more of them loops over the outer ones.
inline constexpr int kMaxDims = 6;

/// What a kernel works on: a grid of rows (tokens of different positions) times a grid of batch entries (tokens that
/// share one position), each token d_model columns wide. `encode` has no x.
struct Args {
  const void* x;
  void* out;
  const void* positions;  ///< null for kRange
  std::int64_t offset;    ///< first position of kRange
  std::int64_t d_model;
  std::int64_t x_column_stride;
  std::int64_t out_column_stride;
  double input_scale;
  double alpha;
  math::Columns columns;
  bool negative_scale;  ///< position_scale has the sign bit
  bool stream;          ///< CPU: the result is large for the cache; write past it where its layout allows
  bool vectors;         ///< CUDA: columns can be moved 16 bytes at a time
  bool drops;           ///< CPU: dropout follows the addition
  DType dtype;
  PositionType position_type;
  int num_row_dims;
  int num_batch_dims;
  Dropout dropout;           ///< read by the kernels of dropout only
  Dim row_dims[kMaxDims];    ///< outermost first
  Dim batch_dims[kMaxDims];  ///< outermost first
};

POSENC_HOST_DEVICE inline std::int64_t num_tokens(const Dim* dims, int num_dims) {
  std::int64_t count = 1;
  for (int i = 0; i < num_dims; ++i) count *= dims[i].size;
  return count;
}

POSENC_HOST_DEVICE inline std::int64_t num_rows(const Args& args) {
  return num_tokens(args.row_dims, args.num_row_dims);
}

POSENC_HOST_DEVICE inline std::int64_t num_batches(const Args& args) {
  return num_tokens(args.batch_dims, args.num_batch_dims);
}

/// Where a token stands in each of the three tensors, in elements, and its number.
struct Place {
  std::int64_t position;
  std::int64_t x;
  std::int64_t out;
  std::int64_t token = 0;
};

POSENC_HOST_DEVICE inline Place operator+(const Place& a, const Place& b) {
  return {a.position + b.position, a.x + b.x, a.out + b.out, a.token + b.token};
}

/// The place of token `index` of a grid of dimensions, counted with the last dimension fastest.
POSENC_HOST_DEVICE inline Place place_of(const Dim* dims, int num_dims, std::int64_t index) {
  Place place{0, 0, 0, 0};
  for (int i = num_dims - 1; i >= 0; --i) {
    const Dim& dim = dims[i];
    const std::int64_t rest = index / dim.size;
    const std::int64_t at = index - rest * dim.size;
    place.position += at * dim.position_stride;
    place.x += at * dim.x_stride;
    place.out += at * dim.out_stride;
    place.token += at * dim.token_stride;
    index = rest;
  }
  return place;
}

/// The position of a row, at its exact value whatever its type.
POSENC_HOST_DEVICE inline math::Position position_at(const Args& args, std::int64_t row, std::int64_t place) {
  const void* p = args.positions;
  switch (args.position_type) {
    case PositionType::kRange:
      return math::position_from(args.offset + row);
    case PositionType::kInt8:
      return math::position_from(static_cast<std::int64_t>(static_cast<const std::int8_t*>(p)[place]));
    case PositionType::kInt16:
      return math::position_from(static_cast<std::int64_t>(static_cast<const std::int16_t*>(p)[place]));
    case PositionType::kInt32:
      return math::position_from(static_cast<std::int64_t>(static_cast<const std::int32_t*>(p)[place]));
    case PositionType::kInt64:
      return math::position_from(static_cast<const std::int64_t*>(p)[place]);
    case PositionType::kUInt8:
      return math::position_from(static_cast<std::int64_t>(static_cast<const std::uint8_t*>(p)[place]));
    case PositionType::kUInt16:
      return math::position_from(static_cast<std::int64_t>(static_cast<const std::uint16_t*>(p)[place]));
    case PositionType::kUInt32:
      return math::position_from(static_cast<std::int64_t>(static_cast<const std::uint32_t*>(p)[place]));
    case PositionType::kFloat16:
      return math::position_from(static_cast<double>(math::to_float(static_cast<const math::Float16*>(p)[place])));
    case PositionType::kBFloat16:
      return math::position_from(static_cast<double>(math::to_float(static_cast<const math::BFloat16*>(p)[place])));
    case PositionType::kFloat32:
      return math::position_from(static_cast<double>(static_cast<const float*>(p)[place]));
    case PositionType::kFloat64:
      return math::position_from(static_cast<const double*>(p)[place]);
  }
  return math::position_from(std::int64_t{0});  // not reached: the switch is complete
}

}  // namespace posenc::kernels
