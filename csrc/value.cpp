#include "value.hpp"

namespace pyroute {
namespace {

constexpr std::string_view kKindNames[] = {"null",      "integer", "boolean", "date",
                                           "timestamp", "text",    "bytes",   "identity"};

}  // namespace

std::string describe(const Kinds& kinds) {
  std::string out;
  for (const Kind kind : kinds) {
    if (!out.empty()) out += ", ";
    out += kKindNames[static_cast<std::size_t>(kind)];
  }
  return kinds.size() == 1 ? out : "(" + out + ")";
}

Kinds unify(const Kinds& seen, const Kinds& next, const char* name) {
  if (seen.empty()) return next;
  if (next.empty()) return seen;
  const auto mismatch = [&] {
    return TypeMismatch(std::string(name) + ": expected " + describe(seen) +
                        " as seen before, got " + describe(next));
  };
  if (seen.size() != next.size()) throw mismatch();
  Kinds out = seen;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] == Kind::null) out[i] = next[i];
    if (next[i] != Kind::null && next[i] != out[i]) throw mismatch();
  }
  return out;
}

Value name_from_id(const Kinds& kinds, Key key) noexcept {
  const Kind kind = kinds.empty() ? Kind::identity : kinds[0];
  if (kind == Kind::identity) return {kind, static_cast<std::int64_t>(key)};
  if (key == kSeed) return {};
  return {kind, unhash_int64(key)};
}

void check_ids(const Kinds& kinds, const std::vector<Key>& ids) {
  if (kinds != Kinds{Kind::null} && kinds != Kinds{Kind::boolean}) return;
  const bool boolean = kinds[0] == Kind::boolean;
  for (const Key id : ids)
    Reader::check(id == kSeed || (boolean && (id == hash_int64(0) || id == hash_int64(1))), "ids",
                  "those of nulls and booleans");
}

std::optional<Key> hash_named(const Kinds& kinds, std::string_view encoded) {
  std::vector<Value> values;
  if (!decode_values(encoded, values) || values.size() != kinds.size()) return std::nullopt;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i].kind != Kind::null && values[i].kind != kinds[i]) return std::nullopt;
  return hash_values(values);
}

void encode_value(const Value& value, std::string& out) {
  Writer to;
  to.u8(static_cast<std::uint8_t>(value.kind));
  if (value.kind == Kind::text || value.kind == Kind::bytes)
    to.sized(value.bytes);
  else if (value.kind != Kind::null)
    to.i64(value.number);
  out += to.payload();
}

bool decode_values(std::string_view encoded, std::vector<Value>& out) {
  try {
    Reader from(encoded);
    const std::uint8_t arity = from.u8();
    if (arity == 0) return false;
    for (std::uint8_t i = 0; i < arity; ++i) {
      const std::uint8_t kind = from.u8();
      if (kind > static_cast<std::uint8_t>(Kind::identity)) return false;
      Value value{static_cast<Kind>(kind)};
      if (value.kind == Kind::text || value.kind == Kind::bytes)
        value.bytes = from.sized("value");
      else if (value.kind != Kind::null)
        value.number = from.i64();
      if (value.kind == Kind::identity && arity != 1) return false;
      if (value.kind == Kind::boolean && value.number != 0 && value.number != 1) return false;
      out.push_back(value);
    }
    return from.left() == 0;
  } catch (const FormatError&) {
    return false;
  }
}

Key hash_values(const std::vector<Value>& values) noexcept {
  if (values.size() == 1) return values[0].hash();
  Key key = kSeed;
  for (const Value& value : values)
    key = value.kind == Kind::null ? hash_null_mark(key) : value.hash(key);
  return key;
}

void write_kinds(Writer& to, const Kinds& kinds) {
  to.u8(static_cast<std::uint8_t>(kinds.size()));
  for (const Kind kind : kinds) to.u8(static_cast<std::uint8_t>(kind));
}

Kinds read_kinds(Reader& from) {
  Kinds kinds(from.u8());
  for (Kind& kind : kinds) {
    const std::uint8_t got = from.u8();
    Reader::check(got <= static_cast<std::uint8_t>(Kind::identity), "kinds", "a known kind");
    kind = static_cast<Kind>(got);
  }
  if (kinds.size() > 1)
    for (const Kind kind : kinds)
      Reader::check(kind != Kind::identity, "kinds", "an identity alone");
  return kinds;
}

}  // namespace pyroute
