// The one identity of a key: Spark's xxhash64 with seed 42. Fixed for ever: a change here reroutes
// every deployed stream (docs/decisions/0001-key-identity.md).
//
//   integer-like   hash_int64(value, seed): XXH64 of the eight little-endian bytes of the bigint
//   text, bytes    hash_bytes(data, size, seed): XXH64 of the bytes
//   null           leaves the seed as it is, so a null key is 42
//   several columns: each hash is the seed of the next, and after every column that is null
//                  hash_int64(1, seed) follows, so ('x', null) and (null, 'x') differ
//
// Guarantees: spark_vectors (equal to a real Spark on the golden file), one_to_one (hash_int64 is a
// permutation of 64-bit values under every seed; unhash_int64 is its inverse),
// simd_equal (every SIMD path gives equal ids).
// Cost: 5 multiplications per integer, 7 and more per text; eight at a time with AVX-512.
// Threads: pure functions.
#pragma once

#include <bit>
#include <cstring>
#include <string_view>

#include "ids.hpp"

namespace pyroute {

inline constexpr Key kSeed = 42;

namespace xx {
inline constexpr std::uint64_t p1 = 0x9E3779B185EBCA87u;
inline constexpr std::uint64_t p2 = 0xC2B2AE3D27D4EB4Fu;
inline constexpr std::uint64_t p3 = 0x165667B19E3779F9u;
inline constexpr std::uint64_t p4 = 0x85EBCA77C2B2AE63u;
inline constexpr std::uint64_t p5 = 0x27D4EB2F165667C5u;

inline constexpr std::uint64_t finish(std::uint64_t h) noexcept {
  h ^= h >> 33;
  h *= p2;
  h ^= h >> 29;
  h *= p3;
  h ^= h >> 32;
  return h;
}

inline constexpr std::uint64_t word(std::uint64_t h, std::uint64_t w) noexcept {
  h ^= std::rotl(w * p2, 31) * p1;
  return std::rotl(h, 27) * p1 + p4;
}

template <class T>
inline T load(const char* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
}  // namespace xx

[[nodiscard]] inline constexpr Key hash_int64(std::int64_t value, Key seed = kSeed) noexcept {
  return xx::finish(xx::word(seed + xx::p5 + 8, static_cast<std::uint64_t>(value)));
}

// The value whose hash_int64 under this seed is key.
[[nodiscard]] std::int64_t unhash_int64(Key key, Key seed = kSeed) noexcept;

// Inputs of 32 bytes and more; the caller of hash_bytes never needs it.
[[nodiscard]] std::uint64_t hash_long_prefix(const char* data, std::size_t size, Key seed) noexcept;

[[nodiscard]] inline Key hash_bytes(const char* data, std::size_t size, Key seed = kSeed) noexcept {
  std::uint64_t h;
  const char* at = data;
  std::size_t left = size;
  if (size >= 32) [[unlikely]] {
    h = hash_long_prefix(data, size, seed);
    at += size & ~std::size_t{31};
    left = size & 31;
  } else {
    h = seed + xx::p5;
  }
  h += size;
  for (; left >= 8; left -= 8, at += 8) h = xx::word(h, xx::load<std::uint64_t>(at));
  if (left >= 4) {
    h ^= xx::load<std::uint32_t>(at) * xx::p1;
    h = std::rotl(h, 23) * xx::p2 + xx::p3;
    at += 4;
    left -= 4;
  }
  for (; left > 0; --left, ++at) {
    h ^= static_cast<unsigned char>(*at) * xx::p5;
    h = std::rotl(h, 11) * xx::p1;
  }
  return xx::finish(h);
}

[[nodiscard]] inline Key hash_bytes(std::string_view text, Key seed = kSeed) noexcept {
  return hash_bytes(text.data(), text.size(), seed);
}

// What a null column adds in a key of several columns.
[[nodiscard]] inline constexpr Key hash_null_mark(Key seed) noexcept { return hash_int64(1, seed); }

// keys[i] = hash_bytes(texts[i], sizes[i], keys[i]), eight short texts at a time where the machine
// can.
void hash_texts(const char* const* texts, const std::uint64_t* sizes, std::size_t count,
                Key* keys) noexcept;

// The same for texts that lie one after another, text i from offsets[i] to offsets[i + 1]; Offset is
// std::int32_t or std::int64_t.
template <class Offset>
void hash_slices(const char* data, const Offset* offsets, std::size_t count, Key* keys) noexcept;

// hash_int64 of a whole block with the seed 42, by the widest SIMD path in force (simd.hpp).
void hash_int64s(const std::int64_t* values, std::size_t count, Key* out) noexcept;

}  // namespace pyroute
