#include <posenc/ops/encode.h>

#include <ATen/Parallel.h>
#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops_testing.h"

namespace posenc::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();

class Encode : public OnDevice {};
POSENC_INSTANTIATE_ON_DEVICES(Encode);

TEST_P(Encode, values_meet_the_bound_for_every_dtype_order_odd_and_width) {
  std::vector<double> positions;
  for (int p = -20; p <= 80; ++p) positions.push_back(p);
  for (const at::ScalarType dtype : kDTypes) {
    for (const Encoding& encoding : encodings()) {
      EXPECT_TRUE(meets_bound(posenc::encode(101, encoding.d_model, -20, encoding.convention, options(dtype)),
                              positions, encoding));
    }
  }
}

TEST_P(Encode, values_at_floating_positions_meet_the_bound) {
  const std::vector<double> positions = {0.5, -0.25, 1e-5, 3.14159, -77.7, 99.999};
  for (const at::ScalarType dtype : kDTypes) {
    for (const Encoding& encoding : encodings()) {
      EXPECT_TRUE(meets_bound(posenc::encode(tensor(positions), encoding.d_model, encoding.convention, dtype),
                              positions, encoding));
    }
  }
}

TEST_P(Encode, golden_values_are_met_at_any_position_by_both_overloads) {
  for (const at::ScalarType dtype : kDTypes) {
    Judge judge("ops_values.csv", format_of(dtype));
    for (const GoldenValue& golden : golden_values()) {
      const Encoding encoding{golden.d_model, golden.convention};
      const std::string name = golden.position + " of " + encoding.name();
      const at::Tensor position =
          golden.is_integer ? integers({golden.integer_position}) : tensor({golden.real_position});
      const at::Tensor row = posenc::encode(position, golden.d_model, golden.convention, dtype);
      judge.check(row[0][golden.column].to(at::kDouble).item<double>(), golden.value, name, golden.column);
      if (golden.is_integer && golden.integer_position < kInt64Max) {
        EXPECT_TRUE(same_bits(
            posenc::encode(1, golden.d_model, golden.integer_position, golden.convention, options(dtype)), row))
            << name;
      }
    }
    EXPECT_TRUE(judge.verdict());
  }
}

TEST_P(Encode, equal_positions_have_the_same_bits_whatever_their_dtype) {
  for (const at::ScalarType dtype : kDTypes) {
    for (const Encoding& encoding : encodings()) {
      const at::Tensor range = posenc::encode(100, encoding.d_model, 0, encoding.convention, options(dtype));
      for (const at::ScalarType type : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kUInt16, at::kUInt32,
                                        at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
        const at::Tensor positions = at::arange(100, at::kLong).to(type).to(GetParam());
        EXPECT_TRUE(same_bits(posenc::encode(positions, encoding.d_model, encoding.convention, dtype), range))
            << encoding.name() << ", positions " << type;
      }
    }
  }
}

TEST_P(Encode, result_is_a_new_contiguous_tensor_of_the_dtype_and_device_asked_for) {
  for (const at::ScalarType dtype : kDTypes) {
    const at::Tensor range = posenc::encode(3, 4, 0, {}, options(dtype));
    EXPECT_EQ(range.scalar_type(), dtype);
    EXPECT_EQ(range.device().type(), GetParam());
    EXPECT_EQ(range.sizes(), (std::vector<std::int64_t>{3, 4}));
    EXPECT_TRUE(range.is_contiguous());
    EXPECT_FALSE(range.requires_grad());

    const at::Tensor given = posenc::encode(some_tensor({2, 3}, at::kFloat).t(), 4, {}, dtype);
    EXPECT_EQ(given.scalar_type(), dtype);
    EXPECT_EQ(given.device().type(), GetParam());
    EXPECT_EQ(given.sizes(), (std::vector<std::int64_t>{3, 2, 4}));
    EXPECT_TRUE(given.is_contiguous());
  }
  const at::Tensor leaf = posenc::encode(3, 4, 0, {}, options(at::kFloat).requires_grad(true));
  EXPECT_TRUE(leaf.requires_grad());
  EXPECT_TRUE(leaf.is_leaf());
  EXPECT_TRUE(same_bits(leaf, posenc::encode(3, 4, 0, {}, options(at::kFloat))));
}

TEST(EncodeDefaults, dtype_is_the_default_dtype_of_torch_and_device_the_cpu) {
  EXPECT_EQ(posenc::encode(2, 4).scalar_type(), at::kFloat);
  EXPECT_EQ(posenc::encode(2, 4).device(), at::Device(at::kCPU));
  const caffe2::TypeMeta before = c10::get_default_dtype();
  for (const at::ScalarType dtype : kDTypes) {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(dtype));
    EXPECT_EQ(posenc::encode(2, 4).scalar_type(), dtype);
    EXPECT_EQ(posenc::encode(at::ones({2}, at::kDouble), 4).scalar_type(), dtype) << "never that of the positions";
    EXPECT_EQ(posenc::encode(at::ones({2}, at::kInt), 4).scalar_type(), dtype);
  }
  c10::set_default_dtype(before);
}

TEST(EncodeDefaults, positions_are_rounded_to_no_dtype_on_the_way) {
  // 2^24 + 1 is no float32, 257 is no bfloat16.
  const at::Tensor positions = at::tensor({std::int64_t{16777217}, std::int64_t{257}}, at::kLong);
  for (const at::ScalarType dtype : kDTypes) {
    EXPECT_TRUE(same_bits(posenc::encode(positions, 8, {}, dtype)[0],
                          posenc::encode(1, 8, 16777217, {}, at::TensorOptions().dtype(dtype))[0]));
    EXPECT_TRUE(same_bits(posenc::encode(positions, 8, {}, dtype)[1],
                          posenc::encode(1, 8, 257, {}, at::TensorOptions().dtype(dtype))[0]));
    EXPECT_FALSE(same_bits(posenc::encode(positions, 8, {}, dtype)[1],
                           posenc::encode(1, 8, 256, {}, at::TensorOptions().dtype(dtype))[0]));
  }
}

TEST_P(Encode, an_offset_slices_the_whole_table) {
  for (const at::ScalarType dtype : kDTypes) {
    const at::Tensor whole = posenc::encode(200, 18, -60, {}, options(dtype));
    for (const std::int64_t offset : {-60, -33, -32, -16, -1, 0, 1, 15, 16, 17, 31, 32, 100}) {
      EXPECT_TRUE(same_bits(posenc::encode(40, 18, offset, {}, options(dtype)), whole.narrow(0, offset + 60, 40)))
          << "offset " << offset;
    }
    for (std::int64_t step = 0; step < 200; ++step) {
      EXPECT_TRUE(same_bits(posenc::encode(1, 18, step - 60, {}, options(dtype)), whole.narrow(0, step, 1)))
          << "step " << step;
    }
  }
}

TEST_P(Encode, offsets_reach_both_ends_of_int64) {
  for (const at::ScalarType dtype : kDTypes) {
    for (const std::int64_t offset : {kInt64Min, kInt64Min + 1, kInt64Max - 3, std::int64_t{1} << 62}) {
      std::vector<std::int64_t> positions;
      for (int i = 0; i < 3; ++i) positions.push_back(offset + i);
      EXPECT_TRUE(same_bits(posenc::encode(3, 10, offset, {}, options(dtype)),
                            posenc::encode(integers(positions), 10, {}, dtype)))
          << "offset " << offset;
    }
    EXPECT_EQ(posenc::encode(0, 10, kInt64Max, {}, options(dtype)).size(0), 0);
  }
}

TEST_P(Encode, positions_may_have_any_strides) {
  for (const at::ScalarType type : {at::kLong, at::kDouble, at::kShort}) {
    const at::Tensor grid = at::arange(60, at::kLong).view({3, 4, 5}).to(type).to(GetParam());
    const Convention convention{10000.0, 0.0, 1.0, Order::kSplit, Odd::kZero};
    const auto check = [&](const at::Tensor& positions, const char* name) {
      EXPECT_TRUE(same_bits(posenc::encode(positions, 5, convention, at::kFloat),
                            posenc::encode(positions.contiguous(), 5, convention, at::kFloat)))
          << name << ", positions " << type;
    };
    check(grid.permute({2, 0, 1}), "permuted");
    check(grid.slice(2, 1, 5, 2), "every second");
    check(grid.select(1, 2), "a slice");
    check(grid.select(0, 1).select(0, 1).unsqueeze(1).expand({5, 7}), "expanded");
    check(grid.select(0, 1).select(0, 1).unsqueeze(0).expand({7, 5}), "expanded outermost");
    check(grid.select(0, 0).select(0, 0).select(0, 3), "one number");
    check(grid.unfold(2, 3, 1), "overlapping windows");
  }
}

TEST_P(Encode, many_dimensions_that_cannot_be_merged_are_walked_in_the_right_order) {
  constexpr std::int64_t kDims = 14;
  std::vector<std::int64_t> reversed;
  for (std::int64_t d = kDims - 1; d >= 0; --d) reversed.push_back(d);
  const at::Tensor positions = at::arange(std::int64_t{1} << kDims, options(at::kInt))
                                   .view(std::vector<std::int64_t>(kDims, 2))
                                   .permute(reversed);
  const at::Tensor expected = posenc::encode(positions.contiguous().flatten(), 3, {}, at::kFloat);
  EXPECT_TRUE(same_bits(posenc::encode(positions, 3, {}, at::kFloat).flatten(0, -2), expected));

  std::vector<std::int64_t> sizes(kDims, 2);
  sizes.push_back(3);
  std::vector<std::int64_t> shuffled;
  for (std::int64_t d = 0; d <= kDims; ++d) shuffled.push_back((d * 4 + 1) % (kDims + 1));
  at::Tensor out = at::empty(sizes, options(at::kFloat));
  std::vector<std::int64_t> out_sizes(sizes);
  for (std::size_t d = 0; d < shuffled.size(); ++d) out_sizes[static_cast<std::size_t>(shuffled[d])] = sizes[d];
  out = at::empty(out_sizes, options(at::kFloat)).permute(shuffled);
  posenc::encode_out(out, positions, 3);
  EXPECT_TRUE(same_bits(out.contiguous().flatten(0, -2), expected));
}

TEST_P(Encode, out_of_any_strides_holds_the_bits_of_the_result_and_nothing_else_is_written) {
  for (const at::ScalarType dtype : kDTypes) {
    for (const Encoding& encoding : encodings()) {
      const at::Tensor expected = posenc::encode(9, encoding.d_model, 5, encoding.convention, options(dtype));
      Embedded range({9, encoding.d_model}, options(dtype));
      at::Tensor& returned = posenc::encode_out(range.inner, 9, encoding.d_model, 5, encoding.convention);
      EXPECT_EQ(&returned, &range.inner);
      EXPECT_TRUE(same_bits(range.inner, expected)) << encoding.name();
      EXPECT_TRUE(range.untouched_around()) << encoding.name();

      const at::Tensor positions = at::arange(5, 14, options(at::kLong)).view({3, 3});
      Embedded given({3, 3, encoding.d_model}, options(dtype));
      at::Tensor& returned_given = posenc::encode_out(given.inner, positions, encoding.d_model, encoding.convention);
      EXPECT_EQ(&returned_given, &given.inner);
      EXPECT_TRUE(same_bits(given.inner, expected.view({3, 3, encoding.d_model}))) << encoding.name();
      EXPECT_TRUE(given.untouched_around()) << encoding.name();
    }
  }
}

TEST_P(Encode, out_forms_allocate_no_tensor) {
  at::Tensor out = at::empty({6, 8}, options(at::kFloat));
  const at::Tensor positions = at::arange(6, options(at::kLong));
  posenc::encode_out(out, 6, 8);
  EXPECT_EQ(count_allocations([&] { posenc::encode_out(out, 6, 8); }), 0);
  EXPECT_EQ(count_allocations([&] { posenc::encode_out(out, positions, 8); }), 0);
  EXPECT_EQ(count_allocations([&] { posenc::encode(6, 8, 0, {}, options(at::kFloat)); }), 1);
  EXPECT_EQ(count_allocations([&] { posenc::encode(positions, 8); }), 1);
}

TEST_P(Encode, empty_and_scalar_positions_give_results_of_their_shape) {
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(posenc::encode(0, 4, 7, {}, options(at::kHalf)).sizes(), (Shape{0, 4}));
  EXPECT_EQ(posenc::encode(1, 1, 0, {}, options(at::kHalf)).sizes(), (Shape{1, 1}));
  EXPECT_EQ(posenc::encode(at::empty({0}, options(at::kLong)), 4).sizes(), (Shape{0, 4}));
  EXPECT_EQ(posenc::encode(at::empty({2, 0, 3}, options(at::kDouble)), 5).sizes(), (Shape{2, 0, 3, 5}));
  at::Tensor empty = at::empty({0, 4}, options(at::kFloat));
  posenc::encode_out(empty, 0, 4);
  posenc::encode_out(empty, at::empty({0}, options(at::kLong)), 4);

  const at::Tensor scalar = posenc::encode(at::full({}, 9, options(at::kLong)), 4, {}, at::kFloat);
  EXPECT_TRUE(same_bits(scalar, posenc::encode(1, 4, 9, {}, options(at::kFloat))[0]));
}

TEST_P(Encode, not_finite_positions_give_nan_rows_and_disturb_no_other) {
  for (const at::ScalarType dtype : kDTypes) {
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      const Convention convention{10000.0, 0.0, 1.0, Order::kInterleaved, Odd::kZero};
      const at::Tensor rows =
          posenc::encode(tensor({1.5, kNaN, kInfinity, -kInfinity, 2.5}, type), 7, convention, dtype);
      const at::Tensor clean = posenc::encode(tensor({1.5, 2.5}, type), 7, convention, dtype);
      EXPECT_TRUE(same_bits(rows[0], clean[0])) << "positions " << type;
      EXPECT_TRUE(same_bits(rows[4], clean[1])) << "positions " << type;
      EXPECT_TRUE(rows.slice(0, 1, 4).slice(1, 0, 6).isnan().all().item<bool>()) << dtype << " of positions " << type;
      EXPECT_TRUE(same_bits(rows.select(1, 6), at::zeros({5}, options(dtype)))) << "the column of zeros";
    }
  }
}

TEST_P(Encode, negative_positions_and_scales_mirror_exactly) {
  for (const at::ScalarType dtype : kDTypes) {
    for (const Encoding& encoding : encodings()) {
      const Columns columns = columns_of(encoding.d_model, encoding.convention.order, encoding.convention.odd);
      std::vector<double> signs;
      for (const Column& column : columns.list) signs.push_back(column.kind == Column::Kind::kSine ? -1.0 : 1.0);
      const at::Tensor positions = tensor({1.0, 2.5, 1000003.0, 1e15 + 0.5});
      const at::Tensor forward = posenc::encode(positions, encoding.d_model, encoding.convention, dtype);
      const at::Tensor mirrored = posenc::encode(-positions, encoding.d_model, encoding.convention, dtype);
      EXPECT_TRUE(same_bits(mirrored, forward * tensor(signs, dtype))) << encoding.name();
      Convention negated = encoding.convention;
      negated.position_scale = -negated.position_scale;
      EXPECT_TRUE(same_bits(posenc::encode(positions, encoding.d_model, negated, dtype), mirrored)) << encoding.name();
    }
  }
}

TEST_P(Encode, an_order_only_moves_columns) {
  for (const at::ScalarType dtype : kDTypes) {
    for (const std::int64_t d_model : {8, 9}) {
      const auto column = [&](Order order, Column::Kind kind, std::int64_t pair) {
        const Columns columns = columns_of(d_model, order, Odd::kSin);
        const at::Tensor table =
            posenc::encode(50, d_model, 100, {10000.0, 0.0, 1.0, order, Odd::kSin}, options(dtype));
        for (std::size_t i = 0; i < columns.list.size(); ++i) {
          const Column& at = columns.list[i];
          if (at.kind == kind && at.pair == pair) return table.select(1, static_cast<std::int64_t>(i));
        }
        return at::Tensor();
      };
      for (std::int64_t pair = 0; pair < d_model / 2; ++pair) {
        for (const Column::Kind kind : {Column::Kind::kSine, Column::Kind::kCosine}) {
          const at::Tensor first = column(kOrders[0], kind, pair);
          for (const Order order : kOrders) EXPECT_TRUE(same_bits(column(order, kind, pair), first)) << "pair " << pair;
        }
      }
    }
  }
}

TEST_P(Encode, the_sine_at_zero_is_plus_zero_whatever_the_signs) {
  for (const at::ScalarType dtype : kDTypes) {
    for (const double scale : {1.0, -1.0}) {
      const Convention convention{10000.0, 0.0, scale, Order::kSplit, Odd::kSin};
      const at::Tensor expected = tensor({0.0, 0.0, 0.0, 1.0, 1.0, 1.0}, dtype);
      EXPECT_TRUE(same_bits(posenc::encode(1, 6, 0, convention, options(dtype))[0], expected));
      EXPECT_TRUE(same_bits(posenc::encode(tensor({0.0, -0.0}), 6, convention, dtype), expected.expand({2, 6})));
    }
  }
}

TEST(EncodeThreads, the_number_of_threads_changes_no_bit) {
  const int before = at::get_num_threads();
  for (const at::ScalarType dtype : kDTypes) {
    at::set_num_threads(1);
    const at::Tensor one = posenc::encode(5000, 34, -1000, {}, at::TensorOptions().dtype(dtype));
    for (const int threads : {2, 3, 5}) {
      at::set_num_threads(threads);
      EXPECT_TRUE(same_bits(posenc::encode(5000, 34, -1000, {}, at::TensorOptions().dtype(dtype)), one)) << threads;
    }
  }
  at::set_num_threads(before);
}

TEST(EncodeMeta, gives_shape_dtype_and_device_without_values) {
  const auto meta = at::TensorOptions().device(at::kMeta);
  const at::Tensor range = posenc::encode(std::int64_t{1} << 40, 512, 3, {}, meta.dtype(at::kHalf));
  EXPECT_TRUE(range.is_meta());
  EXPECT_EQ(range.scalar_type(), at::kHalf);
  EXPECT_EQ(range.sizes(), (std::vector<std::int64_t>{std::int64_t{1} << 40, 512}));
  const at::Tensor given = posenc::encode(at::empty({2, 3}, meta.dtype(at::kLong)), 5, {}, at::kDouble);
  EXPECT_TRUE(given.is_meta());
  EXPECT_EQ(given.scalar_type(), at::kDouble);
  EXPECT_EQ(given.sizes(), (std::vector<std::int64_t>{2, 3, 5}));
}

}  // namespace
}  // namespace posenc::testing
