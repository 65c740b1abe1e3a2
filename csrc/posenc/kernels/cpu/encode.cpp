#include <posenc/kernels/cpu/encode.h>

#include <algorithm>

#include <posenc/kernels/cpu/row.h>
#include <posenc/math/element.h>

namespace posenc::kernels::cpu {
namespace {

/// Rows of one anchor, and the steps that make them: 1 to 15 forwards and 1 to 16 back.
constexpr std::int64_t kAnchorRows = 32;

/// Pairs of columns that a streaming fill takes at a time, so that anchor, step and both rows stay in the first-level
/// cache.
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
        even_(args.columns.num_first == args.columns.num_second && args.columns.zero_column < 0) {}

  void run(std::int64_t begin, std::int64_t end) {
    const bool has_blocks = dense_ && even_ && args_.position_type == PositionType::kRange && args_.num_row_dims == 1;
    for (std::int64_t row = begin; row < end;) {
      if (has_blocks && end - row >= kAnchorRows && starts_block(row)) {
        encode_block(row);
        row += kAnchorRows;
      } else {
        encode_row(row);
        ++row;
      }
    }
    if (args_.stream) finish_stream();
  }

 private:
  math::Position position_of(std::int64_t row) const { return math::position_from(args_.offset + row); }

  /// Whether the rows from this one on are all those of one anchor but the one at 0.
  bool starts_block(std::int64_t row) const {
    const math::Position position = position_of(row);
    const math::SplitPosition split = math::split_position(position.magnitude);
    return split.anchor != 0 && split.remainder == (position.negative ? 15 : -16);
  }

  /// Any one row.
  void encode_row(std::int64_t row) {
    const Place place = place_of(args_.row_dims, args_.num_row_dims, row);
    void* const out = at(place.out);
    void* const buffer = dense_ && !args_.stream ? out : rows_.workspace().scratch(row_bytes_);
    rows_.lanes().encode_row[dtype_](args_.columns, rows_.values(row, place), buffer);
    if (buffer == out) return;
    if (dense_) {
      stream_copy(out, buffer, static_cast<std::size_t>(row_bytes_));
    } else {
      scatter(out, args_.out_column_stride, buffer, args_.d_model, args_.dtype);
    }
  }

  /// The 32 rows of one anchor, two at a time. Positions grow with the rows, magnitudes shrink where they are negative.
  void encode_block(std::int64_t first_row) {
    const bool negative = position_of(first_row).negative;
    const std::int64_t middle = first_row + (negative ? 15 : 16);
    const std::int64_t onward = negative ? -1 : 1;
    encode_row(middle);
    encode_row(middle - onward * 16);
    const std::int64_t pairs = args_.columns.num_first;
    const std::int64_t block = args_.stream ? kStreamPairs : pairs;
    for (std::int64_t begin = 0; begin < pairs; begin += block) {
      const std::int64_t end = std::min(begin + block, pairs);
      for (std::int64_t r = 1; r < 16; ++r) encode_two_rows(middle + onward * r, middle - onward * r, begin, end);
    }
  }

  /// Pairs [begin, end) of the rows that one step makes.
  void encode_two_rows(std::int64_t plus_row, std::int64_t minus_row, std::int64_t begin, std::int64_t end) {
    const RowValues values = rows_.values(plus_row, Place{});
    void* const plus = at(plus_row * args_.row_dims[0].out_stride);
    void* const minus = at(minus_row * args_.row_dims[0].out_stride);
    const std::int64_t stride = args_.columns.first_stride;
    const auto encode = rows_.lanes().encode_two_rows[dtype_];
    if (!args_.stream) return encode(values, begin, end, stride, args_.columns.second_offset, plus, minus);

    char* const plus_buffer = static_cast<char*>(rows_.workspace().scratch(4 * kStreamPairs * itemsize_));
    char* const minus_buffer = plus_buffer + 2 * kStreamPairs * itemsize_;
    encode(values, begin, end, stride, end - begin, plus_buffer, minus_buffer);
    stream_pairs(plus, plus_buffer, begin, end);
    stream_pairs(minus, minus_buffer, begin, end);
  }

  /// Moves the columns of pairs [begin, end) from a buffer to where they belong in a row.
  void stream_pairs(void* row, const char* buffer, std::int64_t begin, std::int64_t end) {
    const std::int64_t bytes = (end - begin) * itemsize_;
    char* const out = static_cast<char*>(row);
    if (args_.columns.first_stride == 2) {
      stream_copy(out + 2 * begin * itemsize_, buffer, static_cast<std::size_t>(2 * bytes));
    } else {
      stream_copy(out + begin * itemsize_, buffer, static_cast<std::size_t>(bytes));
      stream_copy(out + (args_.columns.second_offset + begin) * itemsize_, buffer + bytes,
                  static_cast<std::size_t>(bytes));
    }
  }

  void* at(std::int64_t place) const { return static_cast<char*>(args_.out) + place * itemsize_; }

  const Args& args_;
  RowSource rows_;
  int dtype_;
  std::int64_t itemsize_;
  std::int64_t row_bytes_;
  bool dense_;
  bool even_;
};

}  // namespace

void encode(const Args& args, const Frequencies& frequencies, std::int64_t begin, std::int64_t end, SimdLevel level) {
  if (begin < end) Encoder(args, frequencies, end - begin, level).run(begin, end);
}

}  // namespace posenc::kernels::cpu
