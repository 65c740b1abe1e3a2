// The typed C++ functions beside what they replace in C++, as rows of the table that compare.py prints. Fails if a row
// exceeds its limit.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <posenc/posenc.h>

namespace {

using Call = std::function<void()>;

constexpr int kRounds = 31;
constexpr double kSampleSeconds = 2e-3;

double sample(const Call& call, std::int64_t repeats) {
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < repeats; ++i) call();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return seconds.count() / static_cast<double>(repeats);
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

/// Both in turn; prints one row and returns whether the median ratio is within the limit.
bool compare(const char* work, const char* call, const char* against, const Call& ours, const Call& theirs,
             double limit) {
  const auto repeats_of = [](const Call& one) {
    for (int i = 0; i < 100; ++i) one();
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(kSampleSeconds / sample(one, 100)));
  };
  const std::int64_t repeats_ours = repeats_of(ours), repeats_theirs = repeats_of(theirs);
  std::vector<double> times_ours, times_theirs, ratios;
  for (int i = 0; i < kRounds; ++i) {
    times_ours.push_back(sample(ours, repeats_ours));
    times_theirs.push_back(sample(theirs, repeats_theirs));
    ratios.push_back(times_ours.back() / times_theirs.back());
  }
  const double median = quantile(ratios, 0.5);
  std::printf("| %s | %s | %s | 1 | yes | %.3g us | %.3g us | %.2f (%.2f-%.2f) | %.3g%s |\n", work, call, against,
              1e6 * quantile(times_ours, 0.5), 1e6 * quantile(times_theirs, 0.5), median, quantile(ratios, 0.25),
              quantile(ratios, 0.75), limit, median > limit ? " **exceeded**" : "");
  return median <= limit;
}

}  // namespace

int main() {
  at::set_num_threads(1);
  const at::Tensor one = at::randn({1, 1, 512}), one_table = posenc::encode(4096, 512);
  const at::Tensor eight = at::randn({8, 1, 1024}), eight_table = posenc::encode(4096, 1024);
  const at::Tensor positions = at::randint(4096, {8, 1}, at::kLong);
  const at::Tensor tiny = at::randn({1, 1, 8});

  std::printf("| work | call | against | threads | in cache | ours | theirs | ratio (quartiles) | at most |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|\n");
  bool good = true;
  good &= compare(
      "add (1, 1, 512) at an offset, one decoding step", "posenc::add", "`x + table.slice(0, t, t + 1)`",
      [&] { posenc::add(one, 1234); }, [&] { at::add(one, one_table.slice(0, 1234, 1235)); }, 0.8);
  good &= compare(
      "add (8, 1, 1024) at a position for each row", "posenc::add", "`x + table.index({positions})`",
      [&] { posenc::add(eight, positions); }, [&] { at::add(eight, eight_table.index({positions})); }, 0.4);
  good &= compare(
      "add (1, 1, 8), what a call costs", "posenc::add", "`at::add`", [&] { posenc::add(tiny); },
      [&] { at::add(tiny, tiny); }, 1.5);
  return good ? 0 : 1;
}
