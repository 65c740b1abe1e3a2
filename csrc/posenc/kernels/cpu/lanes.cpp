#include <posenc/kernels/cpu/lanes.h>

#include <cmath>
#include <cstring>
#include <type_traits>

#include <posenc/kernels/dropout.h>
#include <posenc/kernels/element.h>
#include <posenc/math/element.h>
#include <posenc/math/rounding.h>
#include <posenc/math/sincos.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// Note [One source, several instruction sets]
// The loops stand once, in lanes_loops.h and dropout_loops.h over vectors.h, and are
// compiled for each level in a namespace of its own. Vector width changes no bit: lanes do not interact, every fma is
// written out, contraction is off. The functions of other headers are inlined into loops whole, hence `flatten`; what
// is not stays as other files have it, so code for a wide level cannot leak into a narrow one.

#if defined(__clang__)
#define POSENC_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define POSENC_INDEPENDENT _Pragma("GCC ivdep")
#pragma GCC diagnostic ignored "-Wpsabi"                // vectors are passed between inlined functions only
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false alarms of GCC 12 in its own immintrin.h
#endif

namespace posenc::kernels::cpu {
namespace {

namespace baseline {
#define POSENC_DOUBLES 2
#include <posenc/kernels/cpu/vectors.h>

#include <posenc/kernels/cpu/dropout_loops.h>
#include <posenc/kernels/cpu/lanes_loops.h>
#undef POSENC_DOUBLES
}  // namespace baseline

#if defined(__x86_64__)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
namespace avx2 {
#define POSENC_DOUBLES 4
#include <posenc/kernels/cpu/vectors.h>

#include <posenc/kernels/cpu/dropout_loops.h>
#include <posenc/kernels/cpu/lanes_loops.h>
#undef POSENC_DOUBLES
}  // namespace avx2
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif
namespace avx512 {
#define POSENC_DOUBLES 8
#include <posenc/kernels/cpu/vectors.h>

#include <posenc/kernels/cpu/dropout_loops.h>
#include <posenc/kernels/cpu/lanes_loops.h>
#undef POSENC_DOUBLES
}  // namespace avx512
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif

}  // namespace

const Lanes& lanes([[maybe_unused]] SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::kAvx512) return avx512::kLanes;
  if (level == SimdLevel::kAvx2) return avx2::kLanes;
#endif
  return baseline::kLanes;
}

}  // namespace posenc::kernels::cpu
