#include <posenc/kernels/cpu/add.h>

#include <algorithm>

#include <posenc/kernels/cpu/row.h>

namespace posenc::kernels::cpu {
namespace {

template <typename scalar_t>
void add_tokens(const Args& args, const math::Float128* frequencies, void* scratch, std::int64_t begin,
                std::int64_t end) {
  using compute_t = compute_type_t<scalar_t>;
  compute_t* encoding = static_cast<compute_t*>(scratch);
  const scalar_t* x = static_cast<const scalar_t*>(args.x);
  scalar_t* out = static_cast<scalar_t*>(args.out);
  const compute_t input_scale = static_cast<compute_t>(args.input_scale);
  const compute_t alpha = static_cast<compute_t>(args.alpha);
  const std::int64_t batches = num_batches(args);

  for (std::int64_t token = begin; token < end;) {
    const std::int64_t row = token / batches;
    const std::int64_t row_end = std::min(end, (row + 1) * batches);
    const Place row_place = place_of(args.row_dims, args.num_row_dims, row);
    write_row(args, frequencies, position_at(args, row, row_place.position), encoding, 1);
    for (; token < row_end; ++token) {
      const Place place = place_of(args.batch_dims, args.num_batch_dims, token - row * batches);
      const scalar_t* x_row = x + row_place.x + place.x;
      scalar_t* out_row = out + row_place.out + place.out;
      for (std::int64_t column = 0; column < args.d_model; ++column) {
        out_row[column * args.out_column_stride] =
            add_element(x_row[column * args.x_column_stride], encoding[column], input_scale, alpha);
      }
    }
  }
}

}  // namespace

std::size_t add_scratch_bytes(const Args& args) {
  const std::size_t element = args.dtype == DType::kFloat64 ? sizeof(double) : sizeof(float);
  return static_cast<std::size_t>(args.d_model) * element;
}

void add(const Args& args, const math::Float128* frequencies, void* scratch, std::int64_t begin, std::int64_t end) {
  dispatch_dtype(args.dtype, [&]<typename scalar_t>() {
    add_tokens<scalar_t>(args, frequencies, scratch, begin, end);
  });
}

}  // namespace posenc::kernels::cpu
