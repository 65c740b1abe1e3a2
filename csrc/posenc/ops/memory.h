#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

/// What the CPU path asks of the machine's memory.

namespace posenc::memory {

/// Bytes of the data caches that one thread reaches; 1 and 32 MB where the system does not say.
struct Caches {
  int64_t second_level;
  int64_t last_level;
};
const Caches& caches();

// New tensors, on the CPU without a second way through the dispatcher, which would be most of the cost of a small call.

/// at::empty_symint.
at::Tensor empty(c10::SymIntArrayRef sizes, at::ScalarType dtype, at::Device device);

/// at::empty_like.
at::Tensor empty_like(const at::Tensor& x);

/// The C library keeps released memory up to this size for the next allocation and gives larger pieces back to the
/// system; so do others.
inline constexpr int64_t kLargestKeptBytes = int64_t{32} << 20;

/// Asks for huge pages under a large CPU tensor that has just been allocated, before anything is written: most of the
/// time of a fresh large result is page faults, and a huge page is one instead of 512. Does nothing where the system
/// has no such advice.
void advise_huge_pages(const at::Tensor& fresh);

}  // namespace posenc::memory
