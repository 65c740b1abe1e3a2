#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace posenc::kernels::cpu {

/// Copies a row past the cache: for results that are larger than it, whose lines would be read from memory only to be
/// overwritten. finish_stream() follows the last one. A plain copy where there are no such stores.
inline void stream_copy(void* to, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
  char* out = static_cast<char*>(to);
  const char* in = static_cast<const char*>(from);
  std::size_t head = (16 - reinterpret_cast<std::uintptr_t>(out) % 16) % 16;
  if (head > bytes) head = bytes;
  std::memcpy(out, in, head);
  std::size_t i = head;
  for (; i + 64 <= bytes; i += 64) {
    for (std::size_t j = 0; j < 64; j += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(out + i + j),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i + j)));
    }
  }
  std::memcpy(out + i, in + i, bytes - i);
#else
  std::memcpy(to, from, bytes);
#endif
}

inline void finish_stream() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace posenc::kernels::cpu
