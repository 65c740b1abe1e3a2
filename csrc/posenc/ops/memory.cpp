#include <posenc/ops/memory.h>

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__unix__)
#include <unistd.h>
#endif

namespace posenc::memory {

namespace {

#if defined(__linux__)
/// Bytes of the data cache of a level, or 0 where the system does not say. The C library would name the caches of a
/// whole socket as one, which no thread reaches.
int64_t data_cache_bytes(int64_t wanted_level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    int64_t level = 0, kilobytes = 0;
    std::string type;
    std::ifstream(folder + "level") >> level;
    std::ifstream(folder + "type") >> type;
    std::ifstream(folder + "size") >> kilobytes;  // as in 512K
    if (level == wanted_level && type != "Instruction") return kilobytes << 10;
  }
  return 0;
}
#else
int64_t data_cache_bytes(int64_t) { return 0; }
#endif

Caches read_caches() {
  const int64_t second = data_cache_bytes(2);
  const int64_t last = std::max(second, data_cache_bytes(3));
  return {second > 0 ? second : int64_t{1} << 20, last > 0 ? last : int64_t{32} << 20};
}

}  // namespace

const Caches& caches() {
  static const Caches bytes = read_caches();
  return bytes;
}

at::Tensor empty(c10::SymIntArrayRef sizes, at::ScalarType dtype, at::Device device) {
  if (device.is_cpu()) {
    if (const auto ints = c10::asIntArrayRefSlowOpt(sizes)) return at::detail::empty_cpu(*ints, dtype);
  }
  return at::empty_symint(sizes, at::TensorOptions(dtype).device(device));
}

at::Tensor empty_like(const at::Tensor& x) {
  bool dense = x.is_cpu() && x.layout() == at::kStrided;
  // Not is_contiguous(): a size of 1 may have any stride, which empty_like copies.
  int64_t stride = 1;
  for (int64_t d = x.dim() - 1; dense && d >= 0; --d) {
    dense = x.stride(d) == stride;
    stride *= x.size(d);
  }
  return dense ? at::Tensor(at::detail::empty_cpu(x.sizes(), x.scalar_type())) : at::empty_like(x);
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
