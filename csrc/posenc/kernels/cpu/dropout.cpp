#include <posenc/kernels/cpu/dropout.h>

#include <posenc/kernels/cpu/row.h>

namespace posenc::kernels::cpu {

void dropout(const Args& args, std::int64_t begin, std::int64_t end, SimdLevel level) {
  const auto drop_row = lanes(level).dropout_row[static_cast<int>(args.dtype)];
  const Dropout& dropout = args.dropout;
  const std::int64_t itemsize = element_size(args.dtype);
  const auto x_at = [&](const Place& place) { return static_cast<const char*>(args.x) + place.x * itemsize; };
  const auto out_at = [&](const Place& place) { return static_cast<char*>(args.out) + place.out * itemsize; };
  const auto drop = [&](const void* in, void* out, std::int64_t count, const Place& place) {
    drop_row(in, out, count, static_cast<std::uint64_t>((dropout.first_token + place.token) * args.d_model),
             {dropout.seed, dropout.offset}, dropout.limit, dropout.factor);
  };
  const bool gathers = args.x_column_stride != 1;
  const bool scatters = args.out_column_stride != 1;
  const Dim& dim = args.batch_dims[0];
  if (!gathers && !scatters && args.num_batch_dims == 1 && dim.x_stride == args.d_model &&
      dim.out_stride == args.d_model && dim.token_stride == 1) {
    const Place place = place_of(args.batch_dims, 1, begin);
    return drop(x_at(place), out_at(place), (end - begin) * args.d_model, place);
  }
  Workspace& workspace = Workspace::of_thread();
  char* const x_row = static_cast<char*>(workspace.scratch(2 * args.d_model * itemsize));
  char* const out_row = x_row + args.d_model * itemsize;
  PlaceWalk walk(args.batch_dims, args.num_batch_dims, begin);
  for (std::int64_t batch = begin; batch < end; ++batch, walk.advance()) {
    const Place& place = walk.place();
    if (gathers) gather(x_row, x_at(place), args.x_column_stride, args.d_model, args.dtype);
    drop(gathers ? x_row : x_at(place), scatters ? out_row : out_at(place), args.d_model, place);
    if (scatters) scatter(out_at(place), args.out_column_stride, out_row, args.d_model, args.dtype);
  }
  workspace.trim();
}

}  // namespace posenc::kernels::cpu
