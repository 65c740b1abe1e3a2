#include <posenc/kernels/cpu/encode.h>

#include <posenc/kernels/cpu/row.h>

namespace posenc::kernels::cpu {

void encode(const Args& args, const math::Float128* frequencies, std::int64_t begin, std::int64_t end) {
  dispatch_dtype(args.dtype, [&]<typename scalar_t>() {
    scalar_t* out = static_cast<scalar_t*>(args.out);
    for (std::int64_t row = begin; row < end; ++row) {
      const Place place = place_of(args.row_dims, args.num_row_dims, row);
      const math::Position position = position_at(args, row, place.position);
      write_row(args, frequencies, position, out + place.out, args.out_column_stride);
    }
  });
}

}  // namespace posenc::kernels::cpu
