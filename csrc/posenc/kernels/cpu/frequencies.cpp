#include <posenc/kernels/cpu/frequencies.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include <posenc/kernels/cpu/lanes.h>
#include <posenc/math/bits.h>

namespace posenc::kernels::cpu {
namespace {

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

/// The sets kept, the last used one at the end.
class Store {
 public:
  std::shared_ptr<const Frequencies> find(const FrequencyKey& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const auto& set) { return set->key() == key; });
    if (found == kept_.end()) return nullptr;
    std::rotate(found, found + 1, kept_.end());
    return kept_.back();
  }

  void keep(std::shared_ptr<const Frequencies> set) {
    std::shared_ptr<const Frequencies> dropped;  // freed after the lock
    const std::lock_guard<std::mutex> lock(mutex_);
    if (kept_.size() == kMaxKept) {
      dropped = std::move(kept_.front());
      kept_.erase(kept_.begin());
    }
    kept_.push_back(std::move(set));
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<const Frequencies>> kept_;
};

}  // namespace

bool FrequencyKey::operator==(const FrequencyKey& other) const {
  const auto same = [](double a, double b) {
    return math::bit_cast<std::uint64_t>(a) == math::bit_cast<std::uint64_t>(b);
  };
  return same(base, other.base) && same(freq_shift, other.freq_shift) && same(position_scale, other.position_scale) &&
         width == other.width && count == other.count;
}

Frequencies::Frequencies(const FrequencyKey& key) : key_(key), id_(next_id()) {
  const math::FrequencyTables tables =
      math::make_frequency_tables(key.base, key.width, key.freq_shift, key.position_scale, key.count);
  std::uint64_t* const hi = fractions_.reserve(2 * count());
  std::uint64_t* const lo = hi + count();
  math::Float128* const exact = exact_.reserve(count());
  for (std::int64_t k = 0; k < count(); ++k) {
    exact[k] = math::frequency(tables, k);
    const math::TurnFraction fraction = math::turn_fraction(exact[k]);
    hi[k] = fraction.hi;
    lo[k] = fraction.lo;
  }
}

Frequencies::~Frequencies() {
  for (auto& step : steps_) delete step.load(std::memory_order_relaxed);
}

const double* Frequencies::step(int r) const {
  std::atomic<Buffer<double>*>& slot = steps_[static_cast<std::size_t>(r - 1)];
  Buffer<double>* step = slot.load(std::memory_order_acquire);
  if (step != nullptr) return step->data();

  auto made = std::make_unique<Buffer<double>>();
  double* const sin = made->reserve(2 * count());
  Buffer<std::uint64_t> phases;
  const Lanes& loops = lanes(simd_level());
  loops.phases(static_cast<std::uint64_t>(r), hi(), lo(), count(), phases.reserve(count()));
  loops.sincos(phases.data(), count(), sin, sin + count());
  // Threads that make the same step at once make the same bits; the first one stays.
  if (slot.compare_exchange_strong(step, made.get(), std::memory_order_acq_rel)) step = made.release();
  return step->data();
}

std::shared_ptr<const Frequencies> frequencies_of(const FrequencyKey& key) {
  if (key.count > kMaxKeptPairs) return std::make_shared<const Frequencies>(key);
  // Most calls of a thread ask for what the one before asked for, and need no lock.
  thread_local std::shared_ptr<const Frequencies> last;
  if (last != nullptr && last->key() == key) return last;

  static Store& store = *new Store;  // never deleted: threads may outlive static objects
  std::shared_ptr<const Frequencies> set = store.find(key);
  if (set == nullptr) {
    set = std::make_shared<const Frequencies>(key);
    store.keep(set);
  }
  last = set;
  return set;
}

}  // namespace posenc::kernels::cpu
