#include <posenc/kernels/cpu/encode.h>

#include <posenc/kernels/cpu/row.h>

namespace posenc::kernels::cpu {

void encode(const Args& args, const Frequencies& frequencies, std::int64_t begin, std::int64_t end, SimdLevel level) {
  RowSource rows(args, frequencies, level, /*keep_anchors=*/end - begin <= kFewRows);
  const int dtype = static_cast<int>(args.dtype);
  const std::int64_t itemsize = element_size(args.dtype);
  const std::int64_t row_bytes = args.d_model * itemsize;
  const bool dense = args.out_column_stride == 1;
  void* const buffer = dense && !args.stream ? nullptr : rows.workspace().scratch(row_bytes);

  for (std::int64_t row = begin; row < end; ++row) {
    const Place place = place_of(args.row_dims, args.num_row_dims, row);
    void* const out = static_cast<char*>(args.out) + place.out * itemsize;
    rows.lanes().encode_row[dtype](args.columns, rows.values(row, place), buffer == nullptr ? out : buffer);
    if (buffer == nullptr) continue;
    if (dense) {
      stream_copy(out, buffer, static_cast<std::size_t>(row_bytes));
    } else {
      scatter(out, args.out_column_stride, buffer, args.d_model, args.dtype);
    }
  }
  if (args.stream) finish_stream();
}

}  // namespace posenc::kernels::cpu
