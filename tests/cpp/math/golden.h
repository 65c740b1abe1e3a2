#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <posenc/math/frequency.h>

/// Reads tests/golden/math_*.csv, the reference values of tools/generate_golden_math.py, from the folder
/// POSENC_GOLDEN_DIR (a string).
namespace posenc::math::testing {

/// A real number as the nearest double and the double nearest to the remainder.
struct TwoDoubles {
  double hi;
  double lo;

  /// |value - this|; the first difference is exact where it matters.
  double distance(double value) const {
    const double difference = (value - hi) - lo;
    return difference < 0 ? -difference : difference;
  }
};

inline double parse_double(const std::string& text) { return std::strtod(text.c_str(), nullptr); }
inline std::int64_t parse_int(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }
inline std::uint64_t parse_unsigned(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 10); }
inline std::uint64_t parse_hex(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 16); }

/// One line of a file: its fields, and itself as the name of the case in messages.
struct GoldenRow {
  std::string line;
  std::vector<std::string> fields;
};

/// The rows below the comment and the column names. Throws unless there are at least `min_rows`.
inline std::vector<GoldenRow> read_golden(const std::string& name, std::size_t min_rows) {
  const std::string path = std::string(POSENC_GOLDEN_DIR) + "/" + name;
  std::ifstream file(path);
  std::vector<GoldenRow> rows;
  std::string line;
  bool below_column_names = false;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    if (!std::exchange(below_column_names, true)) continue;
    GoldenRow row{line, {}};
    std::istringstream stream(line);
    for (std::string field; std::getline(stream, field, ',');) row.fields.push_back(field);
    rows.push_back(std::move(row));
  }
  if (rows.size() < min_rows) throw std::runtime_error(path + " is missing or too short");
  return rows;
}

/// The first five fields of a row as what make_frequency_tables takes.
struct GoldenConvention {
  double base;
  std::int64_t width;
  double freq_shift;
  double position_scale;
  std::int64_t num_freqs;

  explicit GoldenConvention(const GoldenRow& row)
      : base(parse_double(row.fields.at(0))),
        width(parse_int(row.fields.at(1))),
        freq_shift(parse_double(row.fields.at(2))),
        position_scale(parse_double(row.fields.at(3))),
        num_freqs(parse_int(row.fields.at(4))) {}

  FrequencyTables tables() const { return make_frequency_tables(base, width, freq_shift, position_scale, num_freqs); }
};

/// The largest of the errors shown to it, with the name of its case. Every test prints it.
class WorstError {
 public:
  void update(double error, const std::string& name) {
    if (error <= worst_) return;
    worst_ = error;
    name_ = name;
  }

  void report(const std::string& what) const {
    ::testing::Test::RecordProperty(what, std::to_string(worst_));
    std::printf("             %s: worst error %.4g at %s\n", what.c_str(), worst_, name_.c_str());
  }

 private:
  double worst_ = -1.0;
  std::string name_;
};

}  // namespace posenc::math::testing
