#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace posenc::kernels::cpu {

/// Uninitialised memory for trivial elements, aligned to a cache line. Only ever grows, until it is released. A loop
/// may read kReadable bytes from the last element on, so that it can take whole vectors to the end.
template <typename T>
class Buffer {
 public:
  static constexpr std::int64_t kReadable = 256;

  /// At least `count` elements; what was there before is lost when it grows.
  T* reserve(std::int64_t count) {
    if (count > capacity_) {
      data_.reset();
      capacity_ = 0;
      data_.reset(static_cast<T*>(::operator new(static_cast<std::size_t>(count) * sizeof(T) + kReadable, kAlignment)));
      capacity_ = count;
    }
    return data_.get();
  }

  T* data() const { return data_.get(); }
  std::int64_t bytes() const { return capacity_ * static_cast<std::int64_t>(sizeof(T)); }

  void release() {
    data_.reset();
    capacity_ = 0;
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<T, Free> data_;
  std::int64_t capacity_ = 0;
};

}  // namespace posenc::kernels::cpu
