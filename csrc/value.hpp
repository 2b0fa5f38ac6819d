// One value of a grouping column, its kind, and its encoding; the original value behind a Key.
//
// A value is null, an integer-like number (integer, boolean, date in days, timestamp in
// microseconds) or bytes (text as UTF-8, bytes). `identity` is a key that came as a bare id.
//
// Encoding of a key's value, used to keep names beside ids and in every byte format:
//   arity u8 (number of columns, 1 to 255), then per column: kind u8 and
//   nothing (null) | 8 bytes (integer-like, identity) | varint size + bytes (text, bytes)
// hash_named() gives the key of an encoding, so a name can be checked against its id.
//
// Threads: plain values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bytes.hpp"
#include "hash.hpp"

namespace pyroute {

enum class Kind : std::uint8_t {
  null = 0,
  integer = 1,
  boolean = 2,
  date = 3,
  timestamp = 4,
  text = 5,
  bytes = 6,
  identity = 7,
};

[[nodiscard]] constexpr bool is_number(Kind kind) noexcept {
  return kind >= Kind::integer && kind <= Kind::timestamp;
}

struct Value {
  Kind kind = Kind::null;
  std::int64_t number = 0;      // integer-like; an identity's 64 bits
  std::string_view bytes = {};  // text and bytes; valid as long as what it was read from

  [[nodiscard]] Key hash(Key seed = kSeed) const noexcept {
    if (kind == Kind::null) return seed;
    if (kind == Kind::identity) return static_cast<Key>(number);
    return is_number(kind) ? hash_int64(number, seed) : hash_bytes(bytes, seed);
  }
  [[nodiscard]] friend bool operator==(const Value&, const Value&) = default;
};

// The kinds of a key's columns. Empty: nothing seen yet. null: only nulls seen yet.
using Kinds = std::vector<Kind>;

// The common kinds of what was seen and what comes; throws TypeMismatch when they contradict.
[[nodiscard]] Kinds unify(const Kinds& seen, const Kinds& next, const char* name);
[[nodiscard]] std::string describe(const Kinds& kinds);

// Keys of these kinds carry their value in the id (hash_int64 is one to one): no name is kept.
[[nodiscard]] inline bool self_naming(const Kinds& kinds) noexcept {
  return kinds.size() == 1 && kinds[0] != Kind::text && kinds[0] != Kind::bytes;
}
[[nodiscard]] Value name_from_id(const Kinds& kinds, Key key) noexcept;
// Throws FormatError where ids read from elsewhere cannot be of these kinds: there are few nulls
// and booleans.
void check_ids(const Kinds& kinds, const std::vector<Key>& ids);

void encode_value(const Value& value, std::string& out);
// Appends the values of one encoding; false when it is not one.
[[nodiscard]] bool decode_values(std::string_view encoded, std::vector<Value>& out);
[[nodiscard]] Key hash_values(const std::vector<Value>& values) noexcept;
// The key of an encoding read from elsewhere; nothing where it is none, or not of these kinds.
[[nodiscard]] std::optional<Key> hash_named(const Kinds& kinds, std::string_view encoded);

void write_kinds(Writer& to, const Kinds& kinds);
[[nodiscard]] Kinds read_kinds(Reader& from);

}  // namespace pyroute
