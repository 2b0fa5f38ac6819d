#include "table/engine_home.hpp"

#include <bit>
#include <limits>
#include <stdexcept>

namespace pyroute {
namespace {

struct Word {
  const char* name;
  Field field;
};

std::span<const Word> words_of(Engine engine) {
  static constexpr Word spark[] = {
      {"boolean", Field::boolean},     {"tinyint", Field::int8}, {"smallint", Field::int16},
      {"int", Field::int32},           {"bigint", Field::int64}, {"date", Field::date},
      {"timestamp", Field::timestamp}, {"string", Field::text},  {"binary", Field::bytes}};
  static constexpr Word storm[] = {{"boolean", Field::boolean}, {"byte", Field::int8},
                                   {"short", Field::int16},     {"int", Field::int32},
                                   {"long", Field::int64},      {"string", Field::text},
                                   {"bytes", Field::bytes}};
  static constexpr Word kafka[] = {{"short", Field::int16}, {"integer", Field::int32},
                                   {"long", Field::int64},  {"string", Field::text},
                                   {"bytes", Field::bytes}, {"uuid", Field::text}};
  static constexpr Word flink[] = {{"boolean", Field::boolean}, {"byte", Field::int8},
                                   {"short", Field::int16},     {"int", Field::int32},
                                   {"long", Field::int64},      {"string", Field::text}};
  switch (engine) {
    case Engine::spark:
      return spark;
    case Engine::storm:
      return storm;
    case Engine::kafka:
      return kafka;
    case Engine::flink:
      return flink;
  }
  return {};
}

Kind kind_of(Field field) noexcept {
  switch (field) {
    case Field::boolean:
      return Kind::boolean;
    case Field::date:
      return Kind::date;
    case Field::timestamp:
      return Kind::timestamp;
    case Field::text:
      return Kind::text;
    case Field::bytes:
      return Kind::bytes;
    default:
      return Kind::integer;
  }
}

void check_range(Field field, std::int64_t number) {
  const int bits = field == Field::int8 ? 8 : field == Field::int16 ? 16 : 32;
  if (field == Field::int64 || field == Field::timestamp || field == Field::boolean) return;
  const std::int64_t most = (std::int64_t{1} << (bits - 1)) - 1;
  if (number < -most - 1 || number > most)
    throw std::invalid_argument("values: expected " + std::to_string(bits) +
                                "-bit integers for this home, got " + std::to_string(number));
}

// Spark's Murmur3_x86_32. Each tail byte is sign-extended and mixed as a word of its own, which
// standard Murmur3 does not do.
namespace murmur3 {
std::uint32_t mix(std::uint32_t h, std::uint32_t k) noexcept {
  k = std::rotl(k * 0xcc9e2d51u, 15) * 0x1b873593u;
  return std::rotl(h ^ k, 13) * 5 + 0xe6546b64u;
}
std::uint32_t avalanche(std::uint32_t h) noexcept {
  h = (h ^ h >> 16) * 0x85ebca6bu;
  h = (h ^ h >> 13) * 0xc2b2ae35u;
  return h ^ h >> 16;
}
std::uint32_t hash_int(std::int64_t value, std::uint32_t seed) noexcept {
  return avalanche(mix(seed, static_cast<std::uint32_t>(value)) ^ 4);
}
std::uint32_t hash_long(std::int64_t value, std::uint32_t seed) noexcept {
  const auto wide = static_cast<std::uint64_t>(value);
  return avalanche(
      mix(mix(seed, static_cast<std::uint32_t>(wide)), static_cast<std::uint32_t>(wide >> 32)) ^ 8);
}
std::uint32_t hash_bytes(std::string_view data, std::uint32_t seed) noexcept {
  std::uint32_t h = seed;
  std::size_t i = 0;
  for (; i + 4 <= data.size(); i += 4) h = mix(h, xx::load<std::uint32_t>(data.data() + i));
  for (; i < data.size(); ++i)
    h = mix(h, static_cast<std::uint32_t>(
                   static_cast<std::int32_t>(static_cast<signed char>(data[i]))));
  return avalanche(h ^ static_cast<std::uint32_t>(data.size()));
}
}  // namespace murmur3

std::uint32_t murmur2(std::string_view data) noexcept {
  constexpr std::uint32_t m = 0x5bd1e995u;
  std::uint32_t h = 0x9747b28cu ^ static_cast<std::uint32_t>(data.size());
  std::size_t i = 0;
  for (; i + 4 <= data.size(); i += 4) {
    std::uint32_t k = xx::load<std::uint32_t>(data.data() + i) * m;
    k = (k ^ k >> 24) * m;
    h = h * m ^ k;
  }
  if (i < data.size()) {
    for (std::size_t j = data.size(); j-- > i;)
      h ^= static_cast<std::uint32_t>(static_cast<unsigned char>(data[j])) << (8 * (j - i));
    h *= m;
  }
  h = (h ^ h >> 13) * m;
  return h ^ h >> 15;
}

// String.hashCode: over UTF-16 units, of text that is UTF-8 here.
std::uint32_t java_text(std::string_view text) noexcept {
  std::uint32_t h = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) {
      return at < text.size() ? static_cast<std::uint32_t>(static_cast<unsigned char>(text[at]))
                              : 0u;
    };
    const std::uint32_t lead = byte(i);
    if (lead < 0x80) {
      h = 31 * h + lead;
      i += 1;
    } else if (lead < 0xe0) {
      h = 31 * h + ((lead & 0x1f) << 6 | (byte(i + 1) & 0x3f));
      i += 2;
    } else if (lead < 0xf0) {
      h = 31 * h + ((lead & 0x0f) << 12 | (byte(i + 1) & 0x3f) << 6 | (byte(i + 2) & 0x3f));
      i += 3;
    } else {
      const std::uint32_t point = ((lead & 0x07) << 18 | (byte(i + 1) & 0x3f) << 12 |
                                   (byte(i + 2) & 0x3f) << 6 | (byte(i + 3) & 0x3f)) -
                                  0x10000;
      h = 31 * h + (0xd800 + (point >> 10));
      h = 31 * h + (0xdc00 + (point & 0x3ff));
      i += 4;
    }
  }
  return h;
}

std::uint32_t java_hash(const Value& value, Field field) noexcept {
  if (value.kind == Kind::null) return 0;
  switch (field) {
    case Field::boolean:
      return value.number != 0 ? 1231 : 1237;
    case Field::int64: {
      const auto wide = static_cast<std::uint64_t>(value.number);
      return static_cast<std::uint32_t>(wide ^ wide >> 32);
    }
    case Field::text:
      return java_text(value.bytes);
    case Field::bytes: {
      std::uint32_t h = 1;
      for (const char byte : value.bytes)
        h = 31 * h +
            static_cast<std::uint32_t>(static_cast<std::int32_t>(static_cast<signed char>(byte)));
      return h;
    }
    default:
      return static_cast<std::uint32_t>(value.number);
  }
}

TaskId floor_mod(std::uint32_t hash, TaskId tasks) noexcept {
  const std::int32_t rest = static_cast<std::int32_t>(hash) % tasks;
  return rest < 0 ? rest + tasks : rest;
}

std::uint32_t flink_murmur(std::uint32_t code) noexcept {
  code = murmur3::avalanche(murmur3::mix(0, code) ^ 4);
  const auto signed_code = static_cast<std::int32_t>(code);
  if (signed_code == std::numeric_limits<std::int32_t>::min()) return 0;
  return static_cast<std::uint32_t>(signed_code < 0 ? -signed_code : signed_code);
}

}  // namespace

EngineHome::EngineHome(Engine engine, std::int64_t tasks, const std::vector<std::string>& types,
                       std::int64_t max_parallelism)
    : engine_(engine), max_parallelism_(0) {
  if (tasks < 1 || tasks > std::numeric_limits<TaskId>::max())
    throw std::invalid_argument("n: expected 1 to 2147483647, got " + std::to_string(tasks));
  tasks_ = static_cast<TaskId>(tasks);
  if (types.empty() || types.size() > 25 || (engine == Engine::kafka && types.size() != 1))
    throw std::invalid_argument(
        "key_type: expected " +
        std::string(engine == Engine::kafka ? "one type" : "1 to 25 types") + ", got " +
        std::to_string(types.size()));
  for (const std::string& type : types) {
    std::string known;
    bool found = false;
    for (const Word& word : words_of(engine)) {
      known += (known.empty() ? "" : ", ") + std::string(word.name);
      if (type != word.name) continue;
      fields_.push_back(word.field);
      found = true;
    }
    if (!found) throw std::invalid_argument("key_type: expected one of " + known + ", got " + type);
  }
  if (engine == Engine::flink) {
    if (max_parallelism < tasks || max_parallelism > 32768)
      throw std::invalid_argument("max_parallelism: expected n to 32768, got " +
                                  std::to_string(max_parallelism));
    max_parallelism_ = static_cast<std::int32_t>(max_parallelism);
  }
}

std::vector<std::string> EngineHome::types() const {
  std::vector<std::string> out;
  for (const Field field : fields_) {
    for (const Word& word : words_of(engine_)) {
      if (word.field != field) continue;
      out.emplace_back(word.name);
      break;  // Kafka's uuid is its string
    }
  }
  return out;
}

void EngineHome::expect(const Batch& values) const {
  if (values.size() == 0) return;
  Kinds want;
  for (const Field field : fields_) want.push_back(kind_of(field));
  if (values.arity() == want.size() && values.kinds()[0] != Kind::identity) {
    bool fits = true;
    for (std::size_t i = 0; i < want.size(); ++i)
      fits = fits && (values.kinds()[i] == Kind::null || values.kinds()[i] == want[i]);
    if (fits) return;
  }
  throw TypeMismatch("values: expected " + describe(want) + " for this home, got " +
                     describe(values.kinds()) +
                     (values.kinds()[0] == Kind::identity
                          ? " (an engine's home is computed from values, not from ids)"
                          : ""));
}

TaskId EngineHome::home(const Value* values) const {
  std::uint32_t hash = engine_ == Engine::spark ? 42 : engine_ == Engine::storm ? 1 : 0;
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const Value& value = values[i];
    const Field field = fields_[i];
    if (is_number(value.kind)) check_range(field, value.number);
    switch (engine_) {
      case Engine::spark:
        if (value.kind == Kind::null) break;
        if (field == Field::text || field == Field::bytes)
          hash = murmur3::hash_bytes(value.bytes, hash);
        else if (field == Field::int64 || field == Field::timestamp)
          hash = murmur3::hash_long(value.number, hash);
        else
          hash = murmur3::hash_int(value.number, hash);
        break;
      case Engine::storm:
        hash = 31 * hash + java_hash(value, field);
        break;
      case Engine::kafka:
      case Engine::flink:
        if (value.kind == Kind::null)
          throw std::invalid_argument("values: expected no null for this home, got one");
        if (engine_ == Engine::flink) {
          hash = (i == 0 ? 0 : 31 * hash) + java_hash(value, field);
        } else if (field == Field::text || field == Field::bytes) {
          hash = murmur2(value.bytes);
        } else {
          const unsigned size = field == Field::int16 ? 2 : field == Field::int32 ? 4 : 8;
          char buffer[8];
          for (unsigned b = 0; b < size; ++b)
            buffer[b] = static_cast<char>(value.number >> (8 * (size - 1 - b)));
          hash = murmur2({buffer, size});
        }
        break;
    }
  }
  switch (engine_) {
    case Engine::kafka:
      return static_cast<TaskId>(hash & 0x7fffffffu) % tasks_;
    case Engine::flink: {
      const auto most = static_cast<std::uint32_t>(max_parallelism_);
      return static_cast<TaskId>(flink_murmur(hash) % most * static_cast<std::uint32_t>(tasks_) /
                                 most);
    }
    default:
      return floor_mod(hash, tasks_);
  }
}

void EngineHome::homes(const Batch& values, std::size_t begin, std::size_t count,
                       TaskId* out) const {
  std::vector<Value> row(fields_.size());
  std::vector<Scratch> scratch(fields_.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t c = 0; c < row.size(); ++c) row[c] = values.value(c, begin + i, scratch[c]);
    out[i] = home(row.data());
  }
}

std::uint64_t EngineHome::fingerprint() const { return hash_bytes(to_bytes()); }

//   engine u8, tasks varint, max_parallelism varint, number of fields u8, each field u8
std::string EngineHome::to_bytes() const {
  Writer to(Kernel::engine_home, 1);
  to.u8(static_cast<std::uint8_t>(engine_));
  to.varint(static_cast<std::uint64_t>(tasks_));
  to.varint(static_cast<std::uint64_t>(max_parallelism_));
  to.u8(static_cast<std::uint8_t>(fields_.size()));
  for (const Field field : fields_) to.u8(static_cast<std::uint8_t>(field));
  return std::move(to).finish();
}

EngineHome EngineHome::from_bytes(std::string_view data) {
  Reader from(data, Kernel::engine_home, 1);
  const std::uint8_t engine = from.u8();
  Reader::check(engine <= static_cast<std::uint8_t>(Engine::flink), "engine", "a known one");
  const auto tasks = static_cast<std::int64_t>(from.varint("tasks", 0x7fffffff));
  const auto most = static_cast<std::int64_t>(from.varint("max_parallelism", 32768));
  std::vector<std::string> types;
  for (std::uint8_t left = from.u8(); left > 0; --left) {
    const std::uint8_t field = from.u8();
    for (const Word& word : words_of(static_cast<Engine>(engine))) {
      if (static_cast<std::uint8_t>(word.field) != field) continue;
      types.emplace_back(word.name);
      break;
    }
  }
  from.end();
  try {
    return EngineHome(static_cast<Engine>(engine), tasks, types, most);
  } catch (const std::invalid_argument& error) {
    throw FormatError(error.what());
  }
}

}  // namespace pyroute
