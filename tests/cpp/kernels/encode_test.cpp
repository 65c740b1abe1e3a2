#include <posenc/kernels/cpu/encode.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <posenc/kernels/cuda/thread.h>

#include "kernel_case.h"

namespace posenc::kernels::testing {
namespace {

using posenc::testing::golden_values;
using posenc::testing::GoldenValue;
using posenc::testing::Judge;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();

/// A one-dimensional array of positions of any type.
struct Positions {
  PositionType type;
  std::vector<unsigned char> bytes;

  template <typename T>
  static Positions of(PositionType type, const std::vector<T>& values) {
    Positions result{type, std::vector<unsigned char>(values.size() * sizeof(T))};
    if (!values.empty()) std::memcpy(result.bytes.data(), values.data(), result.bytes.size());
    return result;
  }
};

template <typename T>
std::vector<T> cast_all(const std::vector<double>& values) {
  return std::vector<T>(values.begin(), values.end());
}

std::vector<std::uint16_t> cast_16bit(const Format& format, const std::vector<double>& values) {
  std::vector<std::uint16_t> result;
  for (const double value : values) {
    result.push_back(posenc::testing::encode_16bit(format, static_cast<long double>(value)));
  }
  return result;
}

/// `values`, which each type can hold, as positions of every type (of every signed type if one is negative).
std::vector<Positions> positions_of_every_type(const std::vector<double>& values) {
  std::vector<Positions> result = {
      Positions::of(PositionType::kInt8, cast_all<std::int8_t>(values)),
      Positions::of(PositionType::kInt16, cast_all<std::int16_t>(values)),
      Positions::of(PositionType::kInt32, cast_all<std::int32_t>(values)),
      Positions::of(PositionType::kInt64, cast_all<std::int64_t>(values)),
      Positions::of(PositionType::kFloat16, cast_16bit(posenc::testing::kFloat16, values)),
      Positions::of(PositionType::kBFloat16, cast_16bit(posenc::testing::kBFloat16, values)),
      Positions::of(PositionType::kFloat32, cast_all<float>(values)),
      Positions::of(PositionType::kFloat64, values),
  };
  if (*std::min_element(values.begin(), values.end()) >= 0) {
    result.push_back(Positions::of(PositionType::kUInt8, cast_all<std::uint8_t>(values)));
    result.push_back(Positions::of(PositionType::kUInt16, cast_all<std::uint16_t>(values)));
    result.push_back(Positions::of(PositionType::kUInt32, cast_all<std::uint32_t>(values)));
  }
  return result;
}

class EncodeKernel : public ::testing::TestWithParam<Engine> {
 protected:
  /// The encodings of `count` given positions, contiguous.
  Memory encode(const Setting& setting, const Positions& positions, std::int64_t count) {
    Memory out(setting.dtype, count * setting.d_model);
    Args args = setting.args();
    args.positions = positions.bytes.data();
    args.position_type = positions.type;
    args.out = out.at(0);
    args.out_column_stride = 1;
    set_dims(args.row_dims, args.num_row_dims, {count}, {1}, {}, {setting.d_model});
    GetParam().encode(args, setting);
    return out;
  }

  template <typename T>
  Memory encode(const Setting& setting, PositionType type, const std::vector<T>& positions) {
    return encode(setting, Positions::of(type, positions), static_cast<std::int64_t>(positions.size()));
  }

  /// The encodings of positions offset, offset + 1, .., contiguous.
  Memory encode_range(const Setting& setting, std::int64_t num_rows, std::int64_t offset) {
    Memory out(setting.dtype, num_rows * setting.d_model);
    Args args = setting.args(offset);
    args.out = out.at(0);
    args.out_column_stride = 1;
    set_dims(args.row_dims, args.num_row_dims, {num_rows}, {}, {}, {setting.d_model});
    GetParam().encode(args, setting);
    return out;
  }
};

INSTANTIATE_TEST_SUITE_P(Engines, EncodeKernel, ::testing::ValuesIn(kEngines),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_P(EncodeKernel, values_meet_the_bound_for_every_dtype_order_odd_and_width) {
  constexpr std::int64_t kOffset = -40;
  constexpr std::int64_t kRows = 101;
  for (const Setting& setting : all_settings()) {
    const Memory out = encode_range(setting, kRows, kOffset);
    const posenc::testing::Columns columns =
        posenc::testing::columns_of(setting.d_model, setting.convention.order, setting.convention.odd);
    Judge judge(setting.name(), format_of(setting.dtype));
    for (std::int64_t row = 0; row < kRows; ++row) {
      const std::string position = std::to_string(kOffset + row);
      for (std::int64_t column = 0; column < setting.d_model; ++column) {
        const long double exact = posenc::testing::reference(
            setting.convention, columns, static_cast<std::size_t>(column), static_cast<long double>(kOffset + row));
        judge.check(out.value(row * setting.d_model + column), exact, position, column);
      }
    }
    EXPECT_TRUE(judge.verdict());
  }
}

TEST_P(EncodeKernel, golden_values_are_met_at_any_position) {
  for (const DType dtype : kDTypes) {
    Judge judge("ops_values.csv", format_of(dtype));
    for (const GoldenValue& golden : golden_values()) {
      const Setting setting{dtype, golden.d_model, golden.convention};
      const Memory out = golden.is_integer
                             ? encode<std::int64_t>(setting, PositionType::kInt64, {golden.integer_position})
                             : encode<double>(setting, PositionType::kFloat64, {golden.real_position});
      const std::string name = golden.position + " of " + setting.name();
      judge.check(out.value(golden.column), golden.value, name, golden.column);
      if (golden.is_integer) {
        EXPECT_TRUE(same_bits(encode_range(setting, 1, golden.integer_position), out)) << name;
      }
    }
    EXPECT_TRUE(judge.verdict());
  }
}

TEST_P(EncodeKernel, sixteen_bit_results_are_rounded_once) {
  // So many elements that some lie within a float32 rounding of a tie, where rounding by way of float32 goes wrong.
  constexpr std::int64_t kRows = 20000;
  const Setting wide{DType::kFloat64, 64, {}};
  const Memory exact = encode_range(wide, kRows, 0);  // within 4e-16
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const Format& format = format_of(dtype);
    const Memory out = encode_range({dtype, 64, {}}, kRows, 0);
    int num_telling = 0;
    for (std::int64_t i = 0; i < out.elements(); ++i) {
      const std::uint16_t nearest = posenc::testing::encode_16bit(format, exact.value(i));
      const float single = static_cast<float>(exact.value(i));
      if (posenc::testing::encode_16bit(format, static_cast<long double>(single)) != nearest) ++num_telling;
      if (out.bits(i) == nearest) continue;
      const long double low = posenc::testing::round_to(format, exact.value(i) - 2.0L * posenc::testing::kBound);
      const long double high = posenc::testing::round_to(format, exact.value(i) + 2.0L * posenc::testing::kBound);
      EXPECT_TRUE(low <= out.value(i) && out.value(i) <= high)
          << format.name << ", position " << i / 64 << ", column " << i % 64 << ": got " << out.value(i)
          << ", which is no rounding of " << exact.value(i);
    }
    EXPECT_GT(num_telling, 0) << format.name << ": no element tells one rounding from two";
  }
}

TEST_P(EncodeKernel, bits_are_those_of_the_cpu_table) {
  for (const Setting& setting : all_settings()) {
    for (const std::int64_t offset : {std::int64_t{-5}, std::int64_t{1} << 40, kInt64Min, kInt64Max - 9}) {
      EXPECT_TRUE(same_bits(encode_range(setting, 9, offset), encode_table(setting, 9, offset)))
          << setting.name() << ", offset " << offset;
    }
  }
}

TEST_P(EncodeKernel, a_position_has_the_same_bits_in_every_type) {
  const std::vector<double> naturals = {0, 1, 2, 15, 16, 17, 31, 32, 33, 100, 127};
  const std::vector<double> integers = {-128, -127, -33, -17, -16, -1, 0, 1, 48, 96, 112};
  for (const DType dtype : kDTypes) {
    const Setting setting{dtype, 7, {10000.0, 0.0, 1.0, Order::kSplit, Odd::kZero}};
    for (const std::vector<double>& values : {naturals, integers}) {
      const std::int64_t count = static_cast<std::int64_t>(values.size());
      const Memory expected = encode(setting, PositionType::kInt64, cast_all<std::int64_t>(values));
      for (const Positions& positions : positions_of_every_type(values)) {
        EXPECT_TRUE(same_bits(encode(setting, positions, count), expected))
            << setting.name() << ", position type " << static_cast<int>(positions.type);
      }
      for (std::int64_t row = 0; row < count; ++row) {
        const std::int64_t position = static_cast<std::int64_t>(values[static_cast<std::size_t>(row)]);
        const Memory single = encode_range(setting, 1, position);
        for (std::int64_t column = 0; column < setting.d_model; ++column) {
          EXPECT_EQ(single.bits(column), expected.bits(row * setting.d_model + column)) << position;
        }
      }
    }
  }
}

TEST_P(EncodeKernel, unsigned_and_floating_positions_are_taken_at_their_exact_value) {
  const Setting setting{DType::kFloat64, 6, {}};
  const auto int64_bits = [&](std::int64_t position) {
    return encode<std::int64_t>(setting, PositionType::kInt64, {position});
  };
  EXPECT_TRUE(same_bits(encode<std::uint8_t>(setting, PositionType::kUInt8, {255}), int64_bits(255)));
  EXPECT_TRUE(same_bits(encode<std::uint16_t>(setting, PositionType::kUInt16, {65535}), int64_bits(65535)));
  EXPECT_TRUE(same_bits(encode<std::uint32_t>(setting, PositionType::kUInt32, {4294967295u}), int64_bits(4294967295)));
  EXPECT_TRUE(same_bits(encode<float>(setting, PositionType::kFloat32, {0x1p40f}), int64_bits(std::int64_t{1} << 40)));

  const std::vector<double> halves = {0.5, -0.5, 1.25, -3.75};
  const Memory expected = encode(setting, PositionType::kFloat64, halves);
  const std::int64_t count = static_cast<std::int64_t>(halves.size());
  EXPECT_TRUE(same_bits(encode(setting, PositionType::kFloat32, cast_all<float>(halves)), expected));
  const Format& half = posenc::testing::kFloat16;
  EXPECT_TRUE(
      same_bits(encode(setting, Positions::of(PositionType::kFloat16, cast_16bit(half, halves)), count), expected));
  const Format& brain = posenc::testing::kBFloat16;
  EXPECT_TRUE(
      same_bits(encode(setting, Positions::of(PositionType::kBFloat16, cast_16bit(brain, halves)), count), expected));
}

TEST_P(EncodeKernel, every_layout_holds_the_bits_of_the_table_and_nothing_else_is_written) {
  const std::vector<Index> row_sizes = {{5}, {2, 3}, {3, 1, 2}, {2, 1, 3, 2, 1, 2}};
  for (const DType dtype : kDTypes) {
    for (const Odd odd : {Odd::kSin, Odd::kZero}) {
      const Setting setting{dtype, 5, {10000.0, 0.0, 1.0, Order::kSplitCosFirst, odd}};
      for (const Index& rows : row_sizes) {
        const Layout positions_in = layouts(rows).back();  // shuffled and partly backwards
        std::vector<std::int64_t> positions(static_cast<std::size_t>(positions_in.elements), -1);
        std::int64_t next = 20;
        for_each_index(
            rows, [&](const Index& index) { positions[static_cast<std::size_t>(positions_in.place(index))] = next++; });
        const Memory table = encode_table(setting, next - 20, 20);

        Index sizes = rows;
        sizes.push_back(setting.d_model);
        for (const Layout& layout : layouts(sizes)) {
          Memory out(dtype, layout.elements);
          Args args = setting.args();
          args.positions = positions.data() + positions_in.origin;
          args.position_type = PositionType::kInt64;
          args.out = out.at(layout.origin);
          args.out_column_stride = layout.strides.back();
          set_dims(args.row_dims, args.num_row_dims, rows, positions_in.strides, {}, layout.strides);
          GetParam().encode(args, setting);

          Memory expected(dtype, layout.elements);
          std::int64_t element = 0;
          for_each_index(sizes, [&](const Index& index) {
            std::memcpy(expected.at(layout.place(index)), table.at(element++), size_of(dtype));
          });
          EXPECT_TRUE(same_bits(out, expected))
              << setting.name() << ", " << rows.size() << " row dimensions, layout " << layout.name;
        }
      }
    }
  }
}

TEST_P(EncodeKernel, a_stride_of_zero_reads_one_position_for_a_whole_dimension) {
  const Setting setting{DType::kFloat32, 6, {}};
  const std::vector<std::int64_t> positions = {7, 11};
  Memory out(setting.dtype, 2 * 3 * 6);
  Args args = setting.args();
  args.positions = positions.data();
  args.position_type = PositionType::kInt64;
  args.out = out.at(0);
  args.out_column_stride = 1;
  set_dims(args.row_dims, args.num_row_dims, {2, 3}, {1, 0}, {}, {18, 6});
  GetParam().encode(args, setting);
  const std::vector<std::int64_t> spelled_out = {7, 7, 7, 11, 11, 11};
  EXPECT_TRUE(same_bits(out, encode(setting, PositionType::kInt64, spelled_out)));
}

TEST_P(EncodeKernel, not_finite_positions_give_nan_rows_and_disturb_no_other) {
  for (const DType dtype : kDTypes) {
    const Setting setting{dtype, 7, {10000.0, 0.0, 1.0, Order::kInterleaved, Odd::kZero}};
    const Memory out = encode<double>(setting, PositionType::kFloat64, {1.5, kNaN, 2.5, kInfinity, -kInfinity, 3.5});
    const Memory clean = encode<double>(setting, PositionType::kFloat64, {1.5, 0.0, 2.5, 0.0, 0.0, 3.5});
    for (std::int64_t row = 0; row < 6; ++row) {
      for (std::int64_t column = 0; column < 7; ++column) {
        const std::int64_t i = row * 7 + column;
        if (row == 0 || row == 2 || row == 5) {
          EXPECT_EQ(out.bits(i), clean.bits(i)) << format_of(dtype).name << ", row " << row << ", column " << column;
        } else if (column == 6) {
          EXPECT_EQ(out.bits(i), 0u) << format_of(dtype).name << ": the column of zeros in row " << row;
        } else {
          EXPECT_TRUE(std::isnan(out.value(i))) << format_of(dtype).name << ", row " << row << ", column " << column;
        }
      }
    }
  }
}

TEST_P(EncodeKernel, position_zero_is_sine_plus_zero_and_cosine_one_whatever_the_signs) {
  for (const DType dtype : kDTypes) {
    for (const double scale : {1.0, -1.0}) {
      const Setting setting{dtype, 8, {10000.0, 0.0, scale, Order::kInterleaved, Odd::kSin}};
      for (const Memory& out : {encode<double>(setting, PositionType::kFloat64, {0.0}),
                                encode<double>(setting, PositionType::kFloat64, {-0.0}), encode_range(setting, 1, 0)}) {
        for (std::int64_t column = 0; column < 8; ++column) {
          EXPECT_EQ(out.value(column), column % 2 == 0 ? 0.0 : 1.0) << setting.name() << ", column " << column;
          EXPECT_FALSE(std::signbit(out.value(column))) << setting.name() << ", column " << column;
        }
      }
    }
  }
}

TEST_P(EncodeKernel, a_negative_scale_mirrors_positions_exactly) {
  for (const DType dtype : kDTypes) {
    const Setting forward{dtype, 9, {10000.0, 0.0, 1.0, Order::kSplit, Odd::kZero}};
    Setting backward = forward;
    backward.convention.position_scale = -1.0;
    const std::vector<double> positions = {0, 1, -1, 17, -1000003, 0.25, -12345.678, 1e18};
    std::vector<double> mirrored;
    for (const double position : positions) mirrored.push_back(-position);
    EXPECT_TRUE(same_bits(encode(backward, PositionType::kFloat64, positions),
                          encode(forward, PositionType::kFloat64, mirrored)))
        << format_of(dtype).name;
  }
}

TEST_P(EncodeKernel, no_rows_write_nothing) {
  for (const Index& rows : {Index{0}, Index{3, 0}, Index{0, 3}}) {
    const Setting setting{DType::kFloat32, 6, {}};
    Memory out(setting.dtype, 18);
    Args args = setting.args();
    args.out = out.at(0);
    args.out_column_stride = 1;
    set_dims(args.row_dims, args.num_row_dims, rows, {}, {}, Index(rows.size(), 6));
    GetParam().encode(args, setting);
    EXPECT_EQ(out, Memory(setting.dtype, 18));
  }
}

TEST_P(EncodeKernel, long_ranges_give_the_rows_that_short_ones_give) {
  constexpr std::int64_t kRows = 230;
  for (const DType dtype : kDTypes) {
    for (const Order order : posenc::testing::kOrders) {
      for (const std::int64_t d_model : {2, 9, 64, 700, 1152}) {
        for (const double scale : {1.0, -0.5}) {
          const Setting setting{dtype, d_model, {10000.0, 0.0, scale, order, Odd::kSin}};
          Memory whole(dtype, kRows * d_model);
          Memory rows(dtype, kRows * d_model);
          for (const std::int64_t offset : {std::int64_t{-117}, std::int64_t{1} << 40}) {
            Args args = setting.args(offset);
            args.out_column_stride = 1;
            args.out = whole.at(0);
            set_dims(args.row_dims, args.num_row_dims, {kRows}, {}, {}, {d_model});
            GetParam().encode(args, setting);
            for (std::int64_t row = 0; row < kRows; ++row) {
              Args single = setting.args(offset + row);
              single.out_column_stride = 1;
              single.out = rows.at(row * d_model);
              kEngines[0].encode(single, setting);
            }
            EXPECT_TRUE(same_bits(whole, rows)) << setting.name() << ", offset " << offset;
          }
        }
      }
    }
  }
}

TEST(EncodeCpu, any_split_of_the_rows_gives_the_same_bits) {
  constexpr std::int64_t kRows = 23;
  for (const DType dtype : kDTypes) {
    const Setting setting{dtype, 7, {10000.0, 1.0, 1.0, Order::kInterleaved, Odd::kSin}};
    const Memory whole = encode_table(setting, kRows, -7);
    for (const std::vector<std::int64_t>& cuts :
         {std::vector<std::int64_t>{0, 1, kRows}, {0, 0, 11, 11, 22, kRows}, {0, 5, 6, 7, 16, kRows}}) {
      Memory out(dtype, whole.elements());
      Args args = setting.args(-7);
      args.out = out.at(0);
      args.out_column_stride = 1;
      set_dims(args.row_dims, args.num_row_dims, {kRows}, {}, {}, {setting.d_model});
      for (std::size_t part = cuts.size() - 1; part > 0; --part) {  // the last part first
        cpu::encode(args, frequencies(setting), cuts[part - 1], cuts[part]);
      }
      EXPECT_TRUE(same_bits(out, whole)) << format_of(dtype).name << ", " << cuts.size() - 1 << " parts";
    }
  }
}

TEST(EncodeCpu, only_the_rows_of_the_range_are_written) {
  const Setting setting{DType::kFloat64, 5, {}};
  Memory out(setting.dtype, 4 * 5);
  Args args = setting.args();
  args.out = out.at(0);
  args.out_column_stride = 1;
  set_dims(args.row_dims, args.num_row_dims, {4}, {}, {}, {5});
  cpu::encode(args, frequencies(setting), 1, 3);
  for (std::int64_t i = 0; i < 20; ++i) EXPECT_EQ(out.untouched(i), i < 5 || i >= 15) << "element " << i;
}

TEST(EncodeThread, every_element_is_written_by_one_thread) {
  constexpr std::int64_t kRows = 300;  // both signs, several groups of anchors
  for (const bool given : {false, true}) {
    const Setting setting{DType::kFloat32, 13, {10000.0, 0.0, 1.0, Order::kInterleaved, Odd::kZero}};
    const math::FrequencyTables tables = setting.tables();
    const std::vector<double> positions(kRows, 2.5);
    Args args = setting.args(-140);
    args.out_column_stride = 1;
    set_dims(args.row_dims, args.num_row_dims, {kRows}, {1}, {}, {13});
    if (given) {
      args.positions = positions.data();
      args.position_type = PositionType::kFloat64;
    }
    const cuda::RangePlan plan = cuda::plan_range<float>(args);
    const std::int64_t threads =
        given ? cuda::num_position_threads<float>(args) : cuda::num_range_threads<float>(args, plan);
    std::vector<int> writers(kRows * 13, 0);
    for (std::int64_t thread = 0; thread < threads; ++thread) {
      Memory out(setting.dtype, kRows * 13);
      args.out = out.at(0);
      if (given) {
        cuda::run_position_thread<float, cuda::EncodeRow<float>>(cuda::make_launch_args<float>(args), tables, thread);
      } else {
        cuda::run_range_thread<float, cuda::EncodeRow<float>>(cuda::make_launch_args<float>(args), tables, plan,
                                                              thread);
      }
      for (std::size_t i = 0; i < writers.size(); ++i) {
        if (!out.untouched(static_cast<std::int64_t>(i))) ++writers[i];
      }
    }
    EXPECT_TRUE(std::all_of(writers.begin(), writers.end(), [](int count) { return count == 1; }))
        << (given ? "given positions" : "a range");
  }
}

TEST(EncodeThread, wide_accesses_are_chosen_where_memory_allows) {
  const Setting setting{DType::kFloat32, 8, {}};
  Args args = setting.args();
  alignas(16) float out[64];
  args.out = out;
  args.out_column_stride = 1;
  set_dims(args.row_dims, args.num_row_dims, {4}, {}, {}, {8});
  EXPECT_TRUE(cuda::can_use_vectors(args));
  args.out = out + 1;
  EXPECT_FALSE(cuda::can_use_vectors(args)) << "misaligned";
  args.out = out;
  args.row_dims[0].out_stride = 9;
  EXPECT_FALSE(cuda::can_use_vectors(args)) << "odd stride";
  args.row_dims[0].out_stride = 8;
  args.out_column_stride = 2;
  EXPECT_FALSE(cuda::can_use_vectors(args)) << "columns apart";
}

TEST(EncodeThread, the_grid_covers_every_thread_and_stays_within_what_a_device_takes) {
  constexpr std::int64_t kBlock = cuda::kBlockSize;
  for (const std::int64_t count : {std::int64_t{1}, kBlock - 1, kBlock, kBlock + 1, 1000 * kBlock, 1000 * kBlock + 1}) {
    const std::int64_t blocks = cuda::grid_size(count);
    EXPECT_GE(blocks * kBlock, count);
    EXPECT_LT((blocks - 1) * kBlock, count) << "a block without work";
  }
  for (const std::int64_t count : {std::int64_t{1} << 45, kInt64Max}) {
    EXPECT_GT(cuda::grid_size(count), 0u);
    EXPECT_LT(cuda::grid_size(count), 1u << 31);
  }
}

}  // namespace
}  // namespace posenc::kernels::testing
