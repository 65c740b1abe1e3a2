#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <posenc/kernels/args.h>
#include <posenc/kernels/cpu/add.h>
#include <posenc/kernels/cpu/encode.h>
#include <posenc/kernels/cuda/thread.h>
#include <posenc/math/columns.h>
#include <posenc/math/frequency.h>

#include "reference.h"

/// What the tests of both kernels share: raw memory by element type, layouts of tensors in it, and ways to run a
/// kernel.

namespace posenc::kernels::testing {

using posenc::testing::Format;
using Index = std::vector<std::int64_t>;

inline constexpr DType kDTypes[] = {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16};
inline constexpr std::int64_t kWidths[] = {1, 2, 3, 7, 64};

// ---- Elements in raw memory ----

inline const Format& format_of(DType dtype) {
  static constexpr Format kFormats[] = {posenc::testing::kFloat64, posenc::testing::kFloat32,
                                        posenc::testing::kBFloat16, posenc::testing::kFloat16};
  return kFormats[static_cast<int>(dtype)];
}

inline DType compute_dtype(DType dtype) { return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }

inline std::size_t size_of(DType dtype) {
  static constexpr std::size_t kSizes[] = {8, 4, 2, 2};
  return kSizes[static_cast<int>(dtype)];
}

/// Begins where a line of the cache does, as torch's memory does.
template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  LineAllocator() = default;
  template <typename U>
  explicit LineAllocator(const LineAllocator<U>&) {}
  T* allocate(std::size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kLine)); }
  void deallocate(T* data, std::size_t) { ::operator delete(data, kLine); }
  friend bool operator==(const LineAllocator&, const LineAllocator&) { return true; }
};

/// Elements of one type, filled with a pattern that no kernel writes, so that what was written shows.
class Memory {
 public:
  Memory(DType dtype, std::int64_t elements)
      : dtype_(dtype), bytes_(static_cast<std::size_t>(elements) * size_of(dtype), kUntouched) {}

  DType dtype() const { return dtype_; }
  std::int64_t elements() const { return static_cast<std::int64_t>(bytes_.size() / size_of(dtype_)); }
  void* at(std::int64_t index) { return bytes_.data() + static_cast<std::size_t>(index) * size_of(dtype_); }
  const void* at(std::int64_t index) const { return const_cast<Memory*>(this)->at(index); }

  std::uint64_t bits(std::int64_t index) const {
    std::uint64_t result = 0;
    std::memcpy(&result, at(index), size_of(dtype_));
    return result;
  }

  bool untouched(std::int64_t index) const {
    const unsigned char* element = static_cast<const unsigned char*>(at(index));
    return std::all_of(element, element + size_of(dtype_), [](unsigned char byte) { return byte == kUntouched; });
  }

  double value(std::int64_t index) const {
    if (dtype_ == DType::kFloat64) return read<double>(index);
    if (dtype_ == DType::kFloat32) return static_cast<double>(read<float>(index));
    return posenc::testing::decode_16bit(format_of(dtype_), read<std::uint16_t>(index));
  }

  /// Stores the nearest number.
  void set(std::int64_t index, double value) {
    if (dtype_ == DType::kFloat64) return write(index, value);
    if (dtype_ == DType::kFloat32) return write(index, static_cast<float>(value));
    write(index, posenc::testing::encode_16bit(format_of(dtype_), static_cast<long double>(value)));
  }

  friend bool operator==(const Memory& a, const Memory& b) { return a.dtype_ == b.dtype_ && a.bytes_ == b.bytes_; }

 private:
  static constexpr unsigned char kUntouched = 0xA5;

  template <typename T>
  T read(std::int64_t index) const {
    T value;
    std::memcpy(&value, at(index), sizeof(T));
    return value;
  }

  template <typename T>
  void write(std::int64_t index, T value) {
    std::memcpy(at(index), &value, sizeof(T));
  }

  DType dtype_;
  std::vector<unsigned char, LineAllocator<unsigned char>> bytes_;
};

/// Equal to the last bit; names the first element that is not.
inline ::testing::AssertionResult same_bits(const Memory& a, const Memory& b) {
  if (a == b) return ::testing::AssertionSuccess();
  if (a.elements() != b.elements()) return ::testing::AssertionFailure() << a.elements() << " and " << b.elements();
  std::int64_t i = 0;
  while (a.bits(i) == b.bits(i)) ++i;
  return ::testing::AssertionFailure() << "element " << i << ": " << a.value(i) << " and " << b.value(i) << " (bits "
                                       << std::hex << a.bits(i) << " and " << b.bits(i) << ")";
}

// ---- Layouts ----

/// Calls `visit(index)` for every index of a grid, the last dimension fastest.
template <typename Visit>
void for_each_index(const Index& sizes, Visit&& visit) {
  Index index(sizes.size(), 0);
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return;
  while (true) {
    visit(index);
    std::size_t d = sizes.size();
    while (d > 0 && ++index[d - 1] == sizes[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

/// How a tensor lies in memory: strides and the place of element (0, .., 0).
struct Layout {
  std::string name;
  Index strides;
  std::int64_t origin;
  std::int64_t elements;

  std::int64_t place(const Index& index) const {
    std::int64_t place = origin;
    for (std::size_t d = 0; d < index.size(); ++d) place += index[d] * strides[d];
    return place;
  }
};

/// Dimensions in the sequence `order` from outermost to innermost, each stride `gap` elements longer than needed, and
/// every dimension for which `flip(d)` walked from its end.
template <typename Flip>
Layout make_layout(std::string name, const Index& sizes, const std::vector<std::size_t>& order, std::int64_t gap,
                   Flip&& flip) {
  Layout layout{std::move(name), Index(sizes.size()), 0, 1};
  for (std::size_t i = sizes.size(); i-- > 0;) {
    const std::size_t d = order[i];
    const std::int64_t stride = layout.elements + gap;
    layout.strides[d] = flip(d) ? -stride : stride;
    if (flip(d)) layout.origin += (sizes[d] - 1) * stride;
    layout.elements += (sizes[d] - 1) * stride;
  }
  return layout;
}

/// The layouts that every kernel is run on; sizes include the columns as the last dimension.
inline std::vector<Layout> layouts(const Index& sizes) {
  std::vector<std::size_t> forward(sizes.size());
  for (std::size_t d = 0; d < sizes.size(); ++d) forward[d] = d;
  const std::vector<std::size_t> reversed(forward.rbegin(), forward.rend());
  std::vector<std::size_t> shuffled = forward;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(7));
  const auto never = [](std::size_t) { return false; };
  return {
      make_layout("contiguous", sizes, forward, 0, never),
      make_layout("columns outermost", sizes, reversed, 0, never),
      make_layout("gaps everywhere", sizes, forward, 2, never),
      make_layout("columns backwards", sizes, forward, 1, [&](std::size_t d) { return d + 1 == sizes.size(); }),
      make_layout("all backwards", sizes, forward, 0, [](std::size_t) { return true; }),
      make_layout("shuffled, every second backwards", sizes, shuffled, 1, [](std::size_t d) { return d % 2 == 1; }),
  };
}

// ---- Kernel arguments ----

/// What one call computes, apart from where its tensors lie.
struct Setting {
  DType dtype = DType::kFloat64;
  std::int64_t d_model = 8;
  Convention convention = {};

  math::Columns columns() const { return math::make_columns(d_model, convention.order, convention.odd); }

  math::FrequencyTables tables() const {
    return math::make_frequency_tables(convention.base, math::effective_width(d_model, convention.odd),
                                       convention.freq_shift, convention.position_scale, columns().num_first);
  }

  /// Arguments without tensors: positions count up from `offset`.
  Args args(std::int64_t offset = 0) const {
    Args args{};
    args.offset = offset;
    args.d_model = d_model;
    args.input_scale = 1.0;
    args.alpha = 1.0;
    args.columns = columns();
    args.negative_scale = convention.position_scale < 0.0;
    args.dtype = dtype;
    args.position_type = PositionType::kRange;
    return args;
  }

  std::string name() const {
    return std::string(format_of(dtype).name) + ", " + posenc::testing::describe(convention, d_model);
  }
};

inline cpu::Frequencies frequencies(const Setting& setting) {
  return cpu::Frequencies({setting.convention.base, math::effective_width(setting.d_model, setting.convention.odd),
                           setting.convention.freq_shift, setting.convention.position_scale,
                           setting.columns().num_first});
}

/// Every dtype, order, meaning of an odd width and width, at an ordinary and at an unusual scale.
inline std::vector<Setting> all_settings() {
  std::vector<Setting> settings;
  for (const DType dtype : kDTypes) {
    for (const std::int64_t d_model : kWidths) {
      for (const Order order : posenc::testing::kOrders) {
        for (const Odd odd : {Odd::kSin, Odd::kZero, Odd::kCut}) {
          if (d_model % 2 == 0 && odd != Odd::kSin) continue;
          settings.push_back({dtype, d_model, {10000.0, 0.0, 1.0, order, odd}});
          settings.push_back({dtype, d_model, {50.0, 0.25, -0.75, order, odd}});
        }
      }
    }
  }
  return settings;
}

/// Sets `dims` of args from sizes and strides of the tensors (positions, x, out), which may be empty for "none".
inline void set_dims(Dim* dims, int& num_dims, const Index& sizes, const Index& positions, const Index& x,
                     const Index& out, std::size_t first = 0) {
  num_dims = static_cast<int>(sizes.size());
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    dims[d] = {sizes[d], positions.empty() ? 0 : positions[d], x.empty() ? 0 : x[first + d], out[first + d]};
  }
}

// ---- Running ----

/// The CPU kernels at one SIMD level (the widest of this processor where it has less), past the cache or not.
template <cpu::SimdLevel kLevel, bool kStream>
struct Cpu {
  static cpu::SimdLevel level() { return std::min(kLevel, cpu::widest_simd_level()); }

  static Args with_stream(Args args) {
    args.stream = kStream;
    return args;
  }

  static void encode(const Args& args, const Setting& setting) {
    cpu::encode(with_stream(args), frequencies(setting), 0, num_rows(args), level());
  }

  static void add(const Args& args, const Setting& setting) {
    cpu::add(with_stream(args), frequencies(setting), {0, num_rows(args), 0, num_batches(args)}, level());
  }
};

/// Runs `thread(index)` for each of `count` threads of a launch, in an order that no device would keep to.
template <typename Thread>
void launch_on_host(std::int64_t count, Thread&& thread) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::int64_t>(i);
  std::shuffle(indices.begin(), indices.end(), std::mt19937(3));
  for (const std::int64_t index : indices) thread(index);
}

/// The threads of the launch that CUDA would make, with the accesses it would make (kVectors) or element by element.
template <template <typename> class Row, bool kVectors>
void run_threads(const Args& plain_args, const Setting& setting) {
  Args args = plain_args;
  if (num_rows(args) == 0 || num_batches(args) == 0) return;
  const math::FrequencyTables tables = setting.tables();
  args.vectors = kVectors && cuda::can_use_vectors(args);
  dispatch_dtype(args.dtype, [&]<typename scalar_t>() {
    const cuda::LaunchArgs launch_args = cuda::make_launch_args<scalar_t>(args);
    if (args.position_type == PositionType::kRange) {
      const cuda::RangePlan plan = cuda::plan_range<scalar_t>(args);
      launch_on_host(cuda::num_range_threads<scalar_t>(args, plan), [&](std::int64_t index) {
        cuda::run_range_thread<scalar_t, Row<scalar_t>>(launch_args, tables, plan, index);
      });
    } else {
      launch_on_host(cuda::num_position_threads<scalar_t>(args), [&](std::int64_t index) {
        cuda::run_position_thread<scalar_t, Row<scalar_t>>(launch_args, tables, index);
      });
    }
  });
}

/// One way to run a kernel over all its tokens.
struct Engine {
  const char* name;
  void (*encode)(const Args&, const Setting&);
  void (*add)(const Args&, const Setting&);
};

template <typename Kernels>
constexpr Engine make_engine(const char* name) {
  return {name, Kernels::encode, Kernels::add};
}

inline constexpr Engine kEngines[] = {
    make_engine<Cpu<cpu::SimdLevel::kBaseline, false>>("cpu_baseline"),
#if defined(__x86_64__)  // elsewhere there is one level
    make_engine<Cpu<cpu::SimdLevel::kAvx2, false>>("cpu_avx2"),
    make_engine<Cpu<cpu::SimdLevel::kAvx512, false>>("cpu_avx512"),
#endif
    make_engine<Cpu<cpu::SimdLevel::kAvx512, true>>("cpu_stream"),
    {"cuda_threads", run_threads<cuda::EncodeRow, true>, run_threads<cuda::AddRow, true>},
    {"cuda_threads_by_element", run_threads<cuda::EncodeRow, false>, run_threads<cuda::AddRow, false>}};

/// The table of positions offset, offset + 1, .., by the CPU kernel: row r, column c at element r * d_model + c.
inline Memory encode_table(const Setting& setting, std::int64_t num_rows, std::int64_t offset) {
  Memory out(setting.dtype, num_rows * setting.d_model);
  Args args = setting.args(offset);
  args.out = out.at(0);
  args.out_column_stride = 1;
  set_dims(args.row_dims, args.num_row_dims, {num_rows}, {}, {}, {setting.d_model});
  kEngines[0].encode(args, setting);
  return out;
}

}  // namespace posenc::kernels::testing
