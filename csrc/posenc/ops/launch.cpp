#include <posenc/ops/launch.h>

#include <ATen/Parallel.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include <posenc/kernels/args.h>
#include <posenc/kernels/cpu/add.h>
#include <posenc/kernels/cpu/encode.h>
#include <posenc/math/columns.h>
#include <posenc/math/frequency.h>

#if defined(POSENC_WITH_CUDA)
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <posenc/kernels/cuda/add.h>
#include <posenc/kernels/cuda/encode.h>
#endif

namespace posenc::launch {
namespace {

using kernels::Args;
using kernels::Dim;
using kernels::DType;
using kernels::PositionType;
using DimList = c10::SmallVector<Dim, 8>;

/// About this many columns are worth a thread of their own.
constexpr int64_t kGrainColumns = 16384;

DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return DType::kFloat64;
    case at::kFloat:
      return DType::kFloat32;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kHalf:
      return DType::kFloat16;
    default:
      TORCH_INTERNAL_ASSERT(false, "unchecked result dtype ", tensor.scalar_type());
  }
}

PositionType position_type_of(const at::Tensor& positions) {
  switch (positions.scalar_type()) {
    case at::kChar:
      return PositionType::kInt8;
    case at::kShort:
      return PositionType::kInt16;
    case at::kInt:
      return PositionType::kInt32;
    case at::kLong:
      return PositionType::kInt64;
    case at::kByte:
      return PositionType::kUInt8;
    case at::kUInt16:
      return PositionType::kUInt16;
    case at::kUInt32:
      return PositionType::kUInt32;
    case at::kHalf:
      return PositionType::kFloat16;
    case at::kBFloat16:
      return PositionType::kBFloat16;
    case at::kFloat:
      return PositionType::kFloat32;
    case at::kDouble:
      return PositionType::kFloat64;
    default:
      TORCH_INTERNAL_ASSERT(false, "unchecked positions dtype ", positions.scalar_type());
  }
}

/// The dimensions of the tokens, apart by whether positions change along them, each list with neighbours merged.
struct Grid {
  DimList rows;
  DimList batches;
};

/// Appends a dimension (from outermost to innermost), merged into the one before it where all three tensors allow.
void append(DimList& dims, const Dim& dim) {
  if (dim.size == 1) return;
  if (!dims.empty()) {
    Dim& outer = dims.back();
    if (outer.position_stride == dim.position_stride * dim.size && outer.x_stride == dim.x_stride * dim.size &&
        outer.out_stride == dim.out_stride * dim.size) {
      outer = Dim{outer.size * dim.size, dim.position_stride, dim.x_stride, dim.out_stride};
      return;
    }
  }
  dims.push_back(dim);
}

/// What does not depend on the layout of the tokens.
Args base_args(const at::Tensor& out, const Convention& convention) {
  Args args{};
  args.out = out.mutable_data_ptr();
  args.d_model = out.size(-1);
  args.out_column_stride = out.stride(-1);
  args.dtype = dtype_of(out);
  args.columns = math::make_columns(args.d_model, convention.order, convention.odd);
  args.negative_scale = convention.position_scale < 0.0;
  args.position_type = PositionType::kRange;
  return args;
}

void set_positions(Args& args, const at::Tensor& positions) {
  args.positions = positions.const_data_ptr();
  args.position_type = position_type_of(positions);
}

void set_x(Args& args, const at::Tensor& x, double input_scale, double alpha) {
  args.x = x.const_data_ptr();
  args.x_column_stride = x.stride(-1);
  args.input_scale = input_scale;
  args.alpha = alpha;
}

const void* advance(const void* data, int64_t elements, int64_t itemsize) {
  return static_cast<const char*>(data) + elements * itemsize;
}

/// Calls run_part(args) with the dimensions filled in; loops over the outer ones where there are more than a kernel takes.
template <typename Run>
void run_grid(Args args, c10::ArrayRef<Dim> rows, c10::ArrayRef<Dim> batches, int64_t itemsize,
              int64_t position_itemsize, const Run& run_part) {
  const bool outer_row = rows.size() > static_cast<std::size_t>(kernels::kMaxDims);
  if (outer_row || batches.size() > static_cast<std::size_t>(kernels::kMaxDims)) {
    c10::ArrayRef<Dim>& dims = outer_row ? rows : batches;
    const Dim outer = dims.front();
    dims = dims.slice(1);
    for (int64_t i = 0; i < outer.size; ++i) {
      run_grid(args, rows, batches, itemsize, position_itemsize, run_part);
      args.x = advance(args.x, outer.x_stride, itemsize);
      args.out = const_cast<void*>(advance(args.out, outer.out_stride, itemsize));
      args.positions = advance(args.positions, outer.position_stride, position_itemsize);
    }
    return;
  }
  args.num_row_dims = static_cast<int>(rows.size());
  args.num_batch_dims = static_cast<int>(batches.size());
  std::copy(rows.begin(), rows.end(), args.row_dims);
  std::copy(batches.begin(), batches.end(), args.batch_dims);
  run_part(args);
}

#if defined(POSENC_WITH_CUDA)
void run_cuda(const Args& args, const math::FrequencyTables& tables, const at::Tensor& out) {
  const c10::cuda::CUDAGuard guard(out.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const cudaError_t error = args.x == nullptr ? kernels::cuda::launch_encode(args, tables, stream)
                                              : kernels::cuda::launch_add(args, tables, stream);
  TORCH_CHECK(error == cudaSuccess, "posenc: a CUDA kernel must launch, but got: ", cudaGetErrorString(error), ".");
}
#endif

void run_cpu(const Args& args, const std::vector<math::Float128>& frequencies) {
  const int64_t tokens = kernels::num_rows(args) * kernels::num_batches(args);
  at::parallel_for(0, tokens, std::max<int64_t>(1, kGrainColumns / args.d_model), [&](int64_t begin, int64_t end) {
    if (args.x == nullptr) {
      kernels::cpu::encode(args, frequencies.data(), begin, end);
    } else {
      std::vector<double> scratch(kernels::cpu::add_scratch_bytes(args) / sizeof(double) + 1);
      kernels::cpu::add(args, frequencies.data(), scratch.data(), begin, end);
    }
  });
}

void run(const Args& args, const Grid& grid, const at::Tensor& out, const at::Tensor* positions,
         const Convention& convention) {
  if (out.numel() == 0) return;
  const math::FrequencyTables tables =
      math::make_frequency_tables(convention.base, math::effective_width(args.d_model, convention.odd),
                                  convention.freq_shift, convention.position_scale, args.columns.num_first);
  std::vector<math::Float128> frequencies;
  if (out.is_cpu()) {
    frequencies.resize(static_cast<std::size_t>(args.columns.num_first));
    for (std::size_t k = 0; k < frequencies.size(); ++k) {
      frequencies[k] = math::frequency(tables, static_cast<int64_t>(k));
    }
  }
  run_grid(args, grid.rows, grid.batches, out.element_size(), positions == nullptr ? 0 : positions->element_size(),
           [&](const Args& part) {
#if defined(POSENC_WITH_CUDA)
             if (out.is_cuda()) return run_cuda(part, tables, out);
#endif
             run_cpu(part, frequencies);
           });
}

}  // namespace

void encode(const at::Tensor& out, int64_t offset, const Convention& convention) {
  Args args = base_args(out, convention);
  args.offset = offset;
  Grid grid;
  append(grid.rows, Dim{out.size(0), 0, 0, out.stride(0)});
  run(args, grid, out, nullptr, convention);
}

void encode(const at::Tensor& out, const at::Tensor& positions, const Convention& convention) {
  Args args = base_args(out, convention);
  set_positions(args, positions);
  Grid grid;
  for (int64_t d = 0; d < positions.dim(); ++d) {
    append(grid.rows, Dim{positions.size(d), positions.stride(d), 0, out.stride(d)});
  }
  run(args, grid, out, &positions, convention);
}

void add(const at::Tensor& out, const at::Tensor& x, int64_t offset, int64_t seq_dim, double input_scale, double alpha,
         const Convention& convention) {
  Args args = base_args(out, convention);
  set_x(args, x, input_scale, alpha);
  args.offset = offset;
  Grid grid;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) {
    append(d == seq_dim ? grid.rows : grid.batches, Dim{x.size(d), 0, x.stride(d), out.stride(d)});
  }
  run(args, grid, out, nullptr, convention);
}

void add(const at::Tensor& out, const at::Tensor& x, const at::Tensor& positions, double input_scale, double alpha,
         const Convention& convention) {
  Args args = base_args(out, convention);
  set_x(args, x, input_scale, alpha);
  set_positions(args, positions);
  Grid grid;
  const int64_t missing = x.dim() - 1 - positions.dim();
  for (int64_t d = 0; d + 1 < x.dim(); ++d) {
    const bool varies = d >= missing && positions.size(d - missing) != 1;
    const int64_t position_stride = varies ? positions.stride(d - missing) : 0;
    append(position_stride != 0 ? grid.rows : grid.batches, Dim{x.size(d), position_stride, x.stride(d), out.stride(d)});
  }
  run(args, grid, out, &positions, convention);
}

}  // namespace posenc::launch
