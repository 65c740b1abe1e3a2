#include <posenc/kernels/cpu/add.h>

#include <algorithm>

#include <posenc/kernels/cpu/row.h>

namespace posenc::kernels::cpu {
namespace {

/// Encodings of neighbouring rows that are kept while a batch is walked: enough for long runs of memory, few enough to
/// stay in the first-level cache.
constexpr std::int64_t kTileBytes = 16384;

/// How far ahead of a sum memory is fetched, and the most that is added at a time where that changes.
constexpr std::int64_t kAheadBytes = 4096;

class Adder {
 public:
  Adder(const Args& args, const Frequencies& frequencies, const TokenRange& range, SimdLevel level)
      : args_(args),
        range_(range),
        rows_(args, frequencies, level, /*keep_anchors=*/range.row_end - range.row_begin <= kFewRows),
        dtype_(static_cast<int>(args.dtype)),
        itemsize_(element_size(args.dtype)),
        row_bytes_(args.d_model * itemsize_),
        dense_(args.x_column_stride == 1 && args.out_column_stride == 1),
        past_cache_(args.stream && dense_ && can_stream(args)) {}

  void run() {
    if (range_.batch_end - range_.batch_begin > 1 || !dense_) {
      add_tiles();
    } else if (has_row_pairs(args_)) {
      add_range();
    } else {
      add_rows();
    }
    if (past_cache_) finish_stream();
  }

 private:
  // One batch entry: nothing to share, so rows are added as they are computed.

  void add_range() {
    out_buffer_ = past_cache_ ? buffer(2 * row_bytes_) : nullptr;
    char* const two_buffers = writes_lines(args_, rows_.lanes().pairs) && !args_.drops ? nullptr : out_buffer_;
    const Place batch = place_of(args_.batch_dims, args_.num_batch_dims, range_.batch_begin);
    const Dim& dim = args_.row_dims[0];
    const std::int64_t ahead = (kAheadBytes + row_bytes_ - 1) / row_bytes_;
    const auto place_at = [&](std::int64_t row) {
      return batch + Place{0, row * dim.x_stride, row * dim.out_stride, row * dim.token_stride};
    };
    const auto add_one = [&](std::int64_t row) { add_row(row, place_at(row), place_at(row + ahead)); };
    const auto add_anchor = [&](std::int64_t middle, std::int64_t onward) {
      add_one(middle);
      add_one(middle - 16 * onward);
      for (std::int64_t r = onward; r != 16 * onward; r += onward) {
        const Place plus = place_at(middle + r);
        const Place minus = place_at(middle - r);
        const AddRow plus_row = begin_row(plus, place_at(middle + r + ahead * onward), two_buffers);
        const AddRow minus_row = begin_row(minus, place_at(middle - r - ahead * onward),
                                           two_buffers == nullptr ? nullptr : two_buffers + row_bytes_);
        rows_.lanes().add_two_rows[dtype_](rows_.values(middle + r, plus), args_.columns.num_first,
                                           args_.columns.first_stride, args_.columns.second_offset, plus_row, minus_row,
                                           args_.input_scale, args_.alpha, past_cache_ && two_buffers == nullptr);
        end_row(plus_row, plus);
        end_row(minus_row, minus);
      }
    };
    for_each_row(args_, range_.row_begin, range_.row_end, add_one, add_anchor);
  }

  void add_rows() {
    out_buffer_ = past_cache_ ? buffer(row_bytes_) : nullptr;
    const Place batch = place_of(args_.batch_dims, args_.num_batch_dims, range_.batch_begin);
    PlaceWalk walk(args_.row_dims, args_.num_row_dims, range_.row_begin);
    for (std::int64_t row = range_.row_begin; row < range_.row_end; ++row) {
      const Place place = walk.place();
      walk.advance();
      add_row(row, place + batch, walk.place() + batch);
    }
  }

  void add_row(std::int64_t row, const Place& place, const Place& next) {
    const AddRow sum = begin_row(place, next, out_buffer_);
    rows_.lanes().add_row[dtype_](args_.columns, rows_.values(row, place), sum, args_.input_scale, args_.alpha);
    end_row(sum, place);
  }

  // Several batch entries: a tile of rows is computed, then added to each of them.

  void add_tiles() {
    const DType compute = args_.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    encoding_size_ = element_size(compute);
    const std::int64_t encoding_bytes = args_.d_model * encoding_size_;
    const std::int64_t tile_rows =
        std::clamp<std::int64_t>(kTileBytes / encoding_bytes, 1, range_.row_end - range_.row_begin);
    char* const tile = buffer(tile_rows * encoding_bytes + row_bytes_ + std::max(row_bytes_, kAheadBytes));
    x_buffer_ = tile + tile_rows * encoding_bytes;
    out_buffer_ = x_buffer_ + row_bytes_;
    // Rows that follow each other without a gap are added as one.
    const bool joined = dense_ && args_.num_row_dims == 1 && args_.row_dims[0].x_stride == args_.d_model &&
                        args_.row_dims[0].out_stride == args_.d_model &&
                        (!args_.drops || args_.row_dims[0].token_stride == 1);
    const PlaceWalk first_batch(args_.batch_dims, args_.num_batch_dims, range_.batch_begin);
    PlaceWalk next_row(args_.row_dims, args_.num_row_dims, range_.row_begin);
    for (std::int64_t begin = range_.row_begin; begin < range_.row_end; begin += tile_rows) {
      const std::int64_t end = std::min(begin + tile_rows, range_.row_end);
      const PlaceWalk first_row = next_row;
      for (std::int64_t row = begin; row < end; ++row, next_row.advance()) {
        rows_.lanes().encode_row[static_cast<int>(compute)](args_.columns, rows_.values(row, next_row.place()),
                                                            tile + (row - begin) * encoding_bytes);
      }
      PlaceWalk batch = first_batch;
      for (std::int64_t b = range_.batch_begin; b < range_.batch_end; ++b, batch.advance()) {
        if (joined) {
          add_run(tile, first_row.place() + batch.place(), (end - begin) * args_.d_model);
          continue;
        }
        PlaceWalk row = first_row;
        for (const char* encoding = tile; encoding < tile + (end - begin) * encoding_bytes; row.advance()) {
          add_run(encoding, row.place() + batch.place(), args_.d_model);
          encoding += encoding_bytes;
        }
      }
      add_pending(next_row.place() + first_batch.place());
    }
  }

  /// Adds `count` ready columns, a piece at a time: each waits until it is known where the next one is.
  void add_run(const char* encoding, const Place& place, std::int64_t count) {
    if (!dense_) return add_strided(encoding, place);
    const std::int64_t piece = kAheadBytes / itemsize_;
    for (std::int64_t at = 0; at < count; at += piece) {
      const Place next{0, place.x + at, place.out + at};
      add_pending(next);
      pending_ = {encoding + at * encoding_size_, next, std::min(piece, count - at), first_element(place) + at};
    }
  }

  void add_pending(const Place& next) {
    if (pending_.count == 0) return;
    void* const out = out_at(pending_.place.out);
    const bool buffered = past_cache_ && args_.drops;
    const AddRow sum{x_at(pending_.place.x), buffered ? out_buffer_ : out, next_x(next)};
    rows_.lanes().add_encoding[dtype_](pending_.encoding, sum, pending_.count, args_.input_scale, args_.alpha,
                                       past_cache_ && !buffered);
    drop(sum.out, pending_.element, pending_.count);
    if (buffered) stream_copy(out, sum.out, static_cast<std::size_t>(pending_.count * itemsize_));
    pending_.count = 0;
  }

  /// A row whose columns have gaps, in x or out.
  void add_strided(const char* encoding, const Place& place) {
    gather(x_buffer_, x_at(place.x), args_.x_column_stride, args_.d_model, args_.dtype);
    rows_.lanes().add_encoding[dtype_](encoding, {x_buffer_, out_buffer_, nullptr}, args_.d_model, args_.input_scale,
                                       args_.alpha, /*past_cache=*/false);
    drop(out_buffer_, first_element(place), args_.d_model);
    scatter(out_at(place.out), args_.out_column_stride, out_buffer_, args_.d_model, args_.dtype);
  }

  /// Where the row at `place` is added: in `out_buffer`, from which it goes past the cache, or in its place if null.
  AddRow begin_row(const Place& place, const Place& next, char* out_buffer) const {
    return {x_at(place.x), out_buffer != nullptr ? out_buffer : out_at(place.out), next_x(next)};
  }

  void end_row(const AddRow& row, const Place& place) const {
    drop(row.out, first_element(place), args_.d_model);
    void* const out = out_at(place.out);
    if (row.out != out) stream_copy(out, row.out, static_cast<std::size_t>(row_bytes_));
  }

  /// Dropout, if asked for, of sums that are still in the first-level cache: dense elements of out from `first` on.
  void drop(void* sums, std::int64_t first, std::int64_t count) const {
    if (!args_.drops) return;
    const Dropout& dropout = args_.dropout;
    rows_.lanes().dropout_row[dtype_](sums, sums, count, static_cast<std::uint64_t>(first),
                                      {dropout.seed, dropout.offset}, dropout.limit, dropout.factor);
  }

  /// Number of a token's first element in the shape of x.
  std::int64_t first_element(const Place& place) const {
    return (args_.dropout.first_token + place.token) * args_.d_model;
  }

  /// What a sum that goes past the cache reads next has to be fetched from beyond it.
  const void* next_x(const Place& next) const { return past_cache_ || args_.drops ? x_at(next.x) : nullptr; }

  char* buffer(std::int64_t bytes) const { return static_cast<char*>(rows_.workspace().scratch(bytes)); }
  const void* x_at(std::int64_t place) const { return static_cast<const char*>(args_.x) + place * itemsize_; }
  void* out_at(std::int64_t place) const { return static_cast<char*>(args_.out) + place * itemsize_; }

  struct Piece {
    const char* encoding = nullptr;
    Place place{};
    std::int64_t count = 0;
    std::int64_t element = 0;  ///< number of the first one in the shape of x
  };

  const Args& args_;
  const TokenRange& range_;
  RowSource rows_;
  int dtype_;
  std::int64_t itemsize_;
  std::int64_t row_bytes_;
  bool dense_;
  bool past_cache_;
  std::int64_t encoding_size_ = 0;
  char* x_buffer_ = nullptr;
  char* out_buffer_ = nullptr;
  Piece pending_;
};

}  // namespace

void add(const Args& args, const Frequencies& frequencies, const TokenRange& range, SimdLevel level) {
  if (range.row_begin < range.row_end && range.batch_begin < range.batch_end) {
    Adder(args, frequencies, range, level).run();
  }
}

}  // namespace posenc::kernels::cpu
