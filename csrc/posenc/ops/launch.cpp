#include <posenc/ops/launch.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <mutex>

#include <posenc/kernels/args.h>
#include <posenc/kernels/cpu/add.h>
#include <posenc/kernels/cpu/dropout.h>
#include <posenc/kernels/cpu/encode.h>
#include <posenc/kernels/cpu/frequencies.h>
#include <posenc/kernels/dropout.h>
#include <posenc/math/columns.h>
#include <posenc/math/frequency.h>
#include <posenc/ops/memory.h>

#if defined(POSENC_WITH_CUDA)
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <posenc/kernels/cuda/add.h>
#include <posenc/kernels/cuda/dropout.h>
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

/// Appends a dimension (from outermost to innermost), merged into the one before it where all strides allow.
void append(DimList& dims, const Dim& dim) {
  if (dim.size == 1) return;
  if (!dims.empty()) {
    Dim& outer = dims.back();
    if (outer.position_stride == dim.position_stride * dim.size && outer.x_stride == dim.x_stride * dim.size &&
        outer.out_stride == dim.out_stride * dim.size && outer.token_stride == dim.token_stride * dim.size) {
      const int64_t size = outer.size * dim.size;
      outer = dim;
      outer.size = size;
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
  args.negative_scale = std::signbit(convention.position_scale);
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

/// Dropout with probability p of a tensor whose kept elements are multiplied by `scale` as well.
void set_mask(Args& args, double p, double scale) {
  args.drops = true;
  args.dropout.limit = kernels::dropout_limit(p);
  args.dropout.factor = scale / (1.0 - p);
}

#if defined(POSENC_WITH_CUDA)
/// While a CUDA graph is captured, seed and offset are in memory that each replay fills anew: the kernel reads them.
void draw_cuda(Args& args, const Dropout& dropout) {
  auto* const generator = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      dropout.generator, at::cuda::detail::getDefaultCUDAGenerator(dropout.rng_state.get_device()));
  at::PhiloxCudaState state;
  {
    const std::lock_guard<std::mutex> lock(generator->mutex_);
    state = generator->philox_cuda_state(4);  // the words of one block for each element
  }
  if (state.captured_) {
    args.dropout.seed_source = state.seed_.ptr;
    args.dropout.offset_source = state.offset_.ptr;
    args.dropout.offset = state.offset_intragraph_;
  } else {
    args.dropout.seed = state.seed_.val;
    args.dropout.offset = state.offset_.val;
  }
  args.dropout.saved_state = dropout.rng_state.mutable_data_ptr<int64_t>();
}
#endif

void draw_cpu(Args& args, const Dropout& dropout) {
  auto* const generator =
      at::get_generator_or_default<at::CPUGeneratorImpl>(dropout.generator, at::detail::getDefaultCPUGenerator());
  {
    const std::lock_guard<std::mutex> lock(generator->mutex_);
    args.dropout.seed = generator->random64();
  }
  auto* const saved = dropout.rng_state.mutable_data_ptr<int64_t>();
  saved[0] = static_cast<int64_t>(args.dropout.seed);
  saved[1] = 0;  // a seed of its own for each call: no offset is needed
}

void set_dropout(Args& args, const Dropout& dropout) {
  set_mask(args, dropout.p, 1.0);
#if defined(POSENC_WITH_CUDA)
  if (dropout.rng_state.is_cuda()) return draw_cuda(args, dropout);
#endif
  draw_cpu(args, dropout);
}

const void* advance(const void* data, int64_t elements, int64_t itemsize) {
  return static_cast<const char*>(data) + elements * itemsize;
}

/// Calls run_part(args) with the dimensions filled in; loops over the outer ones where there are more than a kernel
/// takes.
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
      args.dropout.first_token += outer.token_stride;
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
void check_launch(cudaError_t error) {
  TORCH_CHECK(error == cudaSuccess, "posenc: a CUDA kernel must launch, but got: ", cudaGetErrorString(error), ".");
}

void run_cuda(const Args& args, const math::FrequencyTables& tables, const at::Tensor& out) {
  const c10::cuda::CUDAGuard guard(out.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  check_launch(args.x == nullptr ? kernels::cuda::launch_encode(args, tables, stream)
               : args.drops      ? kernels::cuda::launch_add_dropout(args, tables, stream)
                                 : kernels::cuda::launch_add(args, tables, stream));
}
#endif

/// Rows in each task; a small range stays whole, in the calling thread.
int64_t rows_per_task(const Args& args, int64_t batches) {
  return std::max<int64_t>(1, kGrainColumns / (args.d_model * batches));
}

void run_cpu(const Args& args, const kernels::cpu::Frequencies& frequencies) {
  const int64_t rows = kernels::num_rows(args);
  if (args.x == nullptr) {
    at::parallel_for(0, rows, rows_per_task(args, 1),
                     [&](int64_t begin, int64_t end) { kernels::cpu::encode(args, frequencies, begin, end); });
    return;
  }
  const int64_t batches = kernels::num_batches(args);
  // By rows, each of which is then computed once; by batch entries where rows would not share out evenly.
  if (rows >= batches || rows >= int64_t{4} * at::get_num_threads()) {
    at::parallel_for(0, rows, rows_per_task(args, batches), [&](int64_t begin, int64_t end) {
      kernels::cpu::add(args, frequencies, {begin, end, 0, batches});
    });
  } else {
    at::parallel_for(0, batches, rows_per_task(args, rows), [&](int64_t begin, int64_t end) {
      kernels::cpu::add(args, frequencies, {0, rows, begin, end});
    });
  }
}

/// Whether to write past the cache. Measured, with one and with two threads: that wins from a sixth of the last-level
/// cache on (others use it too), by up to a half. Not for pages that are new from the system: it has just brought them
/// into the cache.
bool should_stream(const Args& args, const at::Tensor& out, bool fresh) {
  const int64_t bytes = out.numel() * out.element_size();
  const bool new_pages = fresh && bytes > memory::kLargestKeptBytes;
  return !new_pages && args.x != args.out && bytes > memory::caches().last_level / 6;
}

void run(Args& args, const Grid& grid, const at::Tensor& out, bool fresh, const at::Tensor* positions,
         const Convention& convention) {
  if (out.numel() == 0) return;
  const int64_t width = math::effective_width(args.d_model, convention.odd);
  const int64_t position_itemsize = positions == nullptr ? 0 : positions->element_size();
#if defined(POSENC_WITH_CUDA)
  if (out.is_cuda()) {
    const math::FrequencyTables tables = math::make_frequency_tables(convention.base, width, convention.freq_shift,
                                                                     convention.position_scale, args.columns.num_first);
    run_grid(args, grid.rows, grid.batches, out.element_size(), position_itemsize,
             [&](const Args& part) { run_cuda(part, tables, out); });
    return;
  }
#endif
  if (fresh) memory::advise_huge_pages(out);
  args.stream = should_stream(args, out, fresh);
  const auto frequencies = kernels::cpu::frequencies_of(
      {convention.base, width, convention.freq_shift, convention.position_scale, args.columns.num_first});
  run_grid(args, grid.rows, grid.batches, out.element_size(), position_itemsize,
           [&](const Args& part) { run_cpu(part, *frequencies); });
}

}  // namespace

void encode(const at::Tensor& out, bool fresh, int64_t offset, const Convention& convention) {
  Args args = base_args(out, convention);
  args.offset = offset;
  Grid grid;
  append(grid.rows, Dim{out.size(0), 0, 0, out.stride(0)});
  run(args, grid, out, fresh, nullptr, convention);
}

void encode(const at::Tensor& out, bool fresh, const at::Tensor& positions, const Convention& convention) {
  Args args = base_args(out, convention);
  set_positions(args, positions);
  Grid grid;
  for (int64_t d = 0; d < positions.dim(); ++d) {
    append(grid.rows, Dim{positions.size(d), positions.stride(d), 0, out.stride(d)});
  }
  run(args, grid, out, fresh, &positions, convention);
}

void add(const at::Tensor& out, bool fresh, const at::Tensor& x, int64_t offset, int64_t seq_dim, double input_scale,
         double alpha, const Convention& convention, const Dropout* dropout) {
  if (out.numel() == 0) return;
  Args args = base_args(out, convention);
  set_x(args, x, input_scale, alpha);
  args.offset = offset;
  if (dropout != nullptr) set_dropout(args, *dropout);
  Grid grid;
  int64_t tokens = args.drops ? x.numel() / args.d_model : 0;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) {
    tokens /= x.size(d);
    append(d == seq_dim ? grid.rows : grid.batches, Dim{x.size(d), 0, x.stride(d), out.stride(d), tokens});
  }
  run(args, grid, out, fresh, nullptr, convention);
}

void add(const at::Tensor& out, bool fresh, const at::Tensor& x, const at::Tensor& positions, double input_scale,
         double alpha, const Convention& convention, const Dropout* dropout) {
  if (out.numel() == 0) return;
  Args args = base_args(out, convention);
  set_x(args, x, input_scale, alpha);
  set_positions(args, positions);
  if (dropout != nullptr) set_dropout(args, *dropout);
  Grid grid;
  int64_t tokens = args.drops ? x.numel() / args.d_model : 0;
  const int64_t missing = x.dim() - 1 - positions.dim();
  for (int64_t d = 0; d + 1 < x.dim(); ++d) {
    tokens /= x.size(d);
    const bool varies = d >= missing && positions.size(d - missing) != 1;
    const int64_t position_stride = varies ? positions.stride(d - missing) : 0;
    append(position_stride != 0 ? grid.rows : grid.batches,
           Dim{x.size(d), position_stride, x.stride(d), out.stride(d), tokens});
  }
  run(args, grid, out, fresh, &positions, convention);
}

void dropout_backward(const at::Tensor& out, const at::Tensor& grad, const at::Tensor& rng_state, double p,
                      double input_scale) {
  if (out.numel() == 0) return;
  Args args = base_args(out, Convention{});
  set_x(args, grad, 1.0, 1.0);
  set_mask(args, p, input_scale);
  const int64_t* const state = rng_state.const_data_ptr<int64_t>();
  Grid grid;
  int64_t tokens = grad.numel() / args.d_model;
  for (int64_t d = 0; d + 1 < grad.dim(); ++d) {
    tokens /= grad.size(d);
    append(grid.batches, Dim{grad.size(d), 0, grad.stride(d), out.stride(d), tokens});
  }
#if defined(POSENC_WITH_CUDA)
  if (out.is_cuda()) {
    args.dropout.seed_source = state;
    args.dropout.offset_source = state + rng_state.stride(0);
    run_grid(args, grid.rows, grid.batches, out.element_size(), 0, [&](const Args& part) {
      const c10::cuda::CUDAGuard guard(out.device());
      check_launch(kernels::cuda::launch_dropout(part, c10::cuda::getCurrentCUDAStream()));
    });
    return;
  }
#endif
  args.dropout.seed = static_cast<std::uint64_t>(state[0]);
  args.dropout.offset = static_cast<std::uint64_t>(state[rng_state.stride(0)]);
  memory::advise_huge_pages(out);
  run_grid(args, grid.rows, grid.batches, out.element_size(), 0, [](const Args& part) {
    at::parallel_for(0, kernels::num_batches(part), rows_per_task(part, 1),
                     [&](int64_t begin, int64_t end) { kernels::cpu::dropout(part, begin, end); });
  });
}

}  // namespace posenc::launch
