#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

/// What the CPU path asks of the machine's memory.

namespace posenc::memory {

/// Bytes of the last-level cache; 32 MB where the system does not say.
int64_t last_level_cache_bytes();

/// Asks for huge pages under a large CPU tensor that has just been allocated, before anything is written: most of the
/// time of a fresh large result is page faults, and a huge page is one instead of 512. Does nothing where the system
/// has no such advice.
void advise_huge_pages(const at::Tensor& fresh);

}  // namespace posenc::memory
