#include <posenc/kernels/cpu/simd.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace posenc::kernels::cpu {

SimdLevel widest_simd_level() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return SimdLevel::kBaseline;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? SimdLevel::kAvx512 : SimdLevel::kAvx2;
#else
  return SimdLevel::kBaseline;
#endif
}

const char* simd_level_name(SimdLevel level) {
  switch (level) {
    case SimdLevel::kAvx512:
      return "avx512";
    case SimdLevel::kAvx2:
      return "avx2";
    case SimdLevel::kBaseline:
      break;
  }
#if defined(__aarch64__)
  return "neon";  // part of every such processor
#else
  return "baseline";
#endif
}

SimdLevel simd_level() {
  static const SimdLevel level = [] {
    const SimdLevel widest = widest_simd_level();
    const char* const wanted = std::getenv("POSENC_SIMD");
    if (wanted == nullptr) return widest;
    for (const SimdLevel candidate : {SimdLevel::kBaseline, SimdLevel::kAvx2, SimdLevel::kAvx512}) {
      if (candidate <= widest && std::strcmp(wanted, simd_level_name(candidate)) == 0) return candidate;
    }
    return widest;
  }();
  return level;
}

}  // namespace posenc::kernels::cpu
