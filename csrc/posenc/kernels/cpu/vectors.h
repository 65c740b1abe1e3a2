// The vectors of one instruction set: included by lanes.cpp before lanes_loops.h, and like it once for each, with
// POSENC_DOUBLES the doubles of one vector. Compilers offer vector types and their arithmetic for every processor; what
// they cannot say, or say badly, stands here.

constexpr std::int64_t kDoubles = POSENC_DOUBLES;
constexpr std::int64_t kFloats = 2 * kDoubles;

typedef double Doubles __attribute__((vector_size(kDoubles * 8)));
typedef std::int64_t Longs __attribute__((vector_size(kDoubles * 8)));
typedef std::uint64_t UnsignedLongs __attribute__((vector_size(kDoubles * 8)));
typedef float Floats __attribute__((vector_size(kDoubles * 8)));
typedef std::uint32_t Words __attribute__((vector_size(kDoubles * 8)));
typedef std::int32_t Ints __attribute__((vector_size(kDoubles * 8)));
typedef float HalfFloats __attribute__((vector_size(kDoubles * 4)));
typedef std::uint16_t Shorts __attribute__((vector_size(kDoubles * 4)));
typedef std::int16_t SignedShorts __attribute__((vector_size(kDoubles * 4)));
typedef std::int16_t HalfSignedShorts __attribute__((vector_size(kDoubles * 2)));

template <typename Vector>
inline Vector load(const void* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof(Vector));
  return vector;
}

/// kPast: past the cache; `to` is then a multiple of the size.
template <bool kPast, typename Vector>
inline void store(void* to, const Vector& vector) {
#if defined(__x86_64__)
  if constexpr (kPast) {
    if constexpr (sizeof(Vector) == 64) return _mm512_stream_si512(static_cast<__m512i*>(to), (__m512i)vector);
    if constexpr (sizeof(Vector) == 32) return _mm256_stream_si256(static_cast<__m256i*>(to), (__m256i)vector);
    if constexpr (sizeof(Vector) == 16) return _mm_stream_si128(static_cast<__m128i*>(to), (__m128i)vector);
  }
#endif
  std::memcpy(to, &vector, sizeof(Vector));
}

/// Keeps a loaded vector in a register: compilers would rather load it again for each use, and loads are what loops
/// over rows have least to spare of.
inline Doubles load_once(const double* from) {
  Doubles vector = load<Doubles>(from);
#if defined(__x86_64__)
  __asm__("" : "+v"(vector));
#endif
  return vector;
}

// product_of_halves: of the lower 32 bits of each lane, all 64 bits. Compilers do not find its instruction in a loop.

/// All bits of a lane that is NaN.
inline auto is_nan(Floats value) { return value != value; }  // NOLINT(misc-redundant-expression)

// Conversions between 16-bit types and float: widen is exact, narrow gives the bits of store_as.

inline Floats widen(const float* from) { return load<Floats>(from); }
template <bool kPast>
inline void narrow(Floats value, float* to) {
  store<kPast>(to, value);
}

#if POSENC_DOUBLES == 8

inline Doubles fused(Doubles a, Doubles b, Doubles c) { return _mm512_fmadd_pd(a, b, c); }

inline HalfFloats nearest_floats(Doubles value) { return _mm512_cvtpd_ps(value); }

inline UnsignedLongs product_of_halves(UnsignedLongs a, UnsignedLongs b) {
  return (UnsignedLongs)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}

inline Floats concatenate(HalfFloats a, HalfFloats b) { return _mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1); }

inline Floats interleave(HalfFloats a, HalfFloats b) {
  const __m512i indices = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  return _mm512_permutex2var_ps(_mm512_castps256_ps512(a), indices, _mm512_castps256_ps512(b));
}

inline Doubles interleave_low(Doubles a, Doubles b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }

inline Doubles interleave_high(Doubles a, Doubles b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

inline Floats widen(const math::BFloat16* from) {
  return (Floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(load<__m256i>(from)), 16);
}

template <bool kPast>
inline void narrow(Floats value, math::BFloat16* to) {
  const __m512i bits = (__m512i)value;
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i down = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF));
  const __m512i even = _mm512_mask_add_epi32(down, odd, bits, _mm512_set1_epi32(0x8000));
  const __m512i rounded = _mm512_mask_mov_epi32(even, nan, _mm512_set1_epi32(0x7FC00000));
  typedef std::uint16_t Halves __attribute__((vector_size(64)));
  store<kPast>(to, __builtin_shufflevector((Halves)rounded, (Halves)rounded, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23,
                                           25, 27, 29, 31));
}

inline Floats widen(const math::Float16* from) { return _mm512_cvtph_ps(load<__m256i>(from)); }

// The processor's rounding keeps what a NaN carries; store_as has one NaN.
template <bool kPast>
inline void narrow(Floats value, math::Float16* to) {
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i one_nan = (__m512i)(((Words)value & 0x80000000u) | 0x7FC00000u);
  const __m512i clean = _mm512_mask_mov_epi32((__m512i)value, nan, one_nan);
  store<kPast>(to, _mm512_cvtps_ph((__m512)clean, _MM_FROUND_TO_NEAREST_INT));
}

#elif POSENC_DOUBLES == 4

inline Doubles fused(Doubles a, Doubles b, Doubles c) { return _mm256_fmadd_pd(a, b, c); }

inline HalfFloats nearest_floats(Doubles value) { return _mm256_cvtpd_ps(value); }

inline UnsignedLongs product_of_halves(UnsignedLongs a, UnsignedLongs b) {
  return (UnsignedLongs)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}

inline Floats concatenate(HalfFloats a, HalfFloats b) { return _mm256_insertf128_ps(_mm256_castps128_ps256(a), b, 1); }

inline Floats interleave(HalfFloats a, HalfFloats b) {
  return concatenate(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
}

inline Doubles interleave_low(Doubles a, Doubles b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline Doubles interleave_high(Doubles a, Doubles b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }

inline Floats widen(const math::BFloat16* from) {
  return (Floats)_mm256_slli_epi32(_mm256_cvtepu16_epi32(load<__m128i>(from)), 16);
}

template <bool kPast>
inline void narrow(Floats value, math::BFloat16* to) {
  const Words bits = (Words)value;
  const Words even = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
  const __m256i rounded = (__m256i)(is_nan(value) ? Words{} + 0x7FC0u : even);
  store<kPast>(to, _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1)));
}

inline Floats widen(const math::Float16* from) { return _mm256_cvtph_ps(load<__m128i>(from)); }

// As above.
template <bool kPast>
inline void narrow(Floats value, math::Float16* to) {
  const Words one_nan = ((Words)value & 0x80000000u) | 0x7FC00000u;
  store<kPast>(to, _mm256_cvtps_ph((Floats)(is_nan(value) ? one_nan : (Words)value), _MM_FROUND_TO_NEAREST_INT));
}

inline bool any_nan(Floats a, Floats b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)) != 0; }

#else

inline Doubles fused(Doubles a, Doubles b, Doubles c) {
#if defined(__aarch64__)
  return vfmaq_f64(c, a, b);
#else
  return Doubles{std::fma(a[0], b[0], c[0]), std::fma(a[1], b[1], c[1])};
#endif
}

inline HalfFloats nearest_floats(Doubles value) { return __builtin_convertvector(value, HalfFloats); }

inline UnsignedLongs product_of_halves(UnsignedLongs a, UnsignedLongs b) {
#if defined(__x86_64__)
  return (UnsignedLongs)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
#endif
}

inline Floats concatenate(HalfFloats a, HalfFloats b) { return __builtin_shufflevector(a, b, 0, 1, 2, 3); }
inline Floats interleave(HalfFloats a, HalfFloats b) { return __builtin_shufflevector(a, b, 0, 2, 1, 3); }
inline Doubles interleave_low(Doubles a, Doubles b) { return __builtin_shufflevector(a, b, 0, 2); }
inline Doubles interleave_high(Doubles a, Doubles b) { return __builtin_shufflevector(a, b, 1, 3); }

inline Floats widen(const math::BFloat16* from) {
  return (Floats)(__builtin_convertvector(load<Shorts>(from), Words) << 16);
}

template <bool kPast>
inline void narrow(Floats value, math::BFloat16* to) {
  const Words bits = (Words)value;
  const Words even = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
  store<false>(to, __builtin_convertvector(is_nan(value) ? Words{} + 0x7FC0u : even, Shorts));
}

#if defined(__aarch64__)

inline Floats widen(const math::Float16* from) { return (Floats)vcvt_f32_f16(load<float16x4_t>(from)); }

// One NaN, as above.
template <bool kPast>
inline void narrow(Floats value, math::Float16* to) {
  const Words one_nan = ((Words)value & 0x80000000u) | 0x7FC00000u;
  store<false>(to, vcvt_f16_f32((float32x4_t)(is_nan(value) ? one_nan : (Words)value)));
}

#else

inline Floats widen(const math::Float16* from) {
  Floats value;
  for (std::int64_t i = 0; i < 4; ++i) value[i] = math::to_float(from[i]);
  return value;
}

template <bool kPast>
inline void narrow(Floats value, math::Float16* to) {
  for (std::int64_t i = 0; i < 4; ++i) to[i] = math::store_as<math::Float16>(value[i]);
}

#endif

#endif

// Twice as many at a time, in the order of elements that costs the instruction set least: for a 16-bit type of AVX2
// that of unpacking, 0 to 3 and 8 to 11 in `low`, else that of memory.

template <typename scalar_t>
struct TwoFloats {
  Floats low;
  Floats high;
};

template <typename scalar_t>
inline TwoFloats<scalar_t> load_two(const float* from) {
  return {load<Floats>(from), load<Floats>(from + 2 * kDoubles)};
}

/// The elements first[0], second[0], first[1], second[1], ..
template <typename scalar_t>
inline TwoFloats<scalar_t> alternate(const HalfFloats (&first)[2], const HalfFloats (&second)[2]) {
  return {interleave(first[0], second[0]), interleave(first[1], second[1])};
}

template <typename scalar_t>
inline TwoFloats<scalar_t> widen_two(const scalar_t* from) {
  return {widen(from), widen(from + 2 * kDoubles)};
}

template <bool kPast, typename scalar_t>
inline void narrow_two(const TwoFloats<scalar_t>& value, scalar_t* to) {
  narrow<kPast>(value.low, to);
  narrow<kPast>(value.high, to + 2 * kDoubles);
}

#if POSENC_DOUBLES == 4

template <>
inline TwoFloats<math::BFloat16> load_two(const float* from) {
  const auto halves = [](const float* a, const float* b) {
    return concatenate(load<HalfFloats>(a), load<HalfFloats>(b));
  };
  return {halves(from, from + 8), halves(from + 4, from + 12)};
}

template <>
inline TwoFloats<math::BFloat16> alternate(const HalfFloats (&first)[2], const HalfFloats (&second)[2]) {
  const Floats f = concatenate(first[0], first[1]), s = concatenate(second[0], second[1]);
  return {_mm256_unpacklo_ps(f, s), _mm256_unpackhi_ps(f, s)};
}

template <>
inline TwoFloats<math::BFloat16> widen_two(const math::BFloat16* from) {
  const __m256i bits = load<__m256i>(from), zero = _mm256_setzero_si256();
  return {(Floats)_mm256_unpacklo_epi16(zero, bits), (Floats)_mm256_unpackhi_epi16(zero, bits)};
}

template <bool kPast>
inline void narrow_two(const TwoFloats<math::BFloat16>& value, math::BFloat16* to) {
  const auto nearest = [](Floats v) { return ((Words)v + 0x7FFFu + ((Words)v >> 16 & 1u)) >> 16; };
  Words low = nearest(value.low), high = nearest(value.high);
  if (__builtin_expect(any_nan(value.low, value.high), 0)) {
    low = is_nan(value.low) ? Words{} + 0x7FC0u : low;
    high = is_nan(value.high) ? Words{} + 0x7FC0u : high;
  }
  store<kPast>(to, _mm256_packus_epi32((__m256i)low, (__m256i)high));
}

template <bool kPast>
inline void narrow_two(const TwoFloats<math::Float16>& value, math::Float16* to) {
  if (__builtin_expect(any_nan(value.low, value.high), 0)) {
    narrow<kPast>(value.low, to);
    return narrow<kPast>(value.high, to + 2 * kDoubles);
  }
  store<kPast>(to, _mm256_cvtps_ph(value.low, _MM_FROUND_TO_NEAREST_INT));
  store<kPast>(to + 2 * kDoubles, _mm256_cvtps_ph(value.high, _MM_FROUND_TO_NEAREST_INT));
}

#endif
