#pragma once

#include <cstdint>

#include <posenc/kernels/args.h>
#include <posenc/kernels/cpu/lanes.h>
#include <posenc/kernels/cpu/stream.h>
#include <posenc/kernels/cpu/workspace.h>

namespace posenc::kernels::cpu {

/// A call of at most this many rows keeps its anchors for the next one.
inline constexpr std::int64_t kFewRows = 64;

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
