#pragma once

#include <cstdint>

#include <posenc/kernels/args.h>
#include <posenc/kernels/cpu/lanes.h>
#include <posenc/kernels/cpu/stream.h>
#include <posenc/kernels/cpu/workspace.h>
#include <posenc/math/element.h>

namespace posenc::kernels::cpu {

/// A call of at most this many rows keeps its anchors for the next one.
inline constexpr std::int64_t kFewRows = 512;

/// Gives the values of one row after another, in any order.
class RowSource {
 public:
  RowSource(const Args& args, const Frequencies& frequencies, SimdLevel level, bool keep_anchors)
      : args_(args),
        frequencies_(frequencies),
        lanes_(cpu::lanes(level)),
        workspace_(Workspace::of_thread()),
        keep_anchors_(keep_anchors) {}
  ~RowSource() { workspace_.trim(); }
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;

  /// The values of the row that stands at `place`, until the next call.
  RowValues values(std::int64_t row, const Place& place) {
    return workspace_.row_values(frequencies_, lanes_, position_at(args_, row, place.position), args_.negative_scale,
                                 args_.columns.cos_first, keep_anchors_);
  }

  const Lanes& lanes() const { return lanes_; }
  Workspace& workspace() const { return workspace_; }

 private:
  const Args& args_;
  const Frequencies& frequencies_;
  const Lanes& lanes_;
  Workspace& workspace_;
  bool keep_anchors_;
};

/// Rows of one anchor, and the steps that make them: 1 to 15 forwards and 1 to 16 back.
inline constexpr std::int64_t kAnchorRows = 32;

/// Whether rows can be made two at a time: a range, whose rows stand evenly, of pairs that have both functions.
inline bool has_row_pairs(const Args& args) {
  return args.position_type == PositionType::kRange && args.num_row_dims == 1 &&
         args.columns.num_first == args.columns.num_second && args.columns.zero_column < 0;
}

/// If the rows from this one on are all those of one anchor other than 0: which one is the anchor's, or -1.
inline std::int64_t anchor_row(const Args& args, std::int64_t first_row) {
  const math::Position position = math::position_from(args.offset + first_row);
  const math::SplitPosition split = math::split_position(position.magnitude);
  const int first_remainder = position.negative ? 15 : -16;  // magnitudes of negative positions shrink
  if (split.anchor == 0 || split.remainder != first_remainder) return -1;
  return first_row + (position.negative ? 15 : 16);
}

/// Calls one(row) for rows of [begin, end), and anchor(row, onward) instead for the 32 rows of the anchor that stands
/// at `row`; magnitudes grow in the direction `onward`, +1 or -1. Needs has_row_pairs.
template <typename One, typename Anchor>
inline void for_each_row(const Args& args, std::int64_t begin, std::int64_t end, const One& one, const Anchor& anchor) {
  for (std::int64_t row = begin; row < end;) {
    const std::int64_t middle = end - row >= kAnchorRows ? anchor_row(args, row) : -1;
    if (middle >= 0) {
      anchor(middle, middle == row + 16 ? 1 : -1);
      row += kAnchorRows;
    } else {
      one(row);
      ++row;
    }
  }
}

/// Walks the places of a grid of dimensions in order, the last dimension fastest, without a division for each.
class PlaceWalk {
 public:
  PlaceWalk(const Dim* dims, int num_dims, std::int64_t begin) : dims_(dims), num_dims_(num_dims) {
    place_ = place_of(dims, num_dims, begin);
    for (int i = num_dims - 1; i >= 0; --i) {
      at_[i] = begin % dims[i].size;
      begin /= dims[i].size;
    }
  }

  const Place& place() const { return place_; }

  void advance() {
    for (int i = num_dims_ - 1; i >= 0; --i) {
      move(dims_[i], 1);
      if (++at_[i] < dims_[i].size) return;
      move(dims_[i], -at_[i]);
      at_[i] = 0;
    }
  }

 private:
  void move(const Dim& dim, std::int64_t steps) {
    place_.position += steps * dim.position_stride;
    place_.x += steps * dim.x_stride;
    place_.out += steps * dim.out_stride;
    place_.token += steps * dim.token_stride;
  }

  const Dim* dims_;
  int num_dims_;
  std::int64_t at_[kMaxDims];
  Place place_;
};

template <typename T>
inline void scatter_elements(void* to, std::int64_t stride, const void* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) static_cast<T*>(to)[i * stride] = static_cast<const T*>(from)[i];
}

template <typename T>
inline void gather_elements(void* to, const void* from, std::int64_t stride, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) static_cast<T*>(to)[i] = static_cast<const T*>(from)[i * stride];
}

/// Spreads a dense row over elements `stride` apart.
inline void scatter(void* to, std::int64_t stride, const void* from, std::int64_t count, DType dtype) {
  switch (element_size(dtype)) {
    case 8:
      return scatter_elements<std::uint64_t>(to, stride, from, count);
    case 4:
      return scatter_elements<std::uint32_t>(to, stride, from, count);
    default:
      return scatter_elements<std::uint16_t>(to, stride, from, count);
  }
}

/// Collects elements `stride` apart into a dense row.
inline void gather(void* to, const void* from, std::int64_t stride, std::int64_t count, DType dtype) {
  switch (element_size(dtype)) {
    case 8:
      return gather_elements<std::uint64_t>(to, from, stride, count);
    case 4:
      return gather_elements<std::uint32_t>(to, from, stride, count);
    default:
      return gather_elements<std::uint16_t>(to, from, stride, count);
  }
}

}  // namespace posenc::kernels::cpu
