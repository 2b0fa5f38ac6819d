#include "hash.hpp"

#include "simd.hpp"

#if PYROUTE_X86
#include <immintrin.h>
#endif

namespace pyroute {
namespace {

constexpr std::uint64_t inverse(std::uint64_t odd) noexcept {
  std::uint64_t x = odd;  // Newton's iteration doubles the correct low bits: 3, 6, 12, 24, 48, 96
  for (int i = 0; i < 5; ++i) x *= 2 - odd * x;
  return x;
}
static_assert(inverse(xx::p1) * xx::p1 == 1 && inverse(xx::p2) * xx::p2 == 1 &&
              inverse(xx::p3) * xx::p3 == 1);

void hash_portable(const std::int64_t* values, std::size_t count, Key* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = hash_int64(values[i]);
}

#if PYROUTE_X86
// The same loop, which the compiler vectorises with 64-bit multiplications; there is no second
// definition to keep equal. AVX2 has none and gains nothing (2.0 against 1.7 ns).
PYROUTE_AVX512 void hash_avx512(const std::int64_t* values, std::size_t count, Key* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = hash_int64(values[i]);
}

// GCC 12 warns about its own _mm512_undefined (bug 105593), and without optimisation about the
// casts in its gather macros.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

// hash_bytes of eight texts, each shorter than 32 bytes: the lanes that have a word, a half word or
// a byte left take that step, the others wait. A step that no lane needs is skipped. Nothing beyond
// a text is read: words are gathered where there are eight more bytes, and the last one to three
// bytes come from the four that end the text, or one by one where it is shorter.
PYROUTE_AVX512 inline void hash_eight(__m512i at, __m512i size, Key* keys) noexcept {
  const __m512i p1 = _mm512_set1_epi64(static_cast<long long>(xx::p1)),
                p2 = _mm512_set1_epi64(static_cast<long long>(xx::p2)),
                p3 = _mm512_set1_epi64(static_cast<long long>(xx::p3)),
                p4 = _mm512_set1_epi64(static_cast<long long>(xx::p4)),
                p5 = _mm512_set1_epi64(static_cast<long long>(xx::p5));
  __m512i h = _mm512_add_epi64(_mm512_add_epi64(_mm512_loadu_si512(keys), p5), size);
  for (int word = 0; word < 3; ++word) {
    const __mmask8 has = _mm512_cmpge_epu64_mask(size, _mm512_set1_epi64(8 * (word + 1)));
    if (has == 0) break;
    const __m512i w = _mm512_mask_i64gather_epi64(
        _mm512_setzero_si512(), has, _mm512_add_epi64(at, _mm512_set1_epi64(8 * word)), nullptr, 1);
    const __m512i k = _mm512_mullo_epi64(_mm512_rol_epi64(_mm512_mullo_epi64(w, p2), 31), p1);
    const __m512i mixed = _mm512_rol_epi64(_mm512_xor_si512(h, k), 27);
    h = _mm512_mask_add_epi64(h, has, _mm512_mullo_epi64(mixed, p1), p4);
  }
  const __mmask8 half = _mm512_test_epi64_mask(size, _mm512_set1_epi64(4));
  if (half != 0) {
    const __m512i from = _mm512_add_epi64(at, _mm512_and_si512(size, _mm512_set1_epi64(~7LL)));
    const __m512i w = _mm512_cvtepu32_epi64(
        _mm512_mask_i64gather_epi32(_mm256_setzero_si256(), half, from, nullptr, 1));
    const __m512i mixed = _mm512_rol_epi64(_mm512_xor_si512(h, _mm512_mullo_epi64(w, p1)), 23);
    h = _mm512_mask_add_epi64(h, half, _mm512_mullo_epi64(mixed, p2), p3);
  }
  const __m512i left = _mm512_and_si512(size, _mm512_set1_epi64(3));
  const __mmask8 tail = _mm512_test_epi64_mask(left, left);
  if (tail != 0) {
    const __mmask8 far = _mm512_mask_cmpge_epu64_mask(tail, size, _mm512_set1_epi64(4));
    const __m512i end = _mm512_sub_epi64(_mm512_add_epi64(at, size), _mm512_set1_epi64(4));
    __m512i bytes = _mm512_cvtepu32_epi64(
        _mm512_mask_i64gather_epi32(_mm256_setzero_si256(), far, end, nullptr, 1));
    const __m512i spare = _mm512_slli_epi64(_mm512_sub_epi64(_mm512_set1_epi64(4), left), 3);
    bytes = _mm512_srlv_epi64(bytes, spare);
    if (far != tail) {
      alignas(64) std::uint64_t few[8];
      alignas(64) std::uint64_t sizes[8];
      alignas(64) const char* texts[8];
      _mm512_store_si512(few, bytes);
      _mm512_store_si512(sizes, size);
      _mm512_store_si512(texts, at);
      for (unsigned lane = 0; lane < 8; ++lane) {
        if ((tail & ~far) >> lane & 1) {
          few[lane] = 0;
          for (std::uint64_t i = sizes[lane]; i-- > 0;)
            few[lane] = few[lane] << 8 | static_cast<unsigned char>(texts[lane][i]);
        }
      }
      bytes = _mm512_load_si512(few);
    }
    for (int step = 0; step < 3; ++step) {
      const __mmask8 has = _mm512_cmpgt_epu64_mask(left, _mm512_set1_epi64(step));
      if (has == 0) break;
      const __m512i byte = _mm512_and_si512(bytes, _mm512_set1_epi64(0xff));
      bytes = _mm512_srli_epi64(bytes, 8);
      const __m512i mixed = _mm512_rol_epi64(_mm512_xor_si512(h, _mm512_mullo_epi64(byte, p5)), 11);
      h = _mm512_mask_mullo_epi64(h, has, mixed, p1);
    }
  }
  h = _mm512_mullo_epi64(_mm512_xor_si512(h, _mm512_srli_epi64(h, 33)), p2);
  h = _mm512_mullo_epi64(_mm512_xor_si512(h, _mm512_srli_epi64(h, 29)), p3);
  h = _mm512_xor_si512(h, _mm512_srli_epi64(h, 32));
  _mm512_storeu_si512(keys, h);
}

// load(i, at, size): where eight texts from i on lie and how long they are.
template <class Load>
PYROUTE_AVX512 inline std::size_t hash_by_eight(std::size_t count, Key* keys,
                                                const Load& load) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m512i at, size;
    load(i, at, size);
    if (_mm512_cmpge_epu64_mask(size, _mm512_set1_epi64(32)) == 0) {
      hash_eight(at, size, keys + i);
      continue;
    }
    alignas(64) std::uint64_t sizes[8];
    alignas(64) const char* texts[8];
    _mm512_store_si512(sizes, size);
    _mm512_store_si512(texts, at);
    for (std::size_t lane = 0; lane < 8; ++lane)
      keys[i + lane] = hash_bytes(texts[lane], sizes[lane], keys[i + lane]);
  }
  return i;
}

struct LoadTexts {
  const char* const* texts;
  const std::uint64_t* sizes;
  PYROUTE_AVX512 void operator()(std::size_t i, __m512i& at, __m512i& size) const noexcept {
    at = _mm512_loadu_si512(texts + i);
    size = _mm512_loadu_si512(sizes + i);
  }
};

template <class Offset>
struct LoadSlices {
  const char* data;
  const Offset* offsets;
  PYROUTE_AVX512 static __m512i wide(const std::int32_t* from) noexcept {
    return _mm512_cvtepi32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  PYROUTE_AVX512 static __m512i wide(const std::int64_t* from) noexcept {
    return _mm512_loadu_si512(from);
  }
  PYROUTE_AVX512 void operator()(std::size_t i, __m512i& at, __m512i& size) const noexcept {
    const __m512i from = wide(offsets + i);
    at = _mm512_add_epi64(from, _mm512_set1_epi64(reinterpret_cast<long long>(data)));
    size = _mm512_sub_epi64(wide(offsets + i + 1), from);
  }
};

template <class Load>
PYROUTE_AVX512 std::size_t hash_avx512(const Load& load, std::size_t count, Key* keys) noexcept {
  return hash_by_eight(count, keys, load);
}
#pragma GCC diagnostic pop
#endif

}  // namespace

void hash_texts(const char* const* texts, const std::uint64_t* sizes, std::size_t count,
                Key* keys) noexcept {
  std::size_t done = 0;
#if PYROUTE_X86
  if (simd() == Simd::avx512) done = hash_avx512(LoadTexts{texts, sizes}, count, keys);
#endif
  for (; done < count; ++done) keys[done] = hash_bytes(texts[done], sizes[done], keys[done]);
}

template <class Offset>
void hash_slices(const char* data, const Offset* offsets, std::size_t count, Key* keys) noexcept {
  std::size_t done = 0;
#if PYROUTE_X86
  if (simd() == Simd::avx512) done = hash_avx512(LoadSlices<Offset>{data, offsets}, count, keys);
#endif
  for (; done < count; ++done)
    keys[done] =
        hash_bytes(data + offsets[done],
                   static_cast<std::size_t>(offsets[done + 1] - offsets[done]), keys[done]);
}

template void hash_slices(const char*, const std::int32_t*, std::size_t, Key*) noexcept;
template void hash_slices(const char*, const std::int64_t*, std::size_t, Key*) noexcept;

std::int64_t unhash_int64(Key key, Key seed) noexcept {
  std::uint64_t h = key;
  h ^= h >> 32;
  h *= inverse(xx::p3);
  h ^= (h >> 29) ^ (h >> 58);
  h *= inverse(xx::p2);
  h ^= h >> 33;
  h = std::rotr((h - xx::p4) * inverse(xx::p1), 27);
  h ^= seed + xx::p5 + 8;
  h = std::rotr(h * inverse(xx::p1), 31) * inverse(xx::p2);
  return static_cast<std::int64_t>(h);
}

std::uint64_t hash_long_prefix(const char* data, std::size_t size, Key seed) noexcept {
  std::uint64_t lane[4] = {seed + xx::p1 + xx::p2, seed + xx::p2, seed, seed - xx::p1};
  const char* const end = data + (size & ~std::size_t{31});
  for (const char* at = data; at != end; at += 32)
    for (int i = 0; i < 4; ++i)
      lane[i] = std::rotl(lane[i] + xx::load<std::uint64_t>(at + 8 * i) * xx::p2, 31) * xx::p1;
  std::uint64_t h = std::rotl(lane[0], 1) + std::rotl(lane[1], 7) + std::rotl(lane[2], 12) +
                    std::rotl(lane[3], 18);
  for (const std::uint64_t v : lane) {
    h ^= std::rotl(v * xx::p2, 31) * xx::p1;
    h = h * xx::p1 + xx::p4;
  }
  return h;
}

void hash_int64s(const std::int64_t* values, std::size_t count, Key* out) noexcept {
#if PYROUTE_X86
  if (simd() == Simd::avx512) return hash_avx512(values, count, out);
#endif
  hash_portable(values, count, out);
}

}  // namespace pyroute
