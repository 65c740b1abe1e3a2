#include <posenc/kernels/cpu/encode.h>

#include <algorithm>

#include <posenc/kernels/cpu/row.h>
#include <posenc/math/element.h>

namespace posenc::kernels::cpu {
namespace {

/// Pairs of columns that a fill past the cache takes at a time, so that anchor, step and both rows stay in the
/// first-level cache.
constexpr std::int64_t kStreamPairs = 256;

class Encoder {
 public:
  Encoder(const Args& args, const Frequencies& frequencies, std::int64_t num_rows, SimdLevel level)
      : args_(args),
        rows_(args, frequencies, level, /*keep_anchors=*/num_rows <= kFewRows),
        dtype_(static_cast<int>(args.dtype)),
        itemsize_(element_size(args.dtype)),
        row_bytes_(args.d_model * itemsize_),
        dense_(args.out_column_stride == 1),
        past_cache_(args.stream && can_stream(args)) {}

  void run(std::int64_t begin, std::int64_t end) {
    const auto one = [this](std::int64_t row) { encode_row(row); };
    if (dense_ && has_row_pairs(args_)) {
      for_each_row(args_, begin, end, one,
                   [this](std::int64_t middle, std::int64_t onward) { encode_anchor(middle, onward); });
    } else {
      for (std::int64_t row = begin; row < end; ++row) one(row);
    }
    if (past_cache_) finish_stream();
  }

 private:
  /// Any one row.
  void encode_row(std::int64_t row) {
    const Place place = place_of(args_.row_dims, args_.num_row_dims, row);
    void* const out = at(place.out);
    void* const buffer = dense_ && !past_cache_ ? out : rows_.workspace().scratch(row_bytes_);
    rows_.lanes().encode_row[dtype_](args_.columns, rows_.values(row, place), buffer);
    if (buffer == out) return;
    if (dense_) {
      stream_copy(out, buffer, static_cast<std::size_t>(row_bytes_));
    } else {
      scatter(out, args_.out_column_stride, buffer, args_.d_model, args_.dtype);
    }
  }

  /// The 32 rows of the anchor that stands at row `middle`, two at a time.
  void encode_anchor(std::int64_t middle, std::int64_t onward) {
    encode_row(middle);
    encode_row(middle - onward * 16);
    const std::int64_t pairs = args_.columns.num_first;
    const std::int64_t block = past_cache_ ? kStreamPairs : pairs;
    for (std::int64_t begin = 0; begin < pairs; begin += block) {
      const std::int64_t count = std::min(block, pairs - begin);
      for (std::int64_t r = 1; r < 16; ++r) encode_two_rows(middle + onward * r, middle - onward * r, begin, count);
    }
  }

  /// `count` pairs from pair `begin` on of the rows that one step makes.
  void encode_two_rows(std::int64_t plus_row, std::int64_t minus_row, std::int64_t begin, std::int64_t count) {
    const RowValues values = rows_.values(plus_row, Place{}).from(begin);
    const math::Columns& columns = args_.columns;
    char* const plus = at(plus_row * args_.row_dims[0].out_stride);
    char* const minus = at(minus_row * args_.row_dims[0].out_stride);
    const auto encode = rows_.lanes().encode_two_rows[dtype_];
    if (!past_cache_ || writes_lines(args_, rows_.lanes().pairs)) {
      const std::int64_t skipped = begin * columns.first_stride * itemsize_;
      return encode(values, count, columns.first_stride, columns.second_offset, plus + skipped, minus + skipped,
                    past_cache_);
    }

    char* const plus_buffer = static_cast<char*>(rows_.workspace().scratch(4 * kStreamPairs * itemsize_));
    char* const minus_buffer = plus_buffer + 2 * kStreamPairs * itemsize_;
    encode(values, count, columns.first_stride, count, plus_buffer, minus_buffer, false);
    stream_pairs(plus, plus_buffer, begin, count);
    stream_pairs(minus, minus_buffer, begin, count);
  }

  /// Moves the columns of `count` pairs from a buffer to where they belong in a row.
  void stream_pairs(char* out, const char* buffer, std::int64_t begin, std::int64_t count) {
    const std::int64_t bytes = count * itemsize_;
    if (args_.columns.first_stride == 2) {
      stream_copy(out + 2 * begin * itemsize_, buffer, static_cast<std::size_t>(2 * bytes));
    } else {
      stream_copy(out + begin * itemsize_, buffer, static_cast<std::size_t>(bytes));
      stream_copy(out + (args_.columns.second_offset + begin) * itemsize_, buffer + bytes,
                  static_cast<std::size_t>(bytes));
    }
  }

  char* at(std::int64_t place) const { return static_cast<char*>(args_.out) + place * itemsize_; }

  const Args& args_;
  RowSource rows_;
  int dtype_;
  std::int64_t itemsize_;
  std::int64_t row_bytes_;
  bool dense_;
  bool past_cache_;
};

}  // namespace

void encode(const Args& args, const Frequencies& frequencies, std::int64_t begin, std::int64_t end, SimdLevel level) {
  if (begin < end) Encoder(args, frequencies, end - begin, level).run(begin, end);
}

}  // namespace posenc::kernels::cpu
