#include <posenc/kernels/cpu/add.h>

#include <algorithm>

#include <posenc/kernels/cpu/row.h>

namespace posenc::kernels::cpu {
namespace {

/// Encodings of neighbouring rows that are kept while a batch is walked: enough for long runs of memory, few enough to
/// stay in the first-level cache.
constexpr std::int64_t kTileBytes = 16384;

class Adder {
 public:
  Adder(const Args& args, const Frequencies& frequencies, const TokenRange& range, SimdLevel level)
      : args_(args),
        range_(range),
        rows_(args, frequencies, level, /*keep_anchors=*/range.row_end - range.row_begin <= kFewRows),
        itemsize_(element_size(args.dtype)),
        compute_(args.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32),
        dense_(args.x_column_stride == 1 && args.out_column_stride == 1),
        row_bytes_(args.d_model * itemsize_),
        encoding_bytes_(args.d_model * element_size(compute_)) {}

  void run() {
    if (range_.batch_end - range_.batch_begin == 1 && dense_) {
      add_rows();
    } else {
      add_tiles();
    }
    if (args_.stream) finish_stream();
  }

 private:
  /// One batch entry: nothing to share, so each row is added as it is computed.
  void add_rows() {
    void* const buffer = args_.stream ? rows_.workspace().scratch(row_bytes_) : nullptr;
    const Place batch = place_of(args_.batch_dims, args_.num_batch_dims, range_.batch_begin);
    for (std::int64_t row = range_.row_begin; row < range_.row_end; ++row) {
      const Place place = place_of(args_.row_dims, args_.num_row_dims, row);
      void* const out = out_at(place.out + batch.out);
      rows_.lanes().add_row[dtype()](args_.columns, rows_.values(row, place), x_at(place.x + batch.x),
                                     buffer == nullptr ? out : buffer, args_.input_scale, args_.alpha);
      if (buffer != nullptr) stream_copy(out, buffer, static_cast<std::size_t>(row_bytes_));
    }
  }

  /// A tile of rows is computed, then added to every batch entry.
  void add_tiles() {
    const std::int64_t tile_rows =
        std::clamp<std::int64_t>(kTileBytes / encoding_bytes_, 1, range_.row_end - range_.row_begin);
    char* const tile = static_cast<char*>(rows_.workspace().scratch(tile_rows * encoding_bytes_ + 2 * row_bytes_));
    char* const x_row = tile + tile_rows * encoding_bytes_;
    char* const out_row = x_row + row_bytes_;
    for (std::int64_t begin = range_.row_begin; begin < range_.row_end; begin += tile_rows) {
      const std::int64_t end = std::min(begin + tile_rows, range_.row_end);
      for (std::int64_t row = begin; row < end; ++row) {
        const Place place = place_of(args_.row_dims, args_.num_row_dims, row);
        rows_.lanes().encode_row[static_cast<int>(compute_)](args_.columns, rows_.values(row, place),
                                                             tile + (row - begin) * encoding_bytes_);
      }
      for (std::int64_t b = range_.batch_begin; b < range_.batch_end; ++b) {
        const Place batch = place_of(args_.batch_dims, args_.num_batch_dims, b);
        for (std::int64_t row = begin; row < end; ++row) {
          const Place place = place_of(args_.row_dims, args_.num_row_dims, row);
          add_encoding(tile + (row - begin) * encoding_bytes_, place.x + batch.x, place.out + batch.out, x_row,
                       out_row);
        }
      }
    }
  }

  void add_encoding(const void* encoding, std::int64_t x_place, std::int64_t out_place, void* x_row, void* out_row) {
    const void* x = x_at(x_place);
    if (args_.x_column_stride != 1) {
      gather(x_row, x, args_.x_column_stride, args_.d_model, args_.dtype);
      x = x_row;
    }
    void* const out = out_at(out_place);
    const bool direct = args_.out_column_stride == 1 && !args_.stream;
    rows_.lanes().add_encoding[dtype()](encoding, x, direct ? out : out_row, args_.d_model, args_.input_scale,
                                        args_.alpha);
    if (direct) return;
    if (args_.out_column_stride == 1) {
      stream_copy(out, out_row, static_cast<std::size_t>(row_bytes_));
    } else {
      scatter(out, args_.out_column_stride, out_row, args_.d_model, args_.dtype);
    }
  }

  int dtype() const { return static_cast<int>(args_.dtype); }
  const void* x_at(std::int64_t place) const { return static_cast<const char*>(args_.x) + place * itemsize_; }
  void* out_at(std::int64_t place) const { return static_cast<char*>(args_.out) + place * itemsize_; }

  const Args& args_;
  const TokenRange& range_;
  RowSource rows_;
  std::int64_t itemsize_;
  DType compute_;
  bool dense_;
  std::int64_t row_bytes_;
  std::int64_t encoding_bytes_;
};

}  // namespace

void add(const Args& args, const Frequencies& frequencies, const TokenRange& range, SimdLevel level) {
  if (range.row_begin < range.row_end && range.batch_begin < range.batch_end) {
    Adder(args, frequencies, range, level).run();
  }
}

}  // namespace posenc::kernels::cpu
