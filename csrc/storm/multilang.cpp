#include "storm/multilang.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <stdexcept>

#include "simd.hpp"

#if PYROUTE_X86
#include <immintrin.h>
#endif

namespace pyroute {
namespace {

constexpr std::string_view kEnd = "\nend\n";
constexpr std::string_view kSync = "{\"command\":\"sync\"}\nend\n";
constexpr std::string_view kHeartbeat = "__heartbeat";
constexpr std::size_t kMostDigits = 4000;  // Python reads no integer of more than 4300
constexpr int kMostDepth = 64;             // of arrays and objects in a tuple

// Pieces of the output, with room to be copied 32 bytes at a time.
struct Piece {
  std::size_t size;
  char bytes[64];
  constexpr explicit Piece(std::string_view text) : size(text.size()), bytes{} {
    for (std::size_t i = 0; i < text.size(); ++i) bytes[i] = text[i];
  }
};
constexpr Piece kEmit("{\"command\":\"emit\",\"anchors\":[");
constexpr Piece kAck("}\nend\n{\"command\":\"ack\",\"id\":");
constexpr Piece kLast("}\nend\n");

// Copies 32 bytes at a time, so up to 31 more than asked for are read and written.
[[gnu::always_inline]] inline char* put(char* to, const char* from, std::size_t size) noexcept {
  std::memcpy(to, from, 32);
  if (size > 32) [[unlikely]] {
    if (size >= 512) {
      std::memcpy(to, from, size);
    } else {
      for (std::size_t done = 32; done < size; done += 32) std::memcpy(to + done, from + done, 32);
    }
  }
  return to + size;
}
[[gnu::always_inline]] inline char* put(char* to, const Piece& piece) noexcept {
  std::memcpy(to, piece.bytes, 32);
  return to + piece.size;
}

// What is special in the next kWidth bytes of a text: stop has a bit for each quote, backslash and
// control character, high for each byte above 127.
struct Marks {
  std::uint32_t stop, high;
};

struct Portable {
  static constexpr std::size_t kWidth = 8;
  static constexpr std::uint64_t kOnes = 0x0101010101010101u, kHigh = 0x8080808080808080u;
  // The high bit of every byte of x that is 0. Exact: no borrow crosses a byte.
  static std::uint64_t zeros(std::uint64_t x) noexcept {
    return ~(((x & ~kHigh) + ~kHigh) | x) & kHigh;
  }
  static std::uint32_t gather(std::uint64_t high_bits) noexcept {
    return static_cast<std::uint32_t>((high_bits >> 7) * 0x0102040810204080u >> 56);
  }
  static Marks marks(const char* at) noexcept {
    const auto x = xx::load<std::uint64_t>(at);
    const std::uint64_t stop =
        zeros(x ^ (kOnes * '"')) | zeros(x ^ (kOnes * '\\')) | zeros(x & (kOnes * 0xe0));
    return {gather(stop), gather(x & kHigh)};
  }
  // Precondition: size <= 32; 32 bytes can be read from both.
  static bool equal(const char* a, const char* b, std::size_t size) noexcept {
    return std::memcmp(a, b, size) == 0;
  }
};

#if PYROUTE_X86
struct Avx2 {
  static constexpr std::size_t kWidth = 32;
  PYROUTE_AVX2 static Marks marks(const char* at) noexcept {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    const __m256i quote = _mm256_cmpeq_epi8(x, _mm256_set1_epi8('"'));
    const __m256i back = _mm256_cmpeq_epi8(x, _mm256_set1_epi8('\\'));
    const __m256i control = _mm256_cmpeq_epi8(_mm256_min_epu8(x, _mm256_set1_epi8(31)), x);
    const __m256i stop = _mm256_or_si256(_mm256_or_si256(quote, back), control);
    return {static_cast<std::uint32_t>(_mm256_movemask_epi8(stop)),
            static_cast<std::uint32_t>(_mm256_movemask_epi8(x))};
  }
  PYROUTE_AVX2 static bool equal(const char* a, const char* b, std::size_t size) noexcept {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a));
    const __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
    const auto same = static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, y)));
    return (~same & ((std::uint64_t{1} << size) - 1)) == 0;
  }
};
#endif

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

int hex_digit(char c) noexcept {
  if (is_digit(c)) return c - '0';
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

// The code unit of \uXXXX whose digits are at `at`, or -1.
int code_unit(const char* at) noexcept {
  int unit = 0;
  for (int i = 0; i < 4; ++i) {
    const int digit = hex_digit(at[i]);
    if (digit < 0) return -1;
    unit = unit * 16 + digit;
  }
  return unit;
}

// UTF-8 as Unicode defines it: shortest forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(const char* at, const char* end) noexcept {
  const auto byte = [&](std::ptrdiff_t i) { return static_cast<unsigned char>(at[i]); };
  const auto follows = [&](std::ptrdiff_t i) { return (byte(i) & 0xc0) == 0x80; };
  while (at < end) {
    const unsigned first = byte(0);
    const std::ptrdiff_t left = end - at;
    if (first < 0x80) {
      at += 1;
    } else if (first >= 0xc2 && first <= 0xdf) {
      if (left < 2 || !follows(1)) return false;
      at += 2;
    } else if (first >= 0xe0 && first <= 0xef) {
      if (left < 3 || !follows(1) || !follows(2)) return false;
      if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f)) return false;
      at += 3;
    } else if (first >= 0xf0 && first <= 0xf4) {
      if (left < 4 || !follows(1) || !follows(2) || !follows(3)) return false;
      if ((first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f)) return false;
      at += 4;
    } else {
      return false;
    }
  }
  return true;
}

void append_utf8(std::uint32_t point, std::string& out) {
  const auto add = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    add(point);
  } else if (point < 0x800) {
    add(0xc0 | point >> 6);
    add(0x80 | (point & 0x3f));
  } else if (point < 0x10000) {
    add(0xe0 | point >> 12);
    add(0x80 | (point >> 6 & 0x3f));
    add(0x80 | (point & 0x3f));
  } else {
    add(0xf0 | point >> 18);
    add(0x80 | (point >> 12 & 0x3f));
    add(0x80 | (point >> 6 & 0x3f));
    add(0x80 | (point & 0x3f));
  }
}

// Appends the text of a JSON string whose escapes are valid; false at a lone surrogate.
bool unescape(std::string_view raw, std::string& out) {
  const char* at = raw.data();
  const char* const end = at + raw.size();
  while (at < end) {
    if (*at != '\\') {
      out.push_back(*at++);
      continue;
    }
    const char kind = at[1];
    at += 2;
    if (kind != 'u') {
      constexpr std::string_view kFrom = "bfnrt", kTo = "\b\f\n\r\t";
      const std::size_t which = kFrom.find(kind);
      out.push_back(which == std::string_view::npos ? kind : kTo[which]);
      continue;
    }
    auto point = static_cast<std::uint32_t>(code_unit(at));
    at += 4;
    if (point >= 0xd800 && point < 0xe000) {
      if (point >= 0xdc00 || end - at < 6 || at[0] != '\\' || at[1] != 'u') return false;
      const auto low = static_cast<std::uint32_t>(code_unit(at + 2));
      if (low < 0xdc00 || low >= 0xe000) return false;
      point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
      at += 6;
    }
    append_utf8(point, out);
  }
  return true;
}

// The end of the message that starts at `at`, where it lies in the data; else null.
const char* find_end(const char* at, const char* limit) noexcept {
  while (at < limit) {
    at = static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(limit - at)));
    if (at == nullptr || limit - at < static_cast<std::ptrdiff_t>(kEnd.size())) return nullptr;
    if (std::memcmp(at, kEnd.data(), kEnd.size()) == 0) return at;
    ++at;
  }
  return nullptr;
}

}  // namespace

void Output::reserve(std::size_t more) {
  if (capacity_ - size_ >= more + kSlack && data_ != nullptr) return;
  const std::size_t capacity = std::max(2 * capacity_, size_ + more + kSlack);
  auto data = std::make_unique_for_overwrite<char[]>(capacity);
  if (size_ > 0) std::memcpy(data.get(), data_.get(), size_);
  data_ = std::move(data);
  capacity_ = capacity;
}

void Output::append(std::string_view text) {
  reserve(text.size());
  std::memcpy(end(), text.data(), text.size());
  size_ += text.size();
}

// Reads JSON at `at`. Every method leaves `at` after what it read, or returns false. Nothing is read
// beyond the padding: bytes of 0 follow the data, and no value contains one.
template <class Isa>
struct Splicer::Reader {
  const char* at;
  bool lenient;  // white space may stand between tokens

  struct Text {
    const char* begin;
    bool escaped = false;
  };

  [[gnu::always_inline]] void space() noexcept {
    if (lenient)
      while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r') ++at;
  }

  bool escape() noexcept {
    switch (at[1]) {
      case '"':
      case '\\':
      case '/':
      case 'b':
      case 'f':
      case 'n':
      case 'r':
      case 't':
        at += 2;
        return true;
      case 'u':
        if (code_unit(at + 2) < 0) return false;
        at += 6;
        return true;
      default:
        return false;
    }
  }

  // The text of a string, from behind its opening quote to behind its closing one.
  [[gnu::always_inline]] bool text(Text& out) noexcept {
    out.begin = at;
    std::uint32_t high = 0;
    while (true) {
      const Marks marks = Isa::marks(at);
      if (marks.stop == 0) {
        high |= marks.high;
        at += Isa::kWidth;
        continue;
      }
      high |= marks.high & (marks.stop ^ (marks.stop - 1));
      at += std::countr_zero(marks.stop);
      if (*at == '"') [[likely]] {
        ++at;
        return high == 0 || is_utf8(out.begin, at - 1);
      }
      if (*at != '\\' || !escape()) return false;
      out.escaped = true;
    }
  }

  bool word(std::string_view text) noexcept {
    for (const char c : text)
      if (*at++ != c) return false;
    return true;
  }

  [[gnu::always_inline]] bool number(bool& whole) noexcept {
    const char* const begin = at;
    whole = true;
    if (*at == '-') ++at;
    if (*at == '0') {
      ++at;
    } else if (is_digit(*at)) {
      while (is_digit(*at)) ++at;
    } else {
      whole = false;
      return *at == 'I' && word("Infinity");
    }
    if (*at == '.' || *at == 'e' || *at == 'E') [[unlikely]] {
      whole = false;
      if (*at == '.') {
        if (!is_digit(*++at)) return false;
        while (is_digit(*at)) ++at;
      }
      if (*at == 'e' || *at == 'E') {
        ++at;
        if (*at == '+' || *at == '-') ++at;
        if (!is_digit(*at)) return false;
        while (is_digit(*at)) ++at;
      }
    }
    return static_cast<std::size_t>(at - begin) <= kMostDigits;
  }

  bool value(int depth) noexcept {
    bool whole;
    Text ignored;
    switch (*at) {
      case '"':
        ++at;
        return text(ignored);
      case '[':
      case '{':
        return depth < kMostDepth && members(depth + 1);
      case 'n':
        return word("null");
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'N':
        return word("NaN");
      case 'I':
        return word("Infinity");
      default:
        return number(whole);
    }
  }

  // An array or an object.
  bool members(int depth) noexcept {
    const bool object = *at == '{';
    const char close = object ? '}' : ']';
    ++at;
    space();
    if (*at == close) {
      ++at;
      return true;
    }
    while (true) {
      if (object) {
        Text ignored;
        if (*at != '"') return false;
        ++at;
        if (!text(ignored)) return false;
        space();
        if (*at != ':') return false;
        ++at;
        space();
      }
      if (!value(depth)) return false;
      space();
      if (*at == close) {
        ++at;
        return true;
      }
      if (*at != ',') return false;
      ++at;
      space();
    }
  }

  [[gnu::always_inline]] bool matches(const Literal& literal, const char* limit) noexcept {
    if (static_cast<std::size_t>(limit - at) < literal.size) return false;
    std::size_t done = 0;
    for (; literal.size - done > 32; done += 32)
      if (!Isa::equal(at + done, literal.bytes + done, 32)) return false;
    if (!Isa::equal(at + done, literal.bytes + done, literal.size - done)) return false;
    at += literal.size;
    return true;
  }

  // One value of the key; false where it has no identity.
  [[gnu::always_inline]] bool key(Splicer& owner, Value& out) {
    out = {};
    if (*at == '"') {
      ++at;
      Text found;
      if (!text(found)) return false;
      const auto size = static_cast<std::size_t>(at - 1 - found.begin);
      return owner.key_text({found.begin, size}, found.escaped, out);
    }
    const char* const begin = at;
    if (is_digit(*at) || *at == '-') {
      bool whole;
      if (!number(whole) || !whole) return false;
      const auto [end, error] = std::from_chars(begin, at, out.number);
      out.kind = Kind::integer;
      return error == std::errc() && end == at;
    }
    if (*at == 'n') return word("null");
    out.kind = Kind::boolean;
    out.number = *at == 't' ? 1 : 0;
    return *at == 't' ? word("true") : word("false");
  }

  // The tuple: an array whose key fields go to `values`.
  [[gnu::always_inline]] bool tuple(Splicer& owner, const Target& target, Value* values) {
    if (*at != '[') return false;
    ++at;
    space();
    std::size_t found = 0;
    if (*at == ']') {
      ++at;
      return false;  // no key: there is at least one key field
    }
    const std::size_t positions = target.columns.size();
    for (std::size_t i = 0;; ++i) {
      if (i < positions && target.columns[i] >= 0) {
        if (!key(owner, values[target.columns[i]])) return false;
        ++found;
      } else if (*at == '"') {
        ++at;
        Text ignored;
        if (!text(ignored)) return false;
      } else if (is_digit(*at)) {
        bool whole;
        if (!number(whole)) return false;
      } else if (!value(1)) {
        return false;
      }
      space();
      if (*at == ',') {
        ++at;
        space();
        continue;
      }
      if (*at != ']') return false;
      ++at;
      return found == owner.arity_;
    }
  }
};

struct Splicer::Parsed {
  std::string_view tuple, task, id;  // as they stand, the id with its quotes
  std::string component, stream;
  bool has_component = false, null_component = false, has_stream = false;
};

Splicer::Splicer(std::vector<Source> sources, std::string stream, std::size_t capacity)
    : stream_(std::move(stream)) {
  if (sources.empty()) throw std::invalid_argument("sources: expected at least one, got none");
  arity_ = sources.front().fields.size();
  if (arity_ == 0 || arity_ > 255)
    throw std::invalid_argument("fields: expected 1 to 255, got " + std::to_string(arity_));
  for (Source& source : sources) {
    if (source.fields.size() != arity_)
      throw std::invalid_argument("fields: expected " + std::to_string(arity_) +
                                  " of each source, got " + std::to_string(source.fields.size()));
    for (const Target& other : targets_)
      if (other.source.component == source.component && other.source.stream == source.stream)
        throw std::invalid_argument("sources: expected distinct ones, got " + source.component +
                                    " " + source.stream + " twice");
    Target target;
    for (std::size_t column = 0; column < arity_; ++column) {
      const std::uint32_t position = source.fields[column];
      if (position > 65535)
        throw std::invalid_argument("fields: expected at most 65535, got " +
                                    std::to_string(position));
      if (target.columns.size() <= position) target.columns.resize(position + 1, -1);
      if (target.columns[position] >= 0)
        throw std::invalid_argument("fields: expected distinct ones, got " +
                                    std::to_string(position) + " twice");
      target.columns[position] = static_cast<std::int16_t>(column);
    }
    target.source = std::move(source);
    targets_.push_back(std::move(target));
  }
  if (capacity > 0) stats_.emplace(capacity);
  row_.resize(kBatch);
  values_.resize(kBatch * arity_);
  keys_.resize(kBatch);
  tasks_.resize(kBatch);
}

void Splicer::set_router(std::shared_ptr<const Router> router,
                         std::span<const TaskId> storm_tasks) {
  const std::vector<TaskId> tasks = router->tasks();
  if (tasks.size() != storm_tasks.size())
    throw std::invalid_argument("storm_tasks: expected " + std::to_string(tasks.size()) +
                                ", one for each task of the router, got " +
                                std::to_string(storm_tasks.size()));
  if (tasks.back() >= 1 << 24)
    throw std::invalid_argument("router: expected tasks below 2^24, got " +
                                std::to_string(tasks.back()));
  std::vector<std::uint32_t> place(static_cast<std::size_t>(tasks.back()) + 1);
  std::vector<std::string> middles;
  std::size_t size = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (storm_tasks[i] < 1)
      throw std::invalid_argument("storm_tasks: expected ids of 1 and more, got " +
                                  std::to_string(storm_tasks[i]));
    place[static_cast<std::size_t>(tasks[i])] = static_cast<std::uint32_t>(i);
    const std::int64_t number = (std::int64_t{1} << 32) + storm_tasks[i];
    middles.push_back("]" + (stream_.empty() ? "" : ",\"stream\":" + stream_) +
                      ",\"task\":" + std::to_string(number) + ",\"tuple\":");
    size = middles.back().size();  // of all: each number has ten digits
  }
  if (sent_.size() != tasks.size()) sent_.assign(tasks.size(), 0);
  router_ = std::move(router);
  place_ = std::move(place);
  middle_size_ = size;
  stride_ = (size + 31) / 32 * 32;
  middles_.assign(middles.size() * stride_ + 32, 0);
  for (std::size_t i = 0; i < middles.size(); ++i)
    std::memcpy(middles_.data() + i * stride_, middles[i].data(), size);
}

bool Splicer::key_text(std::string_view raw, bool escaped, Value& value) {
  value.kind = Kind::text;
  value.bytes = raw;
  if (!escaped) [[likely]]
    return true;
  const std::size_t before = unescaped_.size();
  if (!unescape(raw, unescaped_)) return false;
  value.bytes = std::string_view(unescaped_).substr(before);
  return true;
}

template <class Isa>
[[gnu::always_inline]] inline const char* Splicer::fast(const char* at, const char* limit) {
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    const Shape& shape = *shapes_[i];
    Reader<Isa> reader{at, false};
    const std::size_t unescaped = unescaped_.size();
    Row& row = row_[rows_];
    bool fits = true;
    for (std::size_t part = 0; part < 3 && fits; ++part) {
      fits = reader.matches(shape.literals[part], limit);
      if (!fits) break;
      const char* const begin = reader.at;
      switch (shape.order[part]) {
        case Field::tuple:
          fits = reader.tuple(*this, *shape.target, values_.data() + rows_ * arity_);
          row.tuple = begin;
          row.tuple_size = static_cast<std::uint32_t>(reader.at - begin);
          break;
        case Field::task: {
          bool whole;
          fits = reader.number(whole) && whole;
          break;
        }
        case Field::id: {
          typename Reader<Isa>::Text text;
          fits = *reader.at++ == '"' && reader.text(text);
          row.id = begin;
          row.id_size = static_cast<std::uint32_t>(reader.at - begin);
          break;
        }
      }
    }
    if (!fits || !reader.matches(shape.literals[3], limit)) {
      unescaped_.resize(unescaped);
      continue;
    }
    if (i > 0) std::swap(shapes_[0], shapes_[i]);
    ++rows_;
    bytes_ += row.tuple_size + 2 * row.id_size;
    return reader.at;
  }
  return nullptr;
}

// Takes a message apart. False: it is not one of ours, or not JSON.
template <class Isa>
bool Splicer::parse(const char* at, const char* end, Parsed& parsed) {
  Reader<Isa> reader{at, true};
  reader.space();
  if (*reader.at++ != '{') return false;
  reader.space();
  while (true) {
    typename Reader<Isa>::Text name;
    if (*reader.at++ != '"' || !reader.text(name) || name.escaped) return false;
    const std::string_view field(name.begin, static_cast<std::size_t>(reader.at - 1 - name.begin));
    reader.space();
    if (*reader.at++ != ':') return false;
    reader.space();
    const char* const begin = reader.at;
    typename Reader<Isa>::Text text;
    const auto read_text = [&](std::string& into) {
      if (*reader.at++ != '"' || !reader.text(text)) return false;
      into.clear();
      const std::string_view raw(text.begin, static_cast<std::size_t>(reader.at - 1 - text.begin));
      return unescape(raw, into);
    };
    const auto all = [&] {
      return std::string_view(begin, static_cast<std::size_t>(reader.at - begin));
    };
    if (field == "tuple" && parsed.tuple.data() == nullptr) {
      if (*begin != '[' || !reader.members(1)) return false;
      parsed.tuple = all();
    } else if (field == "task" && parsed.task.data() == nullptr) {
      bool whole;
      if (!reader.number(whole) || !whole) return false;
      parsed.task = all();
    } else if (field == "id" && parsed.id.data() == nullptr) {
      if (*reader.at++ != '"' || !reader.text(text)) return false;
      parsed.id = all();
    } else if (field == "stream" && !parsed.has_stream) {
      if (!read_text(parsed.stream)) return false;
      parsed.has_stream = true;
    } else if (field == "comp" && !parsed.has_component) {
      parsed.has_component = true;
      parsed.null_component = *begin == 'n';
      if (!(parsed.null_component ? reader.word("null") : read_text(parsed.component)))
        return false;
    } else {
      return false;
    }
    reader.space();
    if (*reader.at == ',') {
      ++reader.at;
      reader.space();
      continue;
    }
    if (*reader.at++ != '}') return false;
    reader.space();
    // White space takes the line that ends the message along.
    if (reader.at < end) return false;
    return parsed.tuple.data() != nullptr && parsed.task.data() != nullptr &&
           parsed.id.data() != nullptr && parsed.has_stream && parsed.has_component;
  }
}

template <class Isa>
Splicer::Slow Splicer::slow(const char* at, const char* end) {
  Parsed parsed;
  if (!parse<Isa>(at, end, parsed)) return Slow::handed_back;
  if (parsed.stream == kHeartbeat && parsed.task == "-1") return Slow::heartbeat;
  if (parsed.null_component) return Slow::handed_back;
  const auto target = std::find_if(targets_.begin(), targets_.end(), [&](const Target& t) {
    return t.source.component == parsed.component && t.source.stream == parsed.stream;
  });
  if (target == targets_.end()) return Slow::handed_back;
  Reader<Isa> reader{parsed.tuple.data(), true};
  if (!reader.tuple(*this, *target, values_.data() + rows_ * arity_)) return Slow::handed_back;
  row_[rows_] = {parsed.tuple.data(), parsed.id.data(),
                 static_cast<std::uint32_t>(parsed.tuple.size()),
                 static_cast<std::uint32_t>(parsed.id.size())};
  ++rows_;
  bytes_ += parsed.tuple.size() + 2 * parsed.id.size();
  learn(*target, parsed, at, end);
  return Slow::record;
}

void Splicer::learn(const Target& target, const Parsed& parsed, const char* at, const char* end) {
  struct Piece {
    Field field;
    std::string_view text;
  };
  Piece pieces[3] = {
      {Field::tuple, parsed.tuple}, {Field::task, parsed.task}, {Field::id, parsed.id}};
  std::sort(std::begin(pieces), std::end(pieces),
            [](const Piece& a, const Piece& b) { return a.text.data() < b.text.data(); });
  auto shape = std::make_unique<Shape>();
  shape->target = &target;
  const char* from = at;
  for (std::size_t i = 0; i < 4; ++i) {
    const char* const to = i < 3 ? pieces[i].text.data() : end + kEnd.size();
    const auto size = static_cast<std::size_t>(to - from);
    if (size > kLiteral) return;
    shape->literals[i].size = size;
    std::memcpy(shape->literals[i].bytes, from, size);
    if (i == 3) break;
    shape->order[i] = pieces[i].field;
    from = to + pieces[i].text.size();
  }
  if (shapes_.size() == kShapes) shapes_.pop_back();
  shapes_.insert(shapes_.begin(), std::move(shape));
}

void Splicer::hash_rows() {
  if (arity_ == 1) {
    const char* texts[kBatch];
    std::uint64_t sizes[kBatch];
    bool all_text = true;
    for (std::size_t i = 0; i < rows_; ++i) {
      const Value& value = values_[i];
      all_text &= value.kind == Kind::text;
      texts[i] = value.bytes.data();
      sizes[i] = value.bytes.size();
      keys_[i] = kSeed;
    }
    if (all_text)
      hash_texts(texts, sizes, rows_, keys_.data());
    else
      for (std::size_t i = 0; i < rows_; ++i) keys_[i] = values_[i].hash();
    return;
  }
  for (std::size_t i = 0; i < rows_; ++i) {
    Key key = kSeed;
    for (std::size_t column = 0; column < arity_; ++column) {
      const Value& value = values_[i * arity_ + column];
      key = value.kind == Kind::null ? hash_null_mark(key) : value.hash(key);
    }
    keys_[i] = key;
  }
}

// Rows whose values are of the same kinds, as columns: what an engine's home is computed from.
std::size_t Splicer::route_run(std::size_t begin) {
  const auto alike = [&](std::size_t row) {
    for (std::size_t c = 0; c < arity_; ++c)
      if (values_[row * arity_ + c].kind != values_[begin * arity_ + c].kind) return false;
    return true;
  };
  std::size_t end = begin + 1;
  while (end < rows_ && alike(end)) ++end;
  const std::size_t count = end - begin;
  std::vector<std::string> texts(arity_);
  std::vector<std::vector<std::int64_t>> numbers(arity_);
  std::vector<std::vector<Column>> columns(arity_);
  for (std::size_t c = 0; c < arity_; ++c) {
    Column column;
    column.kind = values_[begin * arity_ + c].kind;
    column.size = count;
    const bool text = column.kind == Kind::text;
    if (text) numbers[c].push_back(0);
    for (std::size_t row = begin; row < end; ++row) {
      const Value& value = values_[row * arity_ + c];
      if (text) texts[c] += value.bytes;
      numbers[c].push_back(text ? static_cast<std::int64_t>(texts[c].size()) : value.number);
    }
    if (column.kind != Kind::null) column.layout = text ? Layout::offsets64 : Layout::i64;
    column.data = text ? static_cast<const void*>(texts[c].data()) : numbers[c].data();
    column.offsets = text ? numbers[c].data() : nullptr;
    columns[c].push_back(std::move(column));
  }
  std::vector<std::int64_t> salts;
  const bool salted = !router_->splits().empty();
  for (std::size_t row = begin; salted && row < end; ++row) {
    const std::string_view raw(row_[row].id + 1, row_[row].id_size - 2);
    std::string id;
    if (raw.find('\\') == std::string_view::npos || !unescape(raw, id)) id = raw;
    salts.push_back(static_cast<std::int64_t>(hash_bytes(id)));
  }
  Batch batch(std::move(columns), "key");
  batch.remember({keys_.data() + begin, count});
  router_->route(batch, salts, salted, {tasks_.data() + begin, count});
  return end;
}

void Splicer::route_rows() {
  if (router_->one_record()) [[likely]]
    return router_->route_keys({keys_.data(), rows_}, tasks_.data());
  for (std::size_t begin = 0; begin < rows_;) begin = route_run(begin);
}

void Splicer::write_rows(Output& out) {
  if (rows_ == 0) return;
  hash_rows();
  if (stats_) stats_->observe_block({keys_.data(), rows_}, values_.data(), arity_);
  route_rows();
  out.reserve(bytes_ + rows_ * (kEmit.size + middle_size_ + kAck.size + kLast.size));
  char* to = out.end();
  for (std::size_t i = 0; i < rows_; ++i) {
    const Row& row = row_[i];
    const std::uint32_t place = place_[static_cast<std::size_t>(tasks_[i])];
    ++sent_[place];
    to = put(to, kEmit);
    to = put(to, row.id, row.id_size);
    to = put(to, middles_.data() + place * stride_, middle_size_);
    to = put(to, row.tuple, row.tuple_size);
    to = put(to, kAck);
    to = put(to, row.id, row.id_size);
    to = put(to, kLast);
  }
  out.advance_to(to);
  records_ += rows_;
  rows_ = bytes_ = 0;
  unescaped_.clear();
}

template <class Isa>
[[gnu::always_inline]] inline Splicer::Result Splicer::splice_with(char* data, std::size_t size,
                                                                   std::size_t seen, Output& out) {
  const char* const limit = data + size;
  std::memset(data + size, 0, kPadding);
  rows_ = bytes_ = 0;
  unescaped_.clear();
  const char* at = data;
  if (seen > 0 && find_end(data + seen - std::min(seen, kEnd.size() - 1), limit) == nullptr)
    return {0, {}};
  while (at < limit) {
    if (rows_ == kBatch) write_rows(out);
    if (const char* const next = fast<Isa>(at, limit); next != nullptr) [[likely]] {
      at = next;
      continue;
    }
    const char* const end = find_end(at, limit);
    if (end == nullptr) break;
    const Slow how = slow<Isa>(at, end);
    const char* const begin = at;
    at = end + kEnd.size();
    if (how == Slow::record) continue;
    write_rows(out);
    if (how == Slow::heartbeat) {
      out.append(kSync);
      continue;
    }
    return {static_cast<std::size_t>(at - data),
            std::string_view(begin, static_cast<std::size_t>(end - begin))};
  }
  write_rows(out);
  return {static_cast<std::size_t>(at - data), {}};
}

Splicer::Result Splicer::splice_portable(char* data, std::size_t size, std::size_t seen,
                                         Output& out) {
  return splice_with<Portable>(data, size, seen, out);
}

#if PYROUTE_X86
PYROUTE_AVX2 Splicer::Result Splicer::splice_avx2(char* data, std::size_t size, std::size_t seen,
                                                  Output& out) {
  return splice_with<Avx2>(data, size, seen, out);
}
#endif

Splicer::Result Splicer::splice(char* data, std::size_t size, std::size_t seen, Output& out) {
  // A text that had escapes is no longer than they were: it never moves while a block uses it.
  unescaped_.reserve(size);
#if PYROUTE_X86
  if (simd() != Simd::portable) return splice_avx2(data, size, seen, out);
#endif
  return splice_portable(data, size, seen, out);
}

}  // namespace pyroute
