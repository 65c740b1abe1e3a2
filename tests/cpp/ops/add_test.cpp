#include <posenc/ops/add.h>

#include <ATen/Parallel.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops_testing.h"

namespace posenc::testing {
namespace {

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();

struct Scales {
  double input_scale;
  double alpha;
};

constexpr Scales kScales[] = {{1.0, 1.0}, {22.627416997969522, 1.0}, {1.0, 0.1}, {-3.3, 0.7}, {0.0, 1.0}, {1.0, 0.0}};

AddOptions add_options(const Scales& scales, const Convention& convention = {}, std::int64_t seq_dim = -2) {
  return {scales.input_scale, scales.alpha, seq_dim, convention};
}

class Add : public OnDevice {
 protected:
  /// Runs all six overloads that mean `positions` offset, offset + 1, .. along dimension -2 and wants the same bits of
  /// each: those of the definition.
  static void expect_every_form(const at::Tensor& x, std::int64_t offset, const AddOptions& add_options,
                                const std::string& name) {
    const std::int64_t seq_len = x.size(-2);
    const std::int64_t d_model = x.size(-1);
    const at::Tensor positions = at::arange(seq_len, options(at::kLong)) + offset;
    const at::Tensor encoding =
        posenc::encode(positions, d_model, add_options.convention, compute_dtype(x.scalar_type()));
    const at::Tensor expected = definition(x, encoding, add_options);

    EXPECT_TRUE(same_bits(posenc::add(x, offset, add_options), expected)) << name << ", add";
    EXPECT_TRUE(same_bits(posenc::add(x, positions, add_options), expected)) << name << ", add of positions";

    Embedded range_out(x.sizes(), options(x.scalar_type()));
    EXPECT_EQ(&posenc::add_out(range_out.inner, x, offset, add_options), &range_out.inner);
    EXPECT_TRUE(same_bits(range_out.inner, expected)) << name << ", add_out";
    EXPECT_TRUE(range_out.untouched_around()) << name << ", add_out";

    Embedded positions_out(x.sizes(), options(x.scalar_type()));
    EXPECT_EQ(&posenc::add_out(positions_out.inner, x, positions, add_options), &positions_out.inner);
    EXPECT_TRUE(same_bits(positions_out.inner, expected)) << name << ", add_out of positions";
    EXPECT_TRUE(positions_out.untouched_around()) << name << ", add_out of positions";

    Embedded in_place(x.sizes(), options(x.scalar_type()));
    in_place.inner.copy_(x);
    EXPECT_EQ(&posenc::add_(in_place.inner, offset, add_options), &in_place.inner);
    EXPECT_TRUE(same_bits(in_place.inner, expected)) << name << ", add_";
    EXPECT_TRUE(in_place.untouched_around()) << name << ", add_";

    in_place.inner.copy_(x);
    EXPECT_EQ(&posenc::add_(in_place.inner, positions, add_options), &in_place.inner);
    EXPECT_TRUE(same_bits(in_place.inner, expected)) << name << ", add_ of positions";
    EXPECT_TRUE(in_place.untouched_around()) << name << ", add_ of positions";
  }
};
POSENC_INSTANTIATE_ON_DEVICES(Add);

TEST_P(Add, every_form_is_bit_for_bit_the_definition) {
  for (const at::ScalarType dtype : kDTypes) {
    for (const Encoding& encoding : encodings()) {
      const at::Tensor x = some_tensor({3, 10, encoding.d_model}, dtype);
      expect_every_form(x, -4, add_options({-3.3, 0.7}, encoding.convention),
                        encoding.name() + ", " + format_of(dtype).name);
    }
  }
}

TEST_P(Add, every_pair_of_scales_is_rounded_as_the_definition_rounds) {
  for (const at::ScalarType dtype : kDTypes) {
    for (const Scales& scales : kScales) {
      expect_every_form(some_tensor({2, 50, 24}, dtype), 7, add_options(scales),
                        std::to_string(scales.input_scale) + ", " + std::to_string(scales.alpha));
    }
  }
}

TEST_P(Add, the_sum_of_zero_is_the_encoding_within_its_bound) {
  const std::vector<double> positions = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    for (const Encoding& encoding : encodings()) {
      const at::Tensor sum = posenc::add(at::zeros({10, encoding.d_model}, options(dtype)), 0,
                                         add_options({1.0, 1.0}, encoding.convention));
      EXPECT_TRUE(meets_bound(sum, positions, encoding));
    }
  }
}

TEST_P(Add, the_encoding_inside_a_16_bit_sum_is_the_float32_one) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = some_tensor({100, 64}, dtype);
    const at::Tensor from_float32 = definition(x, posenc::encode(100, 64, 0, {}, options(at::kFloat)), {});
    const at::Tensor from_16_bit = definition(x, posenc::encode(100, 64, 0, {}, options(dtype)), {});
    EXPECT_TRUE(same_bits(posenc::add(x), from_float32));
    EXPECT_FALSE(same_bits(posenc::add(x), from_16_bit)) << "the case tells the two apart";
  }
}

TEST_P(Add, result_keeps_dtype_shape_device_and_dense_strides_of_x) {
  for (const at::ScalarType dtype : kDTypes) {
    const at::Tensor base = some_tensor({4, 6, 10}, dtype);
    for (const at::Tensor& x : {base, base.permute({1, 0, 2}), base.permute({2, 1, 0}), base.slice(1, 0, 6, 2),
                                base.slice(2, 1, 9, 3), base.select(0, 1).unsqueeze(1).expand({6, 5, 10})}) {
      for (const at::Tensor& sum : {posenc::add(x), posenc::add(x, at::arange(x.size(1), options(at::kLong)))}) {
        EXPECT_EQ(sum.scalar_type(), dtype);
        EXPECT_EQ(sum.device(), x.device());
        EXPECT_EQ(sum.sizes(), x.sizes());
        EXPECT_EQ(sum.strides(), at::empty_like(x).strides());
        EXPECT_FALSE(sum.is_alias_of(x));
      }
    }
  }
}

TEST_P(Add, x_may_have_any_strides) {
  for (const at::ScalarType dtype : kDTypes) {
    const at::Tensor base = some_tensor({4, 6, 10}, dtype);
    const auto check = [&](const at::Tensor& x, const char* name) {
      expect_every_form(x, 3, add_options({-3.3, 0.7}), std::string(name) + ", " + format_of(dtype).name);
    };
    check(base, "contiguous");
    check(base.permute({1, 0, 2}), "sequence first in memory");
    check(base.permute({2, 1, 0}), "columns outermost");
    check(base.slice(1, 0, 6, 2), "every second token");
    check(base.slice(2, 1, 9, 3), "every third column");
    check(base.select(0, 1), "two dimensions");
    check(base.select(0, 1).unsqueeze(1).expand({6, 5, 10}), "expanded");
    check(base.select(2, 1).unsqueeze(-1).expand({4, 6, 9}), "columns expanded");
    check(base.unsqueeze(1).unsqueeze(3), "dimensions of one");
    check(base.view({2, 2, 3, 2, 5, 2}), "six dimensions");
  }
}

TEST_P(Add, positions_broadcast_to_the_tokens) {
  for (const at::ScalarType dtype : kDTypes) {
    const at::Tensor x = some_tensor({4, 3, 5, 6}, dtype);
    const auto check = [&](const at::Tensor& positions, const char* name) {
      const AddOptions chosen = add_options({2.5, -0.3}, {10000.0, 1.0, 1.0, Order::kSplit});
      const at::Tensor spelled_out = positions.expand({4, 3, 5}).contiguous();
      const at::Tensor encoding = posenc::encode(spelled_out, 6, chosen.convention, compute_dtype(dtype));
      const at::Tensor expected = definition(x, encoding, chosen);
      EXPECT_TRUE(same_bits(posenc::add(x, positions, chosen), expected)) << name << ", " << dtype;
      at::Tensor out = at::empty_like(x);
      EXPECT_TRUE(same_bits(posenc::add_out(out, x, positions, chosen), expected)) << name << ", " << dtype;
      at::Tensor in_place = x.clone();
      EXPECT_TRUE(same_bits(posenc::add_(in_place, positions, chosen), expected)) << name << ", " << dtype;
    };
    const at::Tensor grid = at::arange(-20, 40, options(at::kLong)).view({4, 3, 5});
    check(grid, "all");
    check(grid.to(at::kDouble) * 0.37, "floating");
    check(grid.to(at::kBFloat16) * 0.5, "bfloat16");
    check(grid.select(0, 1), "no first dimension");
    check(grid.select(0, 1).select(0, 1), "(seq_len,)");
    check(grid.narrow(2, 1, 1), "one for a sequence");
    check(grid.narrow(1, 1, 1), "one for the middle dimension");
    check(grid.narrow(0, 2, 1), "one for the batch");
    check(grid.select(0, 0).select(0, 0).select(0, 3), "one number");
    check(grid.select(0, 0).select(0, 0).narrow(0, 3, 1), "one element");
    check(grid.permute({2, 1, 0}).contiguous().permute({2, 1, 0}), "permuted");
    check(grid.narrow(1, 0, 1).expand({4, 3, 5}), "expanded");
  }
}

TEST_P(Add, seq_dim_names_any_dimension_but_the_last) {
  for (const at::ScalarType dtype : kDTypes) {
    const at::Tensor x = some_tensor({4, 3, 5, 6}, dtype);
    for (std::int64_t dim = 0; dim < 3; ++dim) {
      std::vector<std::int64_t> shape = {1, 1, 1, 6};
      shape[static_cast<std::size_t>(dim)] = x.size(dim);
      const at::Tensor encoding = posenc::encode(x.size(dim), 6, 9, {}, options(compute_dtype(dtype))).view(shape);
      for (const std::int64_t seq_dim : {dim, dim - 4}) {
        const AddOptions chosen = add_options({2.5, -0.3}, {}, seq_dim);
        const at::Tensor expected = definition(x, encoding, chosen);
        EXPECT_TRUE(same_bits(posenc::add(x, 9, chosen), expected)) << "seq_dim " << seq_dim;
        at::Tensor out = at::empty_like(x);
        EXPECT_TRUE(same_bits(posenc::add_out(out, x, 9, chosen), expected)) << "seq_dim " << seq_dim;
        at::Tensor in_place = x.clone();
        EXPECT_TRUE(same_bits(posenc::add_(in_place, 9, chosen), expected)) << "seq_dim " << seq_dim;
      }
    }
  }
}

TEST_P(Add, many_dimensions_that_cannot_be_merged_are_walked_in_the_right_order) {
  // 16 dimensions of tokens, by turns with and without positions of their own, laid out backwards in memory.
  constexpr std::int64_t kDims = 16;
  std::vector<std::int64_t> sizes(kDims, 2);
  std::vector<std::int64_t> position_sizes(kDims, 2);
  for (std::size_t d = 1; d < kDims; d += 2) position_sizes[d] = 1;
  sizes.push_back(3);
  std::vector<std::int64_t> reversed;
  for (std::int64_t d = kDims; d >= 0; --d) reversed.push_back(d);
  const std::vector<std::int64_t> reversed_sizes(sizes.rbegin(), sizes.rend());
  const at::Tensor x = some_tensor(reversed_sizes, at::kFloat).permute(reversed);
  const at::Tensor positions = at::arange(256, options(at::kLong)).view(position_sizes);
  const AddOptions chosen = add_options({2.5, -0.3});
  const at::Tensor encoding =
      posenc::encode(positions.expand(std::vector<std::int64_t>(kDims, 2)).contiguous(), 3, {}, at::kFloat);
  const at::Tensor expected = definition(x, encoding, chosen);

  EXPECT_TRUE(same_bits(posenc::add(x, positions, chosen), expected));
  at::Tensor out = at::empty(sizes, options(at::kFloat));
  EXPECT_TRUE(same_bits(posenc::add_out(out, x, positions, chosen), expected));
  at::Tensor in_place = x.clone();
  EXPECT_TRUE(same_bits(posenc::add_(in_place, positions, chosen), expected));

  at::Tensor by_range = at::empty(sizes, options(at::kFloat));
  const AddOptions along_five = add_options({2.5, -0.3}, {}, 5);
  std::vector<std::int64_t> shape(kDims + 1, 1);
  shape[5] = 2;
  shape[kDims] = 3;
  const at::Tensor range_encoding = posenc::encode(2, 3, 77, {}, options(at::kFloat)).view(shape);
  EXPECT_TRUE(same_bits(posenc::add_out(by_range, x, 77, along_five), definition(x, range_encoding, along_five)));
}

TEST_P(Add, out_may_be_x_itself) {
  for (const at::ScalarType dtype : kDTypes) {
    const at::Tensor x = some_tensor({3, 7, 9}, dtype);
    const at::Tensor positions = at::arange(7, options(at::kLong));
    const at::Tensor expected = posenc::add(x);
    at::Tensor range = x.clone();
    posenc::add_out(range, range);
    EXPECT_TRUE(same_bits(range, expected));
    at::Tensor given = x.clone();
    posenc::add_out(given, given, positions);
    EXPECT_TRUE(same_bits(given, expected));
  }
}

TEST_P(Add, forms_that_write_allocate_no_tensor_and_add_allocates_its_result) {
  at::Tensor x = some_tensor({2, 6, 8}, at::kFloat);
  at::Tensor out = at::empty_like(x);
  const at::Tensor positions = at::arange(6, options(at::kLong));
  posenc::add_out(out, x);
  EXPECT_EQ(count_allocations([&] { posenc::add_out(out, x); }), 0);
  EXPECT_EQ(count_allocations([&] { posenc::add_out(out, x, positions); }), 0);
  EXPECT_EQ(count_allocations([&] { posenc::add_(x); }), 0);
  EXPECT_EQ(count_allocations([&] { posenc::add_(x, positions); }), 0);
  EXPECT_EQ(count_allocations([&] { posenc::add(x); }), 1);
  EXPECT_EQ(count_allocations([&] { posenc::add(x, positions); }), 1);
}

TEST_P(Add, empty_tensors_give_empty_results) {
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{0, 4}, {0, 5, 4}, {3, 0, 4}, {0, 0, 1}}) {
    const at::Tensor x = at::empty(sizes, options(at::kHalf));
    EXPECT_EQ(posenc::add(x).sizes(), x.sizes());
    EXPECT_EQ(posenc::add(x, at::arange(x.size(-2), options(at::kLong))).sizes(), x.sizes());
    at::Tensor out = at::empty_like(x);
    posenc::add_out(out, x);
    posenc::add_(out);
    posenc::add_(out, at::zeros({1}, options(at::kDouble)));
  }
  const at::Tensor single = some_tensor({1, 1}, at::kDouble);
  EXPECT_TRUE(
      same_bits(posenc::add(single), definition(single, posenc::encode(1, 1, 0, {}, options(at::kDouble)), {})));
}

TEST_P(Add, offsets_reach_both_ends_of_int64) {
  const at::Tensor x = some_tensor({2, 3, 10}, at::kDouble);
  for (const std::int64_t offset : {kInt64Min, kInt64Max - 3, std::int64_t{1} << 62}) {
    std::vector<std::int64_t> positions;
    for (int i = 0; i < 3; ++i) positions.push_back(offset + i);
    const at::Tensor encoding = posenc::encode(integers(positions), 10, {}, at::kDouble);
    EXPECT_TRUE(same_bits(posenc::add(x, offset), definition(x, encoding, {}))) << "offset " << offset;
  }
}

TEST_P(Add, slices_and_single_steps_equal_the_whole) {
  for (const at::ScalarType dtype : kDTypes) {
    const at::Tensor x = some_tensor({2, 70, 12}, dtype);
    const at::Tensor whole = posenc::add(x, 1000);
    for (std::int64_t step = 0; step < 70; ++step) {
      EXPECT_TRUE(same_bits(posenc::add(x.narrow(1, step, 1), 1000 + step), whole.narrow(1, step, 1))) << step;
    }
    EXPECT_TRUE(same_bits(posenc::add(x.narrow(1, 13, 40), 1013), whole.narrow(1, 13, 40)));
    EXPECT_TRUE(same_bits(posenc::add(x.select(0, 1), 1000), whole.select(0, 1))) << "batch size";
  }
}

TEST_P(Add, special_values_stay_in_their_own_elements) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const at::ScalarType dtype : kDTypes) {
    const at::Tensor x = some_tensor({2, 5, 7}, dtype);
    at::Tensor marked = x.clone();
    marked[1][2][3] = nan;
    marked[0][4][6] = std::numeric_limits<double>::infinity();
    const at::Tensor sum = posenc::add(marked);
    EXPECT_TRUE(sum[1][2][3].isnan().item<bool>());
    EXPECT_TRUE(sum[0][4][6].isinf().item<bool>());
    const at::Tensor keep = marked.isfinite();
    EXPECT_TRUE(same_bits(sum.masked_select(keep), posenc::add(x).masked_select(keep))) << dtype;

    const at::Tensor rows = posenc::add(x, tensor({0.0, 1.0, nan, 3.0, 4.0}));
    EXPECT_TRUE(rows.select(1, 2).isnan().all().item<bool>());
    for (const std::int64_t row : {0, 1, 3, 4})
      EXPECT_TRUE(same_bits(rows.select(1, row), posenc::add(x).select(1, row)));
  }
}

TEST(AddThreads, the_number_of_threads_changes_no_bit) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor x = at::randn({7, 600, 33}, at::kFloat);
  const at::Tensor positions = at::randint(-1000, 1000, {7, 600}, at::kLong);
  const at::Tensor by_range = posenc::add(x, 5);
  const at::Tensor by_positions = posenc::add(x, positions);
  for (const int threads : {2, 3, 5}) {
    at::set_num_threads(threads);
    EXPECT_TRUE(same_bits(posenc::add(x, 5), by_range)) << threads;
    EXPECT_TRUE(same_bits(posenc::add(x, positions), by_positions)) << threads;
  }
  at::set_num_threads(before);
}

TEST(AddMeta, gives_shape_dtype_and_strides_without_values) {
  const at::Tensor x = at::empty({4, 6, 10}, at::TensorOptions().device(at::kMeta).dtype(at::kHalf)).permute({1, 0, 2});
  for (const at::Tensor& sum : {posenc::add(x, 3), posenc::add(x, at::empty({4}, x.options().dtype(at::kLong)))}) {
    EXPECT_TRUE(sum.is_meta());
    EXPECT_EQ(sum.scalar_type(), at::kHalf);
    EXPECT_EQ(sum.sizes(), x.sizes());
    EXPECT_EQ(sum.strides(), x.strides());
  }
  at::Tensor out = at::empty_like(x);
  posenc::add_out(out, x);
  posenc::add_(out, 2);
}

}  // namespace
}  // namespace posenc::testing
