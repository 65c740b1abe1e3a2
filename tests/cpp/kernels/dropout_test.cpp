#include <posenc/kernels/dropout.h>

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <posenc/kernels/cpu/dropout.h>
#include <posenc/kernels/cuda/dropout_thread.h>

#include "kernel_case.h"

namespace posenc::kernels::testing {
namespace {

// ---- The mask by its definition, Note [The mask of an element], with a Philox of its own. ----

std::array<std::uint32_t, 4> reference_philox(std::array<std::uint32_t, 4> c, std::uint64_t seed) {
  const auto high = [](std::uint64_t m, std::uint32_t x) { return static_cast<std::uint32_t>(m * x / 4294967296u); };
  const auto low = [](std::uint64_t m, std::uint32_t x) { return static_cast<std::uint32_t>(m * x % 4294967296u); };
  for (std::uint64_t round = 0; round < 10; ++round) {
    const auto key0 = static_cast<std::uint32_t>(seed % 4294967296u + round * 0x9E3779B9u);
    const auto key1 = static_cast<std::uint32_t>(seed / 4294967296u + round * 0xBB67AE85u);
    c = {high(0xCD9E8D57u, c[2]) ^ c[1] ^ key0, low(0xCD9E8D57u, c[2]), high(0xD2511F53u, c[0]) ^ c[3] ^ key1,
         low(0xD2511F53u, c[0])};
  }
  return c;
}

/// Number i % 8 of the 16-bit numbers of a block, as a signed number moved to 0 .. 65535.
std::uint32_t reference_bits(const RandomState& state, std::uint64_t block, std::uint64_t i) {
  const auto words =
      reference_philox({static_cast<std::uint32_t>(state.offset), static_cast<std::uint32_t>(state.offset >> 32),
                        static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32)},
                       state.seed);
  return words[i % 8 / 2] >> (i % 2 * 16) & 0xFFFFu;
}

enum class Fate { kKept, kDropped, kTieKept, kTieDropped };

Fate fate(const RandomState& state, std::uint64_t i, double p) {
  const double dropped = std::min(std::nearbyint(p * 4294967296.0), 4294967295.0);  // of 2^32
  const double first = reference_bits(state, i / 8, i) ^ 0x8000u;
  const double limit = std::floor(dropped / 65536.0);
  const double further_limit = dropped - 65536.0 * limit;
  if (first != limit || further_limit == 0.0) return first < limit ? Fate::kDropped : Fate::kKept;
  const double further = reference_bits(state, i / 8 + (std::uint64_t{1} << 63), i);
  return further < further_limit ? Fate::kTieDropped : Fate::kTieKept;
}

bool is_kept(const RandomState& state, std::uint64_t i, double p) {
  const Fate f = fate(state, i, p);
  return f == Fate::kKept || f == Fate::kTieKept;
}

// ---- Running. ----

/// One way to run the kernels of dropout.
struct DropoutEngine {
  const char* name;
  void (*add)(const Args&, const Setting&);
  void (*alone)(const Args&);
};

template <cpu::SimdLevel kLevel, bool kStream>
struct DropoutCpu {
  static void add(const Args& args, const Setting& setting) { Cpu<kLevel, kStream>::add(args, setting); }
  static void alone(const Args& args) { cpu::dropout(args, 0, num_batches(args), Cpu<kLevel, kStream>::level()); }
};

void run_dropout_threads(const Args& args) {
  const cuda::LaunchArgs launch_args = cuda::make_dropout_launch_args(args);
  dispatch_dtype(args.dtype, [&]<typename scalar_t>() {
    launch_on_host(cuda::num_dropout_threads(args),
                   [&](std::int64_t index) { cuda::run_dropout_thread<scalar_t>(launch_args, index); });
  });
}

template <typename Kernels>
constexpr DropoutEngine make_dropout_engine(const char* name) {
  return {name, Kernels::add, Kernels::alone};
}

constexpr DropoutEngine kDropoutEngines[] = {
    make_dropout_engine<DropoutCpu<cpu::SimdLevel::kBaseline, false>>("cpu_baseline"),
    make_dropout_engine<DropoutCpu<cpu::SimdLevel::kAvx2, false>>("cpu_avx2"),
    make_dropout_engine<DropoutCpu<cpu::SimdLevel::kAvx512, false>>("cpu_avx512"),
    make_dropout_engine<DropoutCpu<cpu::SimdLevel::kAvx512, true>>("cpu_stream"),
    {"cuda_threads", run_threads<cuda::AddDropoutRow, true>, run_dropout_threads},
    {"cuda_threads_by_element", run_threads<cuda::AddDropoutRow, false>, run_dropout_threads}};

class DropoutKernel : public ::testing::TestWithParam<DropoutEngine> {};

INSTANTIATE_TEST_SUITE_P(Engines, DropoutKernel, ::testing::ValuesIn(kDropoutEngines),
                         [](const auto& instance) { return std::string(instance.param.name); });

constexpr RandomState kState{0x123456789ABCDEF0u, 0x0FEDCBA987654321u};
constexpr double kFactor = 1.0 / 0.7;

/// Dropout of x of shape (batch, rows, d_model), or (rows, batch, d_model) for masks, as x and out lie in memory.
class Case {
 public:
  Case(const Setting& setting, std::int64_t batches, std::int64_t rows, Layout x_layout, Layout out_layout,
       bool rows_first = false)
      : setting_(setting),
        sizes_{batches, rows, setting.d_model},
        batch_tokens_(rows_first ? 1 : rows),
        row_tokens_(rows_first ? batches : 1),
        x_layout_(std::move(x_layout)),
        out_layout_(std::move(out_layout)),
        x_(setting.dtype, x_layout_.elements),
        out_(setting.dtype, out_layout_.elements) {
    for (std::int64_t i = 0; i < x_.elements(); ++i) x_.set(i, static_cast<double>(i % 17) * 0.375 + 2.0);
  }

  static Case contiguous(const Setting& setting, std::int64_t batches, std::int64_t rows, bool rows_first = false) {
    const Layout layout = layouts({batches, rows, setting.d_model}).front();
    return {setting, batches, rows, layout, layout, rows_first};
  }

  Memory& x() { return x_; }
  const Memory& out() const { return out_; }

  Args args(double p, std::int64_t first_token = 0) {
    Args args = setting_.args();
    args.x = x_.at(x_layout_.origin);
    args.out = out_.at(out_layout_.origin);
    args.x_column_stride = x_layout_.strides[2];
    args.out_column_stride = out_layout_.strides[2];
    args.num_row_dims = 1;
    args.num_batch_dims = 1;
    args.row_dims[0] = {sizes_[1], 0, x_layout_.strides[1], out_layout_.strides[1], row_tokens_};
    args.batch_dims[0] = {sizes_[0], 0, x_layout_.strides[0], out_layout_.strides[0], batch_tokens_};
    args.drops = true;
    args.dropout.seed = kState.seed;
    args.dropout.offset = kState.offset;
    args.dropout.first_token = first_token;
    args.dropout.factor = kFactor;
    args.dropout.limit = dropout_limit(p);
    return args;
  }

  /// The same tokens without rows, as dropout alone takes them.
  Args args_alone(double p, std::int64_t first_token = 0) {
    Args args = this->args(p, first_token);
    const bool one_dim = sizes_[0] == 1;
    args.batch_dims[one_dim ? 0 : 1] = args.row_dims[0];
    args.num_batch_dims = one_dim ? 1 : 2;
    args.num_row_dims = 0;
    return args;
  }

  /// The mask by definition on `sums`, which lie as out does.
  Memory expected(const Memory& sums, const Layout& layout, double p, std::int64_t first_token = 0) const {
    Memory result(setting_.dtype, out_layout_.elements);
    for_each_index(sizes_, [&](const Index& index) {
      const double value = sums.value(layout.place(index));
      const double scaled = setting_.dtype == DType::kFloat64
                                ? value * kFactor
                                : static_cast<double>(static_cast<float>(value) * static_cast<float>(kFactor));
      const std::int64_t token = first_token + index[0] * batch_tokens_ + index[1] * row_tokens_;
      const auto element = static_cast<std::uint64_t>(token * setting_.d_model + index[2]);
      result.set(out_layout_.place(index), is_kept(kState, element, p) ? scaled : 0.0);
    });
    return result;
  }

  /// What add alone gives.
  Memory sums() {
    const Memory before = out_;
    Args args = this->args(0.5);
    args.drops = false;
    kEngines[0].add(args, setting_);
    const Memory result = out_;
    out_ = before;
    return result;
  }

  const Layout& x_layout() const { return x_layout_; }
  const Layout& out_layout() const { return out_layout_; }

 private:
  Setting setting_;
  Index sizes_;
  std::int64_t batch_tokens_;
  std::int64_t row_tokens_;
  Layout x_layout_;
  Layout out_layout_;
  Memory x_;
  Memory out_;
};

TEST_P(DropoutKernel, the_sum_is_dropped_by_the_mask_of_the_definition_for_every_dtype_order_odd_and_width) {
  for (const Setting& setting : all_settings()) {
    Case c = Case::contiguous(setting, 3, 9);
    const Memory expected = c.expected(c.sums(), c.out_layout(), 0.3);
    GetParam().add(c.args(0.3), setting);
    EXPECT_TRUE(same_bits(c.out(), expected)) << setting.name();
  }
}

TEST_P(DropoutKernel, a_mask_depends_on_the_logical_index_and_not_on_layouts) {
  for (const DType dtype : kDTypes) {
    const Setting setting{dtype, 5, {}};
    for (const Layout& x_layout : layouts({2, 4, 5})) {
      for (const Layout& out_layout : layouts({2, 4, 5})) {
        Case c(setting, 2, 4, x_layout, out_layout);
        const Memory expected = c.expected(c.sums(), c.out_layout(), 0.5);
        GetParam().add(c.args(0.5), setting);
        EXPECT_TRUE(same_bits(c.out(), expected))
            << setting.name() << ", x " << x_layout.name << ", out " << out_layout.name;
        Case alone(setting, 2, 4, x_layout, out_layout);
        GetParam().alone(alone.args_alone(0.5));
        EXPECT_TRUE(same_bits(alone.out(), alone.expected(alone.x(), x_layout, 0.5)))
            << "alone, " << setting.name() << ", x " << x_layout.name << ", out " << out_layout.name;
      }
    }
  }
}

TEST_P(DropoutKernel, every_way_through_a_sum_gives_the_mask_of_the_definition) {
  for (const DType dtype : kDTypes) {
    for (const Order order : {Order::kInterleaved, Order::kSplit}) {
      for (const std::int64_t d_model : {64, 96, 98}) {    // the last one does not go past the cache
        for (const std::int64_t batches : {1, 3}) {        // rows as they are made; runs of a tile
          for (const std::int64_t rows : {5, 100}) {       // the latter are made two at a time
            for (const bool rows_first : {false, true}) {  // neighbours in memory are not those of the mask
              const Setting setting{dtype, d_model, {10000.0, 0.0, 1.0, order, Odd::kSin}};
              Case c = Case::contiguous(setting, batches, rows, rows_first);
              const Memory expected = c.expected(c.sums(), c.out_layout(), 0.3, 11);
              GetParam().add(c.args(0.3, 11), setting);
              EXPECT_TRUE(same_bits(c.out(), expected))
                  << setting.name() << ", " << batches << " x " << rows << (rows_first ? ", rows first" : "");
              Case alone = Case::contiguous(setting, batches, rows, rows_first);
              GetParam().alone(alone.args_alone(0.3, 11));
              EXPECT_TRUE(same_bits(alone.out(), alone.expected(alone.x(), alone.x_layout(), 0.3, 11)))
                  << "alone, " << setting.name() << ", " << batches << " x " << rows
                  << (rows_first ? ", rows first" : "");
            }
          }
        }
      }
    }
  }
}

TEST_P(DropoutKernel, rows_longer_than_a_group_of_words_and_far_elements) {
  for (const DType dtype : kDTypes) {
    for (const std::int64_t d_model : {127, 128, 129, 256, 257, 515, 1000}) {
      // The last two: the lower half of the block's number wraps, and elements stand near the end of int64.
      for (const std::int64_t first_token :
           {std::int64_t{0}, (std::int64_t{1} << 35) / d_model - 1, (std::int64_t{1} << 62) / d_model}) {
        const Setting setting{dtype, d_model, {}};
        Case c = Case::contiguous(setting, 1, 3);
        const Memory expected = c.expected(c.sums(), c.out_layout(), 0.3, first_token);
        GetParam().add(c.args(0.3, first_token), setting);
        EXPECT_TRUE(same_bits(c.out(), expected)) << setting.name() << ", first token " << first_token;
        Case alone = Case::contiguous(setting, 1, 3);
        GetParam().alone(alone.args_alone(0.3, first_token));
        EXPECT_TRUE(same_bits(alone.out(), alone.expected(alone.x(), alone.x_layout(), 0.3, first_token)))
            << "alone, " << setting.name() << ", first token " << first_token;
      }
    }
  }
}

TEST_P(DropoutKernel, further_bits_decide_where_the_first_ones_are_at_the_limit) {
  constexpr std::int64_t kRows = 1024;
  constexpr std::int64_t kWidth = 1024;
  // The limit at its lowest, in the middle, and at its highest; further bits decide half of the ties.
  for (const double p : {0x1p-17, 0.3 + 0x1p-17, 1.0 - 0x1p-17}) {
    int kept_ties = 0;
    int dropped_ties = 0;
    for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
      const Fate f = fate(kState, static_cast<std::uint64_t>(i), p);
      if (f == Fate::kTieKept) ++kept_ties;
      if (f == Fate::kTieDropped) ++dropped_ties;
    }
    EXPECT_GT(kept_ties, 0) << p;
    EXPECT_GT(dropped_ties, 0) << p;
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const Setting setting{dtype, kWidth, {}};
      Case c = Case::contiguous(setting, 1, kRows);
      const Memory expected = c.expected(c.sums(), c.out_layout(), p);
      GetParam().add(c.args(p), setting);
      EXPECT_TRUE(same_bits(c.out(), expected)) << setting.name() << ", p " << p;
    }
  }
}

TEST_P(DropoutKernel, dropped_elements_are_positive_zero_also_where_they_were_not_finite) {
  for (const DType dtype : kDTypes) {
    for (const double value : {-2.0, std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      const Setting setting{dtype, 64, {}};
      Case c = Case::contiguous(setting, 1, 4);
      for (std::int64_t i = 0; i < c.x().elements(); ++i) c.x().set(i, value);
      GetParam().alone(c.args_alone(0.5));
      for (std::int64_t i = 0; i < c.out().elements(); ++i) {
        const bool kept = is_kept(kState, static_cast<std::uint64_t>(i), 0.5);
        EXPECT_EQ(c.out().bits(i) == 0, !kept) << setting.name() << ", " << value << ", element " << i;
      }
    }
  }
}

TEST_P(DropoutKernel, out_may_be_x) {
  for (const DType dtype : kDTypes) {
    const Setting setting{dtype, 300, {}};
    Case c = Case::contiguous(setting, 2, 3);
    const Memory expected = c.expected(c.sums(), c.out_layout(), 0.3);
    Args args = c.args(0.3);
    args.out = c.x().at(0);
    GetParam().add(args, setting);
    EXPECT_TRUE(same_bits(c.x(), expected)) << setting.name();
  }
}

TEST_P(DropoutKernel, a_state_in_memory_is_the_same_state) {
  if (std::string(GetParam().name).rfind("cuda", 0) != 0) return;  // the CPU kernels get it by value
  const Setting setting{DType::kFloat32, 16, {}};
  Case c = Case::contiguous(setting, 2, 40);
  const Memory expected = c.expected(c.sums(), c.out_layout(), 0.3);
  const std::int64_t seed = static_cast<std::int64_t>(kState.seed);
  const std::int64_t offset = static_cast<std::int64_t>(kState.offset) - 12;
  std::int64_t saved[2] = {-1, -1};
  Args args = c.args(0.3);
  args.dropout.seed = 0;
  args.dropout.offset = 12;
  args.dropout.seed_source = &seed;
  args.dropout.offset_source = &offset;
  args.dropout.saved_state = saved;
  GetParam().add(args, setting);
  EXPECT_TRUE(same_bits(c.out(), expected));
  EXPECT_EQ(saved[0], seed);
  EXPECT_EQ(saved[1], static_cast<std::int64_t>(kState.offset));
  // A later part of the same call does not write it again.
  saved[0] = -1;
  args.dropout.first_token = 80;
  GetParam().add(args, setting);
  EXPECT_EQ(saved[0], -1);
}

TEST(DropoutCpu, any_split_gives_the_same_mask) {
  const Setting setting{DType::kFloat32, 130, {}};
  Case c = Case::contiguous(setting, 4, 6);
  const Memory expected = c.expected(c.sums(), c.out_layout(), 0.3);
  const Args args = c.args(0.3);
  const cpu::Frequencies set = frequencies(setting);
  for (const cpu::TokenRange& part : {cpu::TokenRange{0, 2, 0, 3}, {2, 6, 0, 3}, {0, 6, 3, 4}}) {
    cpu::add(args, set, part);
  }
  EXPECT_TRUE(same_bits(c.out(), expected));
}

TEST(DropoutLimits, cover_every_probability) {
  const auto dropped = [](double p) {
    const DropoutLimit limit = dropout_limit(p);
    return (static_cast<std::int64_t>(limit.first) + 32768) * 65536 + limit.further;
  };
  EXPECT_EQ(dropped(0.5), std::int64_t{1} << 31);
  EXPECT_EQ(dropped(0x1p-32), 1);
  EXPECT_EQ(dropped(0x1p-40), 0);
  EXPECT_EQ(dropped(0.1), 429496730);  // 429496729.6
  EXPECT_EQ(dropped(1.0 - 0x1p-40), (std::int64_t{1} << 32) - 1);
}

}  // namespace
}  // namespace posenc::kernels::testing
