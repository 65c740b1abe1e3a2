/// Random elements of random conventions against their exact values.
///
///     exactness_samples [ELEMENTS [SEED]]   at least so many of each dtype; exits with 1 if one breaks the contract
///     exactness_samples values              answers lines "base freq_shift position_scale order odd d_model position
///                                           column" with the exact value as two doubles: for check_exact.py
///
/// A position of `values` with an x in it is a double, any other an int64.

#include <cinttypes>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "judge.h"

namespace posenc::exactness {
namespace {

using kernels::Args;
using kernels::DType;
using kernels::PositionType;
using kernels::testing::Memory;
using kernels::testing::Setting;

/// Distributions are written out, because those of the standard differ between libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t bits() { return engine_(); }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n)); }
  bool one_in(std::int64_t n) { return below(n) == 0; }
  double uniform(double low, double high) { return low + (high - low) * std::ldexp(static_cast<double>(bits()), -64); }
  double magnitude(double low, double high) { return std::exp2(uniform(std::log2(low), std::log2(high))); }

  template <typename T, std::size_t n>
  T one_of(const T (&values)[n]) {
    return values[below(n)];
  }

 private:
  std::mt19937_64 engine_;
};

constexpr double kDenormal = 5e-324;

Setting random_setting(Random& random) {
  constexpr double kBases[] = {1e-12, 0.5, 1.0, 1.0 + 0x1p-52, 1.0 - 0x1p-53, 2.0, 100.0, 500000.0, 1e6, 1e300};
  constexpr double kShifts[] = {1.0, 0.5, -0.5, 1e-20, kDenormal, -1e6};
  constexpr double kScales[] = {-1.0, 1000.0, 0.25, kTwoPi, 1e-200, -1e150, 0.0, -0.0};
  Setting setting;
  setting.d_model = static_cast<std::int64_t>(random.magnitude(1.0, random.one_in(50) ? 40000.0 : 1200.0));
  Convention& convention = setting.convention;
  convention.order = random.one_of(posenc::testing::kOrders);
  convention.odd = posenc::testing::kOdds[random.below(3)];
  if (!random.one_in(3)) convention.base = random.one_in(3) ? random.one_of(kBases) : random.magnitude(1e-12, 1e300);
  if (random.one_in(2)) {
    // Near half the width, the exponents grow without limit.
    const double edge = static_cast<double>(setting.d_model) / 2 - random.magnitude(1e-9, 1.0);
    convention.freq_shift = random.one_in(2)   ? random.one_of(kShifts)
                            : random.one_in(4) ? edge
                                               : random.uniform(-5.0, 5.0);
  }
  if (random.one_in(2)) {
    const double sign = random.one_in(2) ? -1.0 : 1.0;
    convention.position_scale = random.one_in(3)   ? random.one_of(kScales)
                                : random.one_in(2) ? sign * random.magnitude(1e-200, 1e150)
                                                   : sign * random.magnitude(1e-3, 1e3);
  }
  const double width = static_cast<double>(math::effective_width(setting.d_model, convention.odd));
  if (width == 2 * convention.freq_shift) convention.freq_shift = 0.0;  // refused by the interface
  return setting;
}

/// A magnitude that gives one of the pairs an angle of any size up to 2^64 rad, or any magnitude up to `most`.
double random_magnitude(Random& random, Encoding& exact, double least, double most) {
  if (exact.num_pairs() > 0 && !random.one_in(3)) {
    const double radians = to_double(exact.turns_per_position(random.below(exact.num_pairs()))) * kTwoPi;
    const double magnitude = random.magnitude(0x1p-8, 0x1p64) / radians;
    if (magnitude >= least && magnitude <= most) return magnitude;
  }
  return random.magnitude(least, most);
}

std::int64_t random_integer(Random& random, Encoding& exact) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kSpecial[] = {0,  1,   -1,         15,          16,        17,     31,         32,
                                       33, -32, 4294967296, -2147483648, 1LL << 53, kLeast, kLeast + 1, -(kLeast + 1)};
  if (random.one_in(6)) return random.one_of(kSpecial);
  const std::uint64_t size = static_cast<std::uint64_t>(std::nearbyint(random_magnitude(random, exact, 1.0, 0x1.fp62)));
  const std::uint64_t below_double = random.bits() % ((size >> 53) + 1);  // a double has 53 bits only
  const std::int64_t p = static_cast<std::int64_t>(size + below_double);
  return random.one_in(2) ? p : -p;
}

double random_real(Random& random, Encoding& exact) {
  constexpr double kSpecial[] = {0.0, -0.0, 0.5, -1.5, kDenormal, -1e-300, 0.1, 3.0, 0x1p53, 0x1p63, -0x1p63, 0x1p64};
  if (random.one_in(6)) return random.one_of(kSpecial);
  const double magnitude = random_magnitude(random, exact, 1e-300, 1e300);
  return random.one_in(2) ? magnitude : -magnitude;
}

/// What accuracy.h says of integer and of other positions.
constexpr double kOtherBound = math::kSincosBound + math::kPhaseBound;

class Run {
 public:
  explicit Run(std::uint64_t seed) : random_(seed) {
    for (const Format& format : {posenc::testing::kFloat64, posenc::testing::kFloat32, posenc::testing::kBFloat16,
                                 posenc::testing::kFloat16}) {
      judges_.emplace_back(format, "integer", math::kFloat64Bound);
      judges_.emplace_back(format, "other", kOtherBound);
    }
  }

  bool run(long long elements) {
    while (elements_ < elements) next_convention();
    Judge::print_header();
    bool good = true;
    for (const Judge& judge : judges_) {
      judge.print();
      good = judge.passes() && good;
    }
    return good;
  }

 private:
  void next_convention() {
    setting_ = random_setting(random_);
    // Multiples of this position are to be next to quarter turns, where unrounded values exceed 1.
    const std::int64_t quarter = random_.one_in(8) ? 33 + random_.below(1000000) : 0;
    if (quarter > 0) {
      const double turns = std::ceil(random_.magnitude(1.0, 0x1p20)) / 4;
      setting_.convention.position_scale = turns * kTwoPi / static_cast<double>(quarter);
    }
    Encoding exact = encoding_of(setting_);
    std::int64_t integers[12];
    for (std::int64_t i = 0; i < 12; ++i) {
      integers[i] = quarter > 0 ? (i + 1) * quarter : random_integer(random_, exact);
    }
    double reals[12];
    for (double& p : reals) p = random_real(random_, exact);
    check(exact, PositionType::kInt64, integers, 12, 0, 12);
    check(exact, PositionType::kFloat64, reals, 12, 0, 12);

    // A range, long enough for whole blocks of an anchor, within int64; 6 of its rows are looked at.
    std::int64_t rows = 1 + random_.below(100);
    std::int64_t offset = random_.one_in(3) ? -random_.below(100) : random_integer(random_, exact);
    if (offset > std::numeric_limits<std::int64_t>::max() - rows) offset -= rows;
    check(exact, PositionType::kRange, nullptr, rows, offset, 6);
  }

  /// Encodes `rows` positions in every dtype and judges `rows_judged` rows in up to 48 columns.
  void check(Encoding& exact, PositionType type, const void* positions, std::int64_t rows, std::int64_t offset,
             std::int64_t rows_judged) {
    const std::int64_t width = setting_.d_model;
    std::vector<Memory> results;
    for (const DType dtype : kernels::testing::kDTypes) {
      setting_.dtype = dtype;
      results.emplace_back(dtype, rows * width);
      Args args = setting_.args(offset);
      args.position_type = type;
      args.positions = positions;
      args.out = results.back().at(0);
      args.out_column_stride = 1;
      kernels::testing::set_dims(args.row_dims, args.num_row_dims, {rows}, {1}, {}, {width});
      random_.one_of(kernels::testing::kEngines).encode(args, setting_);
    }
    for (std::int64_t i = 0; i < rows_judged; ++i) {
      const std::int64_t row = type == PositionType::kRange ? random_.below(rows) : i;
      const bool is_real = type == PositionType::kFloat64;
      const double real = is_real ? static_cast<const double*>(positions)[row] : 0.0;
      const std::int64_t integer =
          type == PositionType::kInt64 ? static_cast<const std::int64_t*>(positions)[row] : offset + row;
      const bool is_integer = !is_real || (std::trunc(real) == real && std::fabs(real) <= 0x1p63);
      const Position position = is_real ? Position::of(real) : Position::of(integer);
      const std::int64_t columns = std::min<std::int64_t>(width, 48);
      for (std::int64_t j = 0; j < columns; ++j) {
        const std::int64_t column = columns == width ? j : random_.below(width);
        const Exact value = exact.at(position, column);
        ++elements_;
        for (std::size_t dtype = 0; dtype < results.size(); ++dtype) {
          const double result = results[dtype].value(row * width + column);
          if (judges_[2 * dtype + (is_integer ? 0 : 1)].check(result, value)) continue;
          if (++complaints_ > 20) continue;
          const Convention& convention = setting_.convention;
          std::fprintf(stderr, "%s result %a, exact %a + %a: %a %a %a %s %s %lld ",
                       kernels::testing::format_of(kernels::testing::kDTypes[dtype]).name, result, value.value.value,
                       value.value.rest, convention.base, convention.freq_shift, convention.position_scale,
                       order_name(convention), odd_name(convention), static_cast<long long>(width));
          if (is_real) std::fprintf(stderr, "%a %lld\n", real, static_cast<long long>(column));
          if (!is_real) std::fprintf(stderr, "%" PRId64 " %lld\n", integer, static_cast<long long>(column));
        }
      }
    }
  }

  Random random_;
  Setting setting_;
  std::vector<Judge> judges_;
  long long elements_ = 0;
  int complaints_ = 0;
};

/// Answers lines of standard input.
void answer_values() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream stream(line);
    std::string base, freq_shift, position_scale, order, odd, position;
    std::int64_t d_model = 0;
    std::int64_t column = 0;
    stream >> base >> freq_shift >> position_scale >> order >> odd >> d_model >> position >> column;
    if (!stream) throw std::invalid_argument("not a line of nine fields: " + line);
    const auto number = [](const std::string& text) { return std::strtod(text.c_str(), nullptr); };
    Encoding encoding(d_model, number(base), number(freq_shift), number(position_scale), order, odd);
    const Exact exact =
        encoding.at(position.find('x') != std::string::npos
                        ? Position::of(number(position))
                        : Position::of(static_cast<std::int64_t>(std::strtoll(position.c_str(), nullptr, 10))),
                    column);
    std::printf("%a %a %d\n", exact.value.value, exact.value.rest, exact.in_range ? 1 : 0);
  }
}

}  // namespace
}  // namespace posenc::exactness

int main(int argc, char** argv) {
  using namespace posenc::exactness;
  if (argc > 1 && std::string(argv[1]) == "values") {
    answer_values();
    return 0;
  }
  const long long elements = argc > 1 ? std::atoll(argv[1]) : 10'000'000;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 20170612;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return Run(seed).run(elements) ? 0 : 1;
}
