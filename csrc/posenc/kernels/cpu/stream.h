#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <posenc/kernels/args.h>

/// Stores past the cache: for results that are larger than it, whose lines would be read from memory only to be
/// overwritten.

namespace posenc::kernels::cpu {

/// Of every vector that is stored: a line of the cache, which goes to memory as a whole.
inline constexpr std::int64_t kStreamAlignment = 64;

/// Whether each row of the result, and each half of one whose functions stand apart, is a number of whole lines, and
/// there are such stores.
inline bool can_stream(const Args& args) {
#if defined(__x86_64__)
  std::int64_t strides = args.d_model;
  if (args.columns.first_stride == 1) strides |= args.columns.second_offset;
  for (int i = 0; i < args.num_row_dims; ++i) strides |= args.row_dims[i].out_stride;
  for (int i = 0; i < args.num_batch_dims; ++i) strides |= args.batch_dims[i].out_stride;
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(args.out));
  return args.out_column_stride == 1 && ((strides * element_size(args.dtype)) | address) % kStreamAlignment == 0;
#else
  static_cast<void>(args);
  return false;
#endif
}

/// Whether a loop that takes `pairs` pairs at a time writes whole lines of a row before it turns to another row. If
/// not, the processor would send parts of lines, and rows are made in a buffer first.
inline bool writes_lines(const Args& args, std::int64_t pairs) {
  return pairs * args.columns.first_stride * element_size(args.dtype) % kStreamAlignment == 0;
}

/// Copies whole lines past the cache; `to` as can_stream demands.
inline void stream_copy(void* to, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
  auto* const out = static_cast<__m128i*>(to);
  const auto* const in = static_cast<const __m128i*>(from);
  for (std::size_t i = 0; i < bytes / sizeof(__m128i); ++i) _mm_stream_si128(out + i, _mm_loadu_si128(in + i));
#else
  std::memcpy(to, from, bytes);
#endif
}

/// Follows the last store past the cache.
inline void finish_stream() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace posenc::kernels::cpu
