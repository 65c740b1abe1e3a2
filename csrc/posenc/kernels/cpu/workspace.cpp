#include <posenc/kernels/cpu/workspace.h>

#include <algorithm>
#include <limits>

#include <posenc/math/element.h>

namespace posenc::kernels::cpu {
namespace {

constexpr std::int64_t kMaxKeptBytes = std::int64_t{1} << 20;

void negate(double* values, std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k) values[k] = -values[k];
}

}  // namespace

Workspace& Workspace::of_thread() {
  thread_local Workspace workspace;
  return workspace;
}

void Workspace::trim() {
  if (scratch_.bytes() > kMaxKeptBytes) scratch_.release();
  if (values_.bytes() > kMaxKeptBytes) values_.release();
  if (phases_.bytes() > kMaxKeptBytes) phases_.release();
  if (current_.values.bytes() > kMaxKeptBytes) current_ = Anchor{};
}

Workspace::Anchor& Workspace::kept_anchor(std::uint64_t frequencies, std::uint64_t number, bool mirrored) {
  // Each anchor has the places of one group: positions a power of two apart are common, so groups go by a hash.
  constexpr std::uint64_t kGroup = 4;
  constexpr std::uint64_t kGroups = kKeptAnchors / kGroup;
  const std::uint64_t hash = (number + 31 * frequencies + (mirrored ? 17 : 0)) * 0x9E3779B97F4A7C15u;
  Anchor* const group = &kept_[(hash >> 32) % kGroups * kGroup];
  Anchor* found = group;
  for (Anchor* anchor = group; anchor < group + kGroup; ++anchor) {
    if (anchor->frequencies == frequencies && anchor->number == number && anchor->mirrored == mirrored) {
      found = anchor;
      break;
    }
    if (anchor->last_use < found->last_use) found = anchor;
  }
  found->last_use = ++uses_;
  return *found;
}

const double* Workspace::anchor(const Frequencies& frequencies, const Lanes& lanes, std::uint64_t number, bool mirrored,
                                bool keep) {
  const std::int64_t count = frequencies.count();
  const bool keeps = keep && count <= kMaxKeptAnchorPairs;
  Anchor& anchor = keeps ? kept_anchor(frequencies.id(), number, mirrored) : current_;
  if (anchor.frequencies == frequencies.id() && anchor.number == number && anchor.mirrored == mirrored) {
    return anchor.values.data();
  }
  anchor.frequencies = 0;  // should memory run out below
  double* const sin = anchor.values.reserve(2 * count);
  std::uint64_t* const phases = phases_.reserve(count);
  lanes.phases(number << 5, frequencies.hi(), frequencies.lo(), count, phases);
  lanes.sincos(phases, count, sin, sin + count);
  if (mirrored) negate(sin, count);
  anchor.frequencies = frequencies.id();
  anchor.number = number;
  anchor.mirrored = mirrored;
  return sin;
}

RowValues Workspace::row_values(const Frequencies& frequencies, const Lanes& lanes, const math::Position& position,
                                bool negative_scale, bool cos_first, bool keep_anchor) {
  const std::int64_t count = frequencies.count();
  const bool mirrored = math::negates_sine(position, negative_scale);
  const double* sin = nullptr;
  const double* step = nullptr;
  double sign = 1.0;
  if (position.kind == math::PositionKind::kInteger) {
    const math::SplitPosition split = math::split_position(position.magnitude);
    sin = anchor(frequencies, lanes, split.anchor, mirrored, keep_anchor);
    if (split.remainder != 0) {
      step = frequencies.step(split.remainder < 0 ? -split.remainder : split.remainder);
      // With the anchor's sine negated, a step back is a step on.
      if ((split.remainder < 0) != mirrored) sign = -1.0;
    }
  } else {
    double* const values = values_.reserve(2 * count);
    if (position.kind == math::PositionKind::kReal) {
      std::uint64_t* const phases = phases_.reserve(count);
      const math::Float128* const exact = frequencies.exact();
      for (std::int64_t k = 0; k < count; ++k) phases[k] = math::phase_of_real(position.real_magnitude, exact[k]);
      lanes.sincos(phases, count, values, values + count);
      if (mirrored) negate(values, count);
    } else {
      std::fill(values, values + 2 * count, std::numeric_limits<double>::quiet_NaN());
    }
    sin = values;
  }
  const double* const cos = sin + count;
  const double* const step_cos = step == nullptr ? nullptr : step + count;
  // Exchanging sine and cosine and turning the step round gives the same products and sums, so the same bits.
  if (cos_first) return {cos, sin, step, step_cos, -sign};
  return {sin, cos, step, step_cos, sign};
}

}  // namespace posenc::kernels::cpu
