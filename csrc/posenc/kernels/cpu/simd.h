#pragma once

#include <cstdint>

namespace posenc::kernels::cpu {

/// The instruction sets that the inner loops are compiled for. All give the same bits.
enum class SimdLevel : std::uint8_t {
  kBaseline,  ///< what the compiler was told: SSE2 on x86-64 (there without a fused multiply-add: right, but slow),
              ///< NEON
  kAvx2,      ///< AVX2, FMA, F16C
  kAvx512,    ///< AVX-512 F, BW, DQ, VL
};

/// The widest level of this processor.
SimdLevel widest_simd_level();

/// The level in use: the widest one, or the one that the environment variable POSENC_SIMD names (baseline, avx2,
/// avx512; neon on 64-bit Arm) if the processor has it. Read once.
SimdLevel simd_level();

/// The name of a level, as POSENC_SIMD takes it. The baseline of 64-bit Arm is "neon".
const char* simd_level_name(SimdLevel level);

}  // namespace posenc::kernels::cpu
