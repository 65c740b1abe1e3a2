#include <posenc/kernels/cpu/add.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernel_case.h"

namespace posenc::kernels::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Scales {
  double input_scale;
  double alpha;
};

// 0.1 and 3.3 are not float32 numbers: what matters is that they are rounded to the compute type first.
constexpr Scales kScales[] = {{1.0, 1.0}, {22.627416997969522, 1.0}, {1.0, 0.1}, {-3.3, 0.7}, {0.0, 1.0}, {1.0, 0.0}};

/// x * input_scale + alpha * encoding as the definition has it: each operation rounded to the compute type, then the
/// sum to the type of x. The compiler may not fuse a product and a sum here: -ffp-contract=off.
template <typename compute_t>
double compose(double x, double encoding, const Scales& scales) {
  const compute_t scaled_x = static_cast<compute_t>(x) * static_cast<compute_t>(scales.input_scale);
  const compute_t scaled_encoding = static_cast<compute_t>(scales.alpha) * static_cast<compute_t>(encoding);
  return static_cast<double>(scaled_x + scaled_encoding);
}

double compose(DType dtype, double x, double encoding, const Scales& scales) {
  return dtype == DType::kFloat64 ? compose<double>(x, encoding, scales) : compose<float>(x, encoding, scales);
}

/// Values of every size a type has, of both signs, none of them special.
double some_value(std::int64_t i) {
  return (i % 3 == 0 ? -1.0 : 1.0) *
         std::ldexp(1.0 + static_cast<double>(i * 37 % 101) / 101.0, static_cast<int>(i % 9) - 5);
}

/// An addition over rows x batches x columns: x and out lie in memory as their layouts say.
class Addition {
 public:
  Addition(const Setting& setting, Index rows, Index batches, Layout x_layout, Layout out_layout)
      : setting_(setting),
        rows_(std::move(rows)),
        batches_(std::move(batches)),
        x_layout_(std::move(x_layout)),
        out_layout_(std::move(out_layout)),
        x_(setting.dtype, x_layout_.elements),
        out_(setting.dtype, out_layout_.elements) {
    for (std::int64_t i = 0; i < x_.elements(); ++i) x_.set(i, some_value(i));
    std::int64_t count = 1;
    for (const std::int64_t size : rows_) count *= size;
    positions_.resize(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < positions_.size(); ++i) positions_[i] = kFirst + static_cast<std::int64_t>(i);
  }

  Memory& x() { return x_; }
  const Memory& out() const { return out_; }
  Index sizes() const { return sizes_of(rows_, batches_, setting_.d_model); }

  static Index sizes_of(const Index& rows, const Index& batches, std::int64_t d_model) {
    Index sizes = rows;
    sizes.insert(sizes.end(), batches.begin(), batches.end());
    sizes.push_back(d_model);
    return sizes;
  }

  /// Arguments; positions count up row by row from kFirst and are read from memory.
  Args args(const Scales& scales, bool in_place = false) {
    Args args = setting_.args();
    args.positions = positions_.data();
    args.position_type = PositionType::kInt64;
    args.x = x_.at(x_layout_.origin);
    args.out = in_place ? x_.at(x_layout_.origin) : out_.at(out_layout_.origin);
    args.x_column_stride = x_layout_.strides.back();
    const Layout& out_layout = in_place ? x_layout_ : out_layout_;
    args.out_column_stride = out_layout.strides.back();
    args.input_scale = scales.input_scale;
    args.alpha = scales.alpha;
    Index position_strides(rows_.size(), 1);
    for (std::size_t d = rows_.size(); d-- > 1;) position_strides[d - 1] = position_strides[d] * rows_[d];
    set_dims(args.row_dims, args.num_row_dims, rows_, position_strides, x_layout_.strides, out_layout.strides);
    set_dims(args.batch_dims, args.num_batch_dims, batches_, {}, x_layout_.strides, out_layout.strides, rows_.size());
    return args;
  }

  /// What out (or x, in place) must be afterwards, gaps included: computed from the values of x as they are now.
  Memory expected(const Scales& scales, bool in_place = false) const {
    Setting table_setting = setting_;
    table_setting.dtype = compute_dtype(setting_.dtype);
    const Memory table = encode_table(table_setting, static_cast<std::int64_t>(positions_.size()), kFirst);
    std::int64_t num_batches = 1;
    for (const std::int64_t size : batches_) num_batches *= size;
    Memory result = in_place ? x_ : Memory(setting_.dtype, out_.elements());
    std::int64_t element = 0;
    for_each_index(sizes(), [&](const Index& index) {
      const std::int64_t column = element % setting_.d_model;
      const std::int64_t row = element / setting_.d_model / num_batches;
      const double encoding = table.value(row * setting_.d_model + column);
      const double sum = compose(setting_.dtype, x_.value(x_layout_.place(index)), encoding, scales);
      result.set((in_place ? x_layout_ : out_layout_).place(index), sum);
      ++element;
    });
    return result;
  }

 private:
  static constexpr std::int64_t kFirst = -3;

  Setting setting_;
  Index rows_;
  Index batches_;
  Layout x_layout_;
  Layout out_layout_;
  Memory x_;
  Memory out_;
  std::vector<std::int64_t> positions_;
};

/// An addition of contiguous x and out.
Addition contiguous(const Setting& setting, const Index& rows, const Index& batches) {
  const Layout layout = layouts(Addition::sizes_of(rows, batches, setting.d_model)).front();
  return {setting, rows, batches, layout, layout};
}

class AddKernel : public ::testing::TestWithParam<Engine> {};

INSTANTIATE_TEST_SUITE_P(Engines, AddKernel, ::testing::ValuesIn(kEngines),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_P(AddKernel, equals_the_composed_definition_for_every_dtype_order_odd_and_width) {
  for (const Setting& setting : all_settings()) {
    for (const Scales& scales : kScales) {
      Addition addition = contiguous(setting, {9}, {2});
      GetParam().add(addition.args(scales), setting);
      EXPECT_TRUE(same_bits(addition.out(), addition.expected(scales)))
          << setting.name() << ", input_scale " << scales.input_scale << ", alpha " << scales.alpha;
    }
  }
}

TEST_P(AddKernel, every_pair_of_layouts_gives_the_definition_and_nothing_else_is_written) {
  const std::vector<std::pair<Index, Index>> grids = {
      {{4}, {}}, {{3}, {2}}, {{2, 2}, {3, 2}}, {{2, 1, 2, 2, 1, 2}, {1, 2, 2, 1, 2, 2}}, {{}, {3}}, {{}, {}}};
  for (const DType dtype : kDTypes) {
    const Setting setting{dtype, 5, {10000.0, 0.0, 1.0, Order::kSplit, Odd::kZero}};
    const Scales scales{-3.3, 0.7};
    for (const auto& [rows, batches] : grids) {
      const std::vector<Layout> all = layouts(Addition::sizes_of(rows, batches, setting.d_model));
      for (const Layout& x_layout : all) {
        for (const Layout& out_layout : all) {
          Addition addition(setting, rows, batches, x_layout, out_layout);
          GetParam().add(addition.args(scales), setting);
          EXPECT_TRUE(same_bits(addition.out(), addition.expected(scales)))
              << setting.name() << ", " << rows.size() << " row and " << batches.size() << " batch dimensions, x "
              << x_layout.name << ", out " << out_layout.name;
        }
      }
    }
  }
}

TEST_P(AddKernel, out_may_be_x) {
  for (const DType dtype : kDTypes) {
    const Setting setting{dtype, 7, {10000.0, 0.0, 1.0, Order::kInterleaved, Odd::kZero}};
    for (const Layout& layout : layouts({3, 2, 7})) {
      Addition addition(setting, {3}, {2}, layout, layout);
      const Memory expected = addition.expected(kScales[3], /*in_place=*/true);
      GetParam().add(addition.args(kScales[3], /*in_place=*/true), setting);
      EXPECT_TRUE(same_bits(addition.x(), expected)) << setting.name() << ", layout " << layout.name;
    }
  }
}

TEST_P(AddKernel, a_range_of_positions_equals_the_same_positions_in_memory) {
  for (const DType dtype : kDTypes) {
    const Setting setting{dtype, 6, {}};
    Addition addition = contiguous(setting, {8}, {3});
    Args args = addition.args(kScales[1]);
    args.positions = nullptr;
    args.position_type = PositionType::kRange;
    args.offset = -3;
    GetParam().add(args, setting);
    EXPECT_TRUE(same_bits(addition.out(), addition.expected(kScales[1]))) << setting.name();
  }
}

TEST_P(AddKernel, long_ranges_give_the_sums_that_short_ones_give) {
  constexpr std::int64_t kRows = 70;
  for (const DType dtype : kDTypes) {
    for (const Order order : posenc::testing::kOrders) {
      for (const std::int64_t d_model : {9, 700, 1152}) {
        for (const std::int64_t batches : {1, 3}) {
          const Setting setting{dtype, d_model, {10000.0, 0.0, 1.0, order, Odd::kSin}};
          Addition addition = contiguous(setting, {kRows}, {batches});
          Args args = addition.args(kScales[1]);
          args.positions = nullptr;
          args.position_type = PositionType::kRange;
          args.offset = -3;
          GetParam().add(args, setting);
          EXPECT_TRUE(same_bits(addition.out(), addition.expected(kScales[1]))) << setting.name() << ", " << batches;
        }
      }
    }
  }
}

TEST_P(AddKernel, the_encoding_inside_a_16_bit_sum_is_not_rounded_to_16_bits) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const Setting setting{dtype, 64, {}};
    Addition addition = contiguous(setting, {50}, {});
    GetParam().add(addition.args(kScales[0]), setting);
    const Memory rounded_encoding = encode_table(setting, 50, -3);
    int differing = 0;
    for (std::int64_t i = 0; i < addition.out().elements(); ++i) {
      Memory twice(dtype, 1);
      twice.set(0, compose<float>(addition.x().value(i), rounded_encoding.value(i), kScales[0]));
      if (twice.bits(0) != addition.out().bits(i)) ++differing;
    }
    EXPECT_GT(differing, 0) << setting.name();
    EXPECT_TRUE(same_bits(addition.out(), addition.expected(kScales[0]))) << setting.name();
  }
}

TEST_P(AddKernel, special_values_of_x_stay_in_their_own_elements) {
  for (const DType dtype : kDTypes) {
    const Setting setting{dtype, 4, {}};
    Addition addition = contiguous(setting, {2}, {2});
    const double largest = dtype == DType::kFloat16 ? 65504.0 : dtype == DType::kFloat64 ? 1e308 : 3.3e38;
    const std::vector<double> special = {kNaN, kInfinity, -kInfinity, largest, -0.0, 0.0, 1e-7};
    for (std::size_t i = 0; i < special.size(); ++i) addition.x().set(2 * static_cast<std::int64_t>(i), special[i]);
    const Memory expected = addition.expected(kScales[1]);
    GetParam().add(addition.args(kScales[1]), setting);
    for (std::int64_t i = 0; i < expected.elements(); ++i) {
      const bool both_nan = std::isnan(expected.value(i)) && std::isnan(addition.out().value(i));
      EXPECT_TRUE(both_nan || expected.bits(i) == addition.out().bits(i))
          << setting.name() << ", element " << i << ": x " << addition.x().value(i) << " gives "
          << addition.out().value(i) << " instead of " << expected.value(i);
    }
  }
}

TEST_P(AddKernel, every_nan_of_a_16_bit_x_gives_one_nan) {
  struct Case {
    std::uint16_t x;
    std::uint16_t out;
  };
  const std::vector<Case> of_bfloat16 = {{0x7FC1, 0x7FC0}, {0xFFC1, 0x7FC0}, {0x7F81, 0x7FC0}, {0xFFFF, 0x7FC0}};
  const std::vector<Case> of_float16 = {{0x7E01, 0x7E00}, {0xFE01, 0xFE00}, {0x7C01, 0x7E00}, {0xFFFF, 0xFE00}};
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const std::vector<Case>& cases = dtype == DType::kFloat16 ? of_float16 : of_bfloat16;
    for (const std::int64_t batches : {1, 3}) {
      const Setting setting{dtype, 70, {}};
      Addition addition = contiguous(setting, {40}, {batches});
      const auto element = [&](std::int64_t i) { return cases[static_cast<std::size_t>(i) % cases.size()]; };
      for (std::int64_t i = 0; i < addition.x().elements(); ++i) {
        const std::uint16_t bits = element(i).x;
        std::memcpy(addition.x().at(i), &bits, sizeof(bits));
      }
      GetParam().add(addition.args(kScales[1]), setting);
      for (std::int64_t i = 0; i < addition.out().elements(); ++i) {
        ASSERT_EQ(addition.out().bits(i), element(i).out) << setting.name() << ", element " << i;
      }
    }
  }
}

TEST_P(AddKernel, a_nan_position_reaches_its_whole_batch_and_no_other_row) {
  const Setting setting{DType::kFloat32, 5, {10000.0, 0.0, 1.0, Order::kSplit, Odd::kZero}};
  const std::vector<double> positions = {4.0, kNaN, 6.0};
  Addition addition = contiguous(setting, {3}, {2});
  Args args = addition.args(kScales[0]);
  args.positions = positions.data();
  args.position_type = PositionType::kFloat64;
  GetParam().add(args, setting);
  for (std::int64_t i = 0; i < 30; ++i) {
    const bool in_row = i / 10 == 1 && i % 5 != 4;  // the column of zeros stays x
    EXPECT_EQ(std::isnan(addition.out().value(i)), in_row) << "element " << i;
  }
  for (const std::int64_t i : {14, 19}) EXPECT_EQ(addition.out().bits(i), addition.x().bits(i)) << "element " << i;
}

TEST_P(AddKernel, no_tokens_write_nothing) {
  const Setting setting{DType::kFloat64, 4, {}};
  const std::vector<std::pair<Index, Index>> grids = {{{0}, {2}}, {{2}, {0}}, {{2}, {3, 0}}, {{0}, {0}}};
  for (const auto& [rows, batches] : grids) {
    Memory x(setting.dtype, 40);
    Memory out(setting.dtype, 40);
    Args args = setting.args();
    args.x = x.at(0);
    args.out = out.at(0);
    args.x_column_stride = 1;
    args.out_column_stride = 1;
    set_dims(args.row_dims, args.num_row_dims, rows, {}, {4}, {4});
    const Index batch_strides(batches.size(), 4);
    set_dims(args.batch_dims, args.num_batch_dims, batches, {}, batch_strides, batch_strides);
    GetParam().add(args, setting);
    EXPECT_EQ(out, Memory(setting.dtype, 40)) << rows[0] << " rows";
  }
}

TEST(AddCpu, any_split_of_the_tokens_gives_the_same_bits) {
  constexpr std::int64_t kRows = 5;
  constexpr std::int64_t kBatches = 6;
  for (const DType dtype : kDTypes) {
    const Setting setting{dtype, 7, {10000.0, 1.0, 1.0, Order::kInterleavedCosFirst, Odd::kSin}};
    for (const auto& [row_cut, batch_cut] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {2, 0}, {0, 1}, {4, 5}}) {
      Addition addition = contiguous(setting, {kRows}, {2, 3});
      const Args args = addition.args(kScales[3]);
      const cpu::Frequencies set = frequencies(setting);
      for (const cpu::TokenRange& part : {cpu::TokenRange{row_cut, kRows, batch_cut, kBatches},
                                          {0, row_cut, batch_cut, kBatches},
                                          {row_cut, kRows, 0, batch_cut},
                                          {0, row_cut, 0, batch_cut}}) {
        cpu::add(args, set, part);
      }
      EXPECT_TRUE(same_bits(addition.out(), addition.expected(kScales[3])))
          << setting.name() << ", cut at row " << row_cut << " and batch entry " << batch_cut;
    }
  }
}

TEST(AddCpu, only_the_tokens_of_the_range_are_written) {
  const Setting setting{DType::kFloat32, 4, {}};
  Addition addition = contiguous(setting, {3}, {2});
  const Args args = addition.args(kScales[0]);
  cpu::add(args, frequencies(setting), {1, 3, 1, 2});
  for (std::int64_t i = 0; i < 24; ++i) {
    const std::int64_t row = i / 4 / 2;
    const std::int64_t batch = i / 4 % 2;
    EXPECT_EQ(addition.out().untouched(i), row < 1 || batch < 1) << "element " << i;
  }
}

TEST(AddThread, every_element_is_written_by_one_thread) {
  const Setting setting{DType::kFloat32, 13, {10000.0, 0.0, 1.0, Order::kSplit, Odd::kZero}};
  const math::FrequencyTables tables = setting.tables();
  Addition addition = contiguous(setting, {70}, {3});
  const Args args = addition.args(kScales[0]);
  const cuda::RangePlan plan = cuda::plan_range<float>(args);
  std::vector<int> writers(static_cast<std::size_t>(addition.out().elements()), 0);
  for (std::int64_t thread = 0; thread < cuda::num_range_threads<float>(args, plan); ++thread) {
    Addition own = contiguous(setting, {70}, {3});
    const cuda::LaunchArgs launch_args = cuda::make_launch_args<float>(own.args(kScales[0]));
    cuda::run_range_thread<float, cuda::AddRow<float>>(launch_args, tables, plan, thread);
    for (std::size_t i = 0; i < writers.size(); ++i) {
      if (!own.out().untouched(static_cast<std::int64_t>(i))) ++writers[i];
    }
  }
  EXPECT_TRUE(std::all_of(writers.begin(), writers.end(), [](int count) { return count == 1; }));
}

}  // namespace
}  // namespace posenc::kernels::testing
