/// Every row from 0 on, of several widths and every dtype: bits must not depend on how a row was asked for, and values
/// must be exact.
///
///     exactness_rows [ROWS]   exits with 1 if a bit differs or an element breaks the contract

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "judge.h"

namespace posenc::exactness {
namespace {

using kernels::Args;
using kernels::DType;
using kernels::PositionType;
using kernels::cpu::SimdLevel;
using kernels::testing::kEngines;
using kernels::testing::Memory;
using kernels::testing::set_dims;
using kernels::testing::Setting;

constexpr std::int64_t kWidths[] = {2, 64, 512};
constexpr SimdLevel kLevels[] = {SimdLevel::kBaseline, SimdLevel::kAvx2, SimdLevel::kAvx512};

/// The rows of one width and dtype in every way, compared with the range that one call of the widest level fills.
class Rows {
 public:
  Rows(DType dtype, std::int64_t d_model, std::int64_t rows)
      : setting_{dtype, d_model, {}}, rows_(rows), dense_(dtype, rows * d_model) {
    Args args = args_for(dense_);
    kernels::cpu::encode(args, kernels::testing::frequencies(setting_), 0, rows_, kernels::cpu::widest_simd_level());
  }

  const Memory& dense() const { return dense_; }

  bool check() {
    for (const auto& engine : kEngines) {  // SIMD levels, past the cache, CUDA threads
      Memory out = blank();
      engine.encode(args_for(out), setting_);
      expect_dense(out, std::string("a range by ") + engine.name);
    }
    for (const std::int64_t parts : {1, 2, 3, 7}) {
      expect_dense(by_threads(parts), std::to_string(parts) + " threads");
    }
    expect_dense(one_by_one(), "one row a call");
    check_scattered();
    check_strided();
    for (const std::int64_t batch : {1, 4}) check_add(batch);
    std::printf("%-8s d_model %3lld: %lld rows, %s\n", kernels::testing::format_of(setting_.dtype).name,
                static_cast<long long>(setting_.d_model), static_cast<long long>(rows_),
                good_ ? "same bits" : "NOT THE SAME BITS");
    return good_;
  }

 private:
  Memory blank() const { return Memory(setting_.dtype, rows_ * setting_.d_model); }

  /// Arguments of a whole contiguous result.
  Args args_for(Memory& out) const {
    Args args = setting_.args();
    args.out = out.at(0);
    args.out_column_stride = 1;
    set_dims(args.row_dims, args.num_row_dims, {rows_}, {1}, {}, {setting_.d_model});
    return args;
  }

  void expect_dense(const Memory& out, const std::string& way) { expect_same(out, dense_, way); }

  void expect_same(const Memory& out, const Memory& expected, const std::string& way) {
    const auto same = kernels::testing::same_bits(out, expected);
    if (same) return;
    good_ = false;
    std::fprintf(stderr, "%s, %s: %s\n", setting_.name().c_str(), way.c_str(), same.message());
  }

  Memory by_threads(std::int64_t parts) const {
    Memory out = blank();
    const Args args = args_for(out);
    const kernels::cpu::Frequencies frequencies = kernels::testing::frequencies(setting_);
    std::vector<std::thread> threads;
    for (std::int64_t part = 0; part < parts; ++part) {
      threads.emplace_back(
          [&, part] { kernels::cpu::encode(args, frequencies, rows_ * part / parts, rows_ * (part + 1) / parts); });
    }
    for (std::thread& thread : threads) thread.join();
    return out;
  }

  Memory one_by_one() const {
    Memory out = blank();
    const Args args = args_for(out);
    const kernels::cpu::Frequencies frequencies = kernels::testing::frequencies(setting_);
    for (std::int64_t row = 0; row < rows_; ++row) kernels::cpu::encode(args, frequencies, row, row + 1);
    return out;
  }

  /// Positions in memory, shuffled.
  void check_scattered() {
    std::vector<std::int64_t> positions(static_cast<std::size_t>(rows_));
    std::iota(positions.begin(), positions.end(), 0);
    std::shuffle(positions.begin(), positions.end(), std::mt19937_64(5));
    Memory expected = blank();
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::int64_t position = positions[static_cast<std::size_t>(row)];
      std::memcpy(expected.at(row * setting_.d_model), dense_.at(position * setting_.d_model),
                  static_cast<std::size_t>(setting_.d_model) * kernels::testing::size_of(setting_.dtype));
    }
    for (const auto& engine : kEngines) {
      Memory out = blank();
      Args args = args_for(out);
      args.positions = positions.data();
      args.position_type = PositionType::kInt64;
      engine.encode(args, setting_);
      expect_same(out, expected, std::string("shuffled positions by ") + engine.name);
    }
  }

  /// Every third element of memory, rows with a gap, and the columns backwards.
  void check_strided() {
    const std::int64_t width = setting_.d_model;
    const std::int64_t row_stride = 3 * width + 1;
    Memory out(setting_.dtype, rows_ * row_stride);
    Args args = args_for(out);
    args.out = out.at(3 * (width - 1));
    args.out_column_stride = -3;
    set_dims(args.row_dims, args.num_row_dims, {rows_}, {}, {}, {row_stride});
    kernels::cpu::encode(args, kernels::testing::frequencies(setting_), 0, rows_);
    Memory gathered = blank();
    for (std::int64_t i = 0; i < rows_ * width; ++i) {
      std::memcpy(gathered.at(i), out.at(i / width * row_stride + 3 * (width - 1 - i % width)),
                  kernels::testing::size_of(setting_.dtype));
    }
    expect_dense(gathered, "a strided result");
  }

  /// Adds to zeros: the float32 encoding (of float64, its own), rounded to the dtype. Some rows at a time; one batch
  /// into a new result, several in place.
  void check_add(std::int64_t batch) {
    constexpr std::int64_t kRowsAtOnce = 10007;  // so that parts begin anywhere within an anchor's rows
    const std::int64_t width = setting_.d_model;
    for (std::int64_t begin = 0; begin < rows_; begin += kRowsAtOnce) {
      const std::int64_t rows = std::min(kRowsAtOnce, rows_ - begin);
      Memory encoding(kernels::testing::compute_dtype(setting_.dtype), rows * width);
      Setting compute = setting_;
      compute.dtype = encoding.dtype();
      Args args = compute.args(begin);
      args.out = encoding.at(0);
      args.out_column_stride = 1;
      set_dims(args.row_dims, args.num_row_dims, {rows}, {}, {}, {width});
      kernels::cpu::encode(args, kernels::testing::frequencies(setting_), 0, rows);
      Memory expected(setting_.dtype, batch * rows * width);
      for (std::int64_t i = 0; i < rows * width; ++i) expected.set(i, encoding.value(i));
      const std::size_t bytes = static_cast<std::size_t>(rows * width) * kernels::testing::size_of(setting_.dtype);
      for (std::int64_t b = 1; b < batch; ++b) std::memcpy(expected.at(b * rows * width), expected.at(0), bytes);

      for (const auto& engine : kEngines) {
        Memory x(setting_.dtype, batch * rows * width);
        std::memset(x.at(0), 0, bytes * static_cast<std::size_t>(batch));
        args = setting_.args(begin);
        args.x = x.at(0);
        Memory result(setting_.dtype, batch == 1 ? rows * width : 0);
        Memory& out = batch == 1 ? result : x;
        args.out = out.at(0);
        args.x_column_stride = 1;
        args.out_column_stride = 1;
        set_dims(args.row_dims, args.num_row_dims, {rows}, {}, {width}, {width});
        if (batch > 1) {
          set_dims(args.batch_dims, args.num_batch_dims, {batch}, {}, {rows * width}, {rows * width});
        }
        engine.add(args, setting_);
        expect_same(out, expected, "added to " + std::to_string(batch) + " batches of zeros by " + engine.name);
      }
    }
  }

  Setting setting_;
  std::int64_t rows_;
  Memory dense_;
  bool good_ = true;
};

bool run(std::int64_t rows) {
  bool good = true;
  int complaints = 0;
  std::vector<Judge> judges;
  for (const DType dtype : kernels::testing::kDTypes) {
    judges.emplace_back(kernels::testing::format_of(dtype), "integer", math::kFloat64Bound);
  }
  for (const std::int64_t d_model : kWidths) {
    Encoding exact = encoding_of({DType::kFloat64, d_model, {}});
    std::vector<Rows> all;
    for (const DType dtype : kernels::testing::kDTypes) {
      all.emplace_back(dtype, d_model, rows);
      good = all.back().check() && good;
    }
    for (std::int64_t i = 0; i < rows * d_model; ++i) {
      const Exact value = exact.at(Position::of(i / d_model), i % d_model);
      for (std::size_t dtype = 0; dtype < all.size(); ++dtype) {
        const double result = all[dtype].dense().value(i);
        if (judges[dtype].check(result, value) || ++complaints > 20) continue;
        std::fprintf(stderr, "d_model %lld, row %lld, column %lld: %a, exact %a + %a\n",
                     static_cast<long long>(d_model), static_cast<long long>(i / d_model),
                     static_cast<long long>(i % d_model), result, value.value.value, value.value.rest);
      }
    }
  }
  Judge::print_header();
  for (const Judge& judge : judges) {
    judge.print();
    good = judge.passes() && good;
  }
  return good;
}

}  // namespace
}  // namespace posenc::exactness

int main(int argc, char** argv) {
  const std::int64_t rows = argc > 1 ? std::atoll(argv[1]) : 70001;
  return posenc::exactness::run(rows) ? 0 : 1;
}
