#include <posenc/ops/memory.h>

#include <algorithm>
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__unix__)
#include <unistd.h>
#endif

namespace posenc::memory {

int64_t last_level_cache_bytes() {
  static const int64_t bytes = [] {
    int64_t size = 0;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    size = std::max<int64_t>(sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL3_CACHE_SIZE));
#endif
    return size > 0 ? size : int64_t{32} << 20;
  }();
  return bytes;
}

void advise_huge_pages([[maybe_unused]] const at::Tensor& fresh) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr int64_t kHugePage = int64_t{2} << 20;
  if (!fresh.is_cpu()) return;
  const int64_t bytes = fresh.numel() * fresh.element_size();
  if (bytes < 2 * kHugePage) return;
  // Whole pages only; the kernel itself finds the huge ones among them.
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* const data = static_cast<char*>(fresh.mutable_data_ptr());
  const std::uintptr_t rest = reinterpret_cast<std::uintptr_t>(data) % page;
  const std::uintptr_t skip = rest == 0 ? 0 : page - rest;
  const std::uintptr_t size = (static_cast<std::uintptr_t>(bytes) - skip) / page * page;
  madvise(data + skip, size, MADV_HUGEPAGE);  // advice: an error changes nothing
#endif
}

}  // namespace posenc::memory
