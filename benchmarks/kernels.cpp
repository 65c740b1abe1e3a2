// The CPU kernels alone, in the cache, at each SIMD level of this processor, beside what memory itself costs: time and
// bytes for a table of 256 x 512 and for adding it to one and to eight sequences.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <posenc/kernels/cpu/add.h>
#include <posenc/kernels/cpu/encode.h>

namespace {

using namespace posenc::kernels;

constexpr std::int64_t kRows = 256;
constexpr std::int64_t kWidth = 512;

Args make_args(DType dtype, void* out, const void* x, std::int64_t batch) {
  Args args{};
  args.x = x;
  args.out = out;
  args.d_model = kWidth;
  args.x_column_stride = 1;
  args.out_column_stride = 1;
  args.input_scale = 1.0;
  args.alpha = 1.0;
  args.columns = posenc::math::make_columns(kWidth, posenc::Order::kInterleaved, posenc::Odd::kSin);
  args.dtype = dtype;
  args.num_row_dims = 1;
  args.row_dims[0] = {kRows, 0, kWidth, kWidth};
  args.num_batch_dims = batch > 1 ? 1 : 0;
  args.batch_dims[0] = {batch, 0, kRows * kWidth, kRows * kWidth};
  return args;
}

void run(benchmark::State& state, DType dtype, cpu::SimdLevel level, std::int64_t batch) {
  const std::int64_t bytes = std::max<std::int64_t>(batch, 1) * kRows * kWidth * element_size(dtype);
  std::vector<unsigned char> x(static_cast<std::size_t>(bytes), 0);
  std::vector<unsigned char> out(static_cast<std::size_t>(bytes), 0);
  const cpu::Frequencies frequencies({10000.0, kWidth, 0.0, 1.0, kWidth / 2});
  const Args args = make_args(dtype, out.data(), batch > 0 ? x.data() : nullptr, batch);
  for (auto _ : state) {
    if (batch == 0) {
      cpu::encode(args, frequencies, 0, kRows, level);
    } else {
      cpu::add(args, frequencies, {0, kRows, 0, batch}, level);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * bytes * (batch > 0 ? 2 : 1));
}

void copy(benchmark::State& state) {
  std::vector<unsigned char> from(kRows * kWidth * 4, 1);
  std::vector<unsigned char> to(from.size(), 0);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(2 * from.size()));
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kDTypes[] = {"float64", "float32", "bfloat16", "float16"};
  benchmark::RegisterBenchmark("memcpy/float32", copy);
  for (const cpu::SimdLevel level : {cpu::SimdLevel::kBaseline, cpu::SimdLevel::kAvx2, cpu::SimdLevel::kAvx512}) {
    if (level > cpu::widest_simd_level()) continue;
    for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
      for (const std::int64_t batch : {0, 1, 8}) {
        const std::string name = (batch == 0 ? "encode/" : "add_batch_" + std::to_string(batch) + "/") +
                                 std::string(kDTypes[dtype]) + "/" + cpu::simd_level_name(level);
        benchmark::RegisterBenchmark(name.c_str(), run, static_cast<DType>(dtype), level, batch);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
