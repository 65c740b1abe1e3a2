#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <iterator>

#include <posenc/kernels/cpu/simd.h>

#include "kernel_case.h"

/// The bits of whole tables, frozen: each processor, compiler and kernel must give the ones that x86-64 gave first. A
/// new value is a change of results and needs an entry in the changelog.

namespace posenc::kernels::testing {
namespace {

constexpr std::int64_t kRows = 100;
constexpr std::int64_t kBatches = 2;
constexpr std::int64_t kOffset = -40;
constexpr double kPositions[] = {-1e9, -3.0, -0.5, 0.0, 1.0 / 3.0, 16.0, 17.25, 4097.0, 1e15 + 0.5, 0x1p63, 1e25};

/// FNV-1a over the bits of every element it is shown.
class Digest {
 public:
  void add(const Memory& memory) {
    for (std::int64_t i = 0; i < memory.elements(); ++i) value_ = (value_ ^ memory.bits(i)) * 0x100000001B3u;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325u;
};

/// The digest of what `run(setting)` makes of every setting of a dtype.
template <typename Run>
std::uint64_t digest_of(DType dtype, Run&& run) {
  Digest digest;
  for (const Setting& setting : all_settings()) {
    if (setting.dtype == dtype) digest.add(run(setting));
  }
  return digest.value();
}

class Bits : public ::testing::TestWithParam<Engine> {};

INSTANTIATE_TEST_SUITE_P(Engines, Bits, ::testing::ValuesIn(kEngines),
                         [](const auto& info) { return info.param.name; });

TEST_P(Bits, of_a_range_are_those_of_every_processor) {
  constexpr std::uint64_t kExpected[] = {0x6013509090C3F90Du, 0xC8A286C87AE35087u, 0x74E4E5A2062C2C43u,
                                         0x30908F13195CF45Fu};
  for (const DType dtype : kDTypes) {
    const std::uint64_t digest = digest_of(dtype, [&](const Setting& setting) {
      Memory out(dtype, kRows * setting.d_model);
      Args args = setting.args(kOffset);
      args.out = out.at(0);
      args.out_column_stride = 1;
      set_dims(args.row_dims, args.num_row_dims, {kRows}, {}, {}, {setting.d_model});
      GetParam().encode(args, setting);
      return out;
    });
    EXPECT_EQ(digest, kExpected[static_cast<int>(dtype)]) << format_of(dtype).name << std::hex << " 0x" << digest;
  }
}

TEST_P(Bits, of_given_positions_are_those_of_every_processor) {
  constexpr std::uint64_t kExpected[] = {0x8DFD846E1F617BB3u, 0x55B5AF2634162CD7u, 0xAF4D91D6858E0955u,
                                         0x97FBC356AB0F7D39u};
  constexpr std::int64_t rows = std::size(kPositions);
  for (const DType dtype : kDTypes) {
    const std::uint64_t digest = digest_of(dtype, [&](const Setting& setting) {
      Memory out(dtype, rows * setting.d_model);
      Args args = setting.args();
      args.out = out.at(0);
      args.out_column_stride = 1;
      args.positions = kPositions;
      args.position_type = PositionType::kFloat64;
      set_dims(args.row_dims, args.num_row_dims, {rows}, {1}, {}, {setting.d_model});
      GetParam().encode(args, setting);
      return out;
    });
    EXPECT_EQ(digest, kExpected[static_cast<int>(dtype)]) << format_of(dtype).name << std::hex << " 0x" << digest;
  }
}

TEST_P(Bits, of_a_sum_are_those_of_every_processor) {
  constexpr std::uint64_t kExpected[] = {0xDE5FB3A87A12EB34u, 0xD17B164B4496AE35u, 0x2229E792C6447F0Eu,
                                         0x7E100BFAE00963D9u};
  for (const DType dtype : kDTypes) {
    const std::uint64_t digest = digest_of(dtype, [&](const Setting& setting) {
      const std::int64_t entry = kRows * setting.d_model;
      Memory x(dtype, kBatches * entry);
      for (std::int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>(i * 37 % 101 - 50) / 16.0);
      Memory out(dtype, kBatches * entry);
      Args args = setting.args(kOffset);
      args.x = x.at(0);
      args.out = out.at(0);
      args.x_column_stride = 1;
      args.out_column_stride = 1;
      args.input_scale = 22.627;
      args.alpha = -0.7;
      set_dims(args.row_dims, args.num_row_dims, {kRows}, {}, {setting.d_model}, {setting.d_model});
      set_dims(args.batch_dims, args.num_batch_dims, {kBatches}, {}, {entry}, {entry});
      GetParam().add(args, setting);
      return out;
    });
    EXPECT_EQ(digest, kExpected[static_cast<int>(dtype)]) << format_of(dtype).name << std::hex << " 0x" << digest;
  }
}

TEST(SimdLevel, baseline_is_named_after_what_the_processor_has) {
#if defined(__aarch64__)
  EXPECT_STREQ(cpu::simd_level_name(cpu::SimdLevel::kBaseline), "neon");
  EXPECT_EQ(cpu::widest_simd_level(), cpu::SimdLevel::kBaseline);
#else
  EXPECT_STREQ(cpu::simd_level_name(cpu::SimdLevel::kBaseline), "baseline");
#endif
}

}  // namespace
}  // namespace posenc::kernels::testing
