#include "column.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>

namespace pyroute {
namespace {

constexpr std::int64_t kNaT = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMillisPerDay = 86'400'000;

template <class T>
T load_at(const void* base, std::size_t index) noexcept {
  return xx::load<T>(static_cast<const char*>(base) + index * sizeof(T));
}

template <class T>
void widen(const Column& column, std::size_t begin, std::size_t count, std::int64_t* out) noexcept {
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<std::int64_t>(load_at<T>(column.data, column.offset + begin + i));
}

// The low 64 bits of a decimal, and whether the rest only repeats its sign.
std::int64_t decimal_at(const Column& column, std::size_t row, bool& fits) noexcept {
  const char* at = static_cast<const char*>(column.data) + (column.offset + row) * column.width;
  fits = true;
  if (column.width == 4) return xx::load<std::int32_t>(at);
  const auto low = xx::load<std::int64_t>(at);
  for (std::size_t i = 8; i < column.width; i += 8)
    fits = fits && xx::load<std::int64_t>(at + i) == (low < 0 ? -1 : 0);
  return low;
}

// Numbers as stored, before scaling. Precondition: an integer layout.
void raw_numbers(const Column& column, std::size_t begin, std::size_t count,
                 std::int64_t* out) noexcept {
  switch (column.layout) {
    case Layout::i8:
      return widen<std::int8_t>(column, begin, count, out);
    case Layout::i16:
      return widen<std::int16_t>(column, begin, count, out);
    case Layout::i32:
      return widen<std::int32_t>(column, begin, count, out);
    case Layout::u8:
      return widen<std::uint8_t>(column, begin, count, out);
    case Layout::u16:
      return widen<std::uint16_t>(column, begin, count, out);
    case Layout::u32:
      return widen<std::uint32_t>(column, begin, count, out);
    case Layout::bits:
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t bit = column.offset + begin + i;
        out[i] = static_cast<const std::uint8_t*>(column.data)[bit >> 3] >> (bit & 7) & 1;
      }
      return;
    case Layout::decimal:
      for (std::size_t i = 0; i < count; ++i) {
        bool fits;
        out[i] = decimal_at(column, begin + i, fits);
      }
      return;
    default:
      return widen<std::int64_t>(column, begin, count, out);
  }
}

// Wraps where it would overflow: check() has refused such values, and rows that are null may hold
// anything.
std::int64_t scaled(std::int64_t raw, Scale scale) noexcept {
  const auto wide = static_cast<std::uint64_t>(raw);
  switch (scale) {
    case Scale::none:
      return raw;
    case Scale::times1000:
      return static_cast<std::int64_t>(wide * 1000u);
    case Scale::times1000000:
      return static_cast<std::int64_t>(wide * 1'000'000u);
    case Scale::exact_div1000:
      return raw / 1000;
    case Scale::floor_div86400000:
      return raw / kMillisPerDay - (raw % kMillisPerDay < 0 ? 1 : 0);
  }
  return raw;
}

void numbers(const Column& column, std::size_t begin, std::size_t count,
             std::int64_t* out) noexcept {
  raw_numbers(column, begin, count, out);
  if (column.kind == Kind::boolean)
    for (std::size_t i = 0; i < count; ++i)
      out[i] = out[i] != 0 ? 1 : 0;  // NumPy's may be any byte
  if (column.scale != Scale::none)
    for (std::size_t i = 0; i < count; ++i) out[i] = scaled(out[i], column.scale);
}

std::string_view view_at(const Column& column, std::size_t row) noexcept {
  const char* at = static_cast<const char*>(column.data) + (column.offset + row) * 16;
  const auto size = static_cast<std::size_t>(xx::load<std::int32_t>(at));
  if (size <= 12) return {at + 4, size};
  const auto buffer = static_cast<std::size_t>(xx::load<std::int32_t>(at + 8));
  const auto start = xx::load<std::int32_t>(at + 12);
  return {static_cast<const char*>(column.buffers[buffer]) + start, size};
}

template <class Offset>
std::string_view slice_at(const Column& column, std::size_t row) noexcept {
  const auto from = load_at<Offset>(column.offsets, column.offset + row);
  const auto to = load_at<Offset>(column.offsets, column.offset + row + 1);
  return {static_cast<const char*>(column.data) + from, static_cast<std::size_t>(to - from)};
}

std::string_view padded_at(const Column& column, std::size_t row) noexcept {
  const char* at = static_cast<const char*>(column.data) + (column.offset + row) * column.width;
  std::size_t size = column.width;
  while (size > 0 && at[size - 1] == '\0') --size;
  return {at, size};
}

std::string_view fixed_at(const Column& column, std::size_t row) noexcept {
  return {static_cast<const char*>(column.data) + (column.offset + row) * column.width,
          column.width};
}

// UTF-8 of one row of a ucs4 column; false where a code point is a surrogate or beyond Unicode.
bool ucs4_at(const Column& column, std::size_t row, Scratch& out) {
  const char* at = static_cast<const char*>(column.data) + (column.offset + row) * column.width;
  std::size_t size = column.width / 4;
  while (size > 0 && load_at<std::uint32_t>(at, size - 1) == 0) --size;
  out.clear();
  for (std::size_t i = 0; i < size; ++i) {
    const auto point = load_at<std::uint32_t>(at, i);
    const auto put = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (point < 0x80) {
      put(point);
    } else if (point < 0x800) {
      put(0xc0 | point >> 6);
      put(0x80 | (point & 0x3f));
    } else if (point < 0x10000) {
      if (point >= 0xd800 && point < 0xe000) return false;
      put(0xe0 | point >> 12);
      put(0x80 | (point >> 6 & 0x3f));
      put(0x80 | (point & 0x3f));
    } else {
      if (point > 0x10ffff) return false;
      put(0xf0 | point >> 18);
      put(0x80 | (point >> 12 & 0x3f));
      put(0x80 | (point >> 6 & 0x3f));
      put(0x80 | (point & 0x3f));
    }
  }
  return true;
}

void uuid_at(const Column& column, std::size_t row, Scratch& out) {
  const char* at = static_cast<const char*>(column.data) + (column.offset + row) * 16;
  out.clear();
  for (std::size_t i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out.push_back('-');
    const auto byte = static_cast<unsigned char>(at[i]);
    out.push_back("0123456789abcdef"[byte >> 4]);
    out.push_back("0123456789abcdef"[byte & 15]);
  }
}

// Bytes of a text or bytes row. Precondition: such a layout, the row not null.
std::string_view bytes_at(const Column& column, std::size_t row, Scratch& scratch) {
  switch (column.layout) {
    case Layout::offsets32:
      return slice_at<std::int32_t>(column, row);
    case Layout::offsets64:
      return slice_at<std::int64_t>(column, row);
    case Layout::views:
      return view_at(column, row);
    case Layout::padded:
      return padded_at(column, row);
    case Layout::ucs4:
      ucs4_at(column, row, scratch);
      return scratch;
    case Layout::uuid:
      uuid_at(column, row, scratch);
      return scratch;
    default:
      return fixed_at(column, row);
  }
}

bool numeric_layout(Layout layout) noexcept {
  return layout >= Layout::i8 && layout <= Layout::decimal;
}

// The dictionary's row behind a code; false where the code or its value is null.
bool code_at(const Column& column, std::size_t row, std::size_t& code) noexcept {
  if (column.is_null(row)) return false;
  std::int64_t raw;
  raw_numbers(column, row, 1, &raw);
  if (raw < 0) return false;  // only pandas' missing category: check() refuses others
  code = static_cast<std::size_t>(raw);
  return !column.dictionary->is_null(code);
}

// Offsets that lie as they should are read where they are; false where they do not.
bool hash_plain_slices(const Column& column, std::size_t begin, std::size_t count,
                       Key* keys) noexcept {
  const auto* const data = static_cast<const char*>(column.data);
  const auto aligned = [&](std::size_t size) {
    return reinterpret_cast<std::uintptr_t>(column.offsets) % size == 0;
  };
  if (column.layout == Layout::offsets32 && aligned(alignof(std::int32_t)))
    hash_slices(data, static_cast<const std::int32_t*>(column.offsets) + column.offset + begin,
                count, keys);
  else if (column.layout == Layout::offsets64 && aligned(alignof(std::int64_t)))
    hash_slices(data, static_cast<const std::int64_t*>(column.offsets) + column.offset + begin,
                count, keys);
  else
    return false;
  return true;
}

// keys[i] = hash of row begin + i with seed keys[i]; null rows keep their seed. `fresh`: all seeds
// are kSeed.
void hash_rows(const Column& column, std::size_t begin, std::size_t count, bool fresh,
               Key* keys) noexcept {
  if (column.layout == Layout::nothing || count == 0) return;
  if (column.layout == Layout::ids) {
    for (std::size_t i = 0; i < count; ++i)
      keys[i] = load_at<Key>(column.data, column.offset + begin + i);
    return;
  }
  if (column.dictionary) {
    Scratch scratch;
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t code;
      if (!code_at(column, begin + i, code)) continue;
      keys[i] = fresh ? column.dictionary_ids[code]
                      : value_at(*column.dictionary, code, scratch).hash(keys[i]);
    }
    return;
  }
  const bool nulls = column.validity != nullptr;
  if (numeric_layout(column.layout)) {
    std::int64_t block[kBlock];
    const bool direct = column.layout == Layout::i64 && column.scale == Scale::none &&
                        reinterpret_cast<std::uintptr_t>(column.data) % alignof(std::int64_t) == 0;
    const std::int64_t* from = block;
    if (direct)
      from = static_cast<const std::int64_t*>(column.data) + column.offset + begin;
    else
      numbers(column, begin, count, block);
    if (fresh && !nulls && !column.nat_is_null) return hash_int64s(from, count, keys);
    for (std::size_t i = 0; i < count; ++i) {
      const bool null = column.is_null(begin + i) ||
                        (column.nat_is_null &&
                         load_at<std::int64_t>(column.data, column.offset + begin + i) == kNaT);
      keys[i] = null ? keys[i] : hash_int64(from[i], keys[i]);
    }
    return;
  }
  if (column.layout == Layout::ucs4 || column.layout == Layout::uuid) {
    Scratch scratch;
    for (std::size_t i = 0; i < count; ++i)
      if (!column.is_null(begin + i))
        keys[i] = hash_bytes(bytes_at(column, begin + i, scratch), keys[i]);
    return;
  }
  if (!nulls && hash_plain_slices(column, begin, count, keys)) return;
  const char* texts[kBlock];
  std::uint64_t sizes[kBlock];
  const auto each = [&](auto&& at) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::string_view text = at(begin + i);
      texts[i] = text.data();
      sizes[i] = text.size();
    }
  };
  switch (column.layout) {
    case Layout::offsets32:
      each([&](std::size_t row) { return slice_at<std::int32_t>(column, row); });
      break;
    case Layout::offsets64:
      each([&](std::size_t row) { return slice_at<std::int64_t>(column, row); });
      break;
    case Layout::views:
      each([&](std::size_t row) { return view_at(column, row); });
      break;
    case Layout::padded:
      each([&](std::size_t row) { return padded_at(column, row); });
      break;
    default:
      each([&](std::size_t row) { return fixed_at(column, row); });
      break;
  }
  if (!nulls) return hash_texts(texts, sizes, count, keys);
  Key seeds[kBlock];
  std::copy_n(keys, count, seeds);
  for (std::size_t i = 0; i < count; ++i)
    if (column.is_null(begin + i)) sizes[i] = 0;  // what lies there may be anything
  hash_texts(texts, sizes, count, keys);
  for (std::size_t i = 0; i < count; ++i)
    if (column.is_null(begin + i)) keys[i] = seeds[i];
}

bool is_missing(const Column& column, std::size_t row) noexcept {
  if (column.layout == Layout::nothing) return true;
  if (column.dictionary) {
    std::size_t code;
    return !code_at(column, row, code);
  }
  return column.is_null(row) ||
         (column.nat_is_null && load_at<std::int64_t>(column.data, column.offset + row) == kNaT);
}

bool may_miss(const Column& column) noexcept {
  return column.layout == Layout::nothing || column.dictionary || column.validity != nullptr ||
         column.nat_is_null;
}

[[noreturn]] void refuse(const char* name, std::size_t row, const std::string& expected,
                         const std::string& got) {
  throw std::invalid_argument(std::string(name) + ": expected " + expected + ", got " + got +
                              " in row " + std::to_string(row));
}

void check_scaled(const Column& column, const char* name) {
  const std::int64_t factor = column.scale == Scale::times1000 ? 1000 : 1'000'000;
  for (std::size_t row = 0; row < column.size; ++row) {
    if (is_missing(column, row)) continue;
    std::int64_t raw, product;
    raw_numbers(column, row, 1, &raw);
    if (column.scale == Scale::exact_div1000) {
      if (raw % 1000 != 0)
        refuse(name, row, "whole microseconds (round the nanoseconds first)",
               std::to_string(raw) + " ns");
    } else if (__builtin_mul_overflow(raw, factor, &product)) {
      refuse(name, row, "a timestamp within 64-bit microseconds", std::to_string(raw));
    }
  }
}

}  // namespace

Value value_at(const Column& column, std::size_t row, Scratch& scratch) {
  if (column.dictionary) {
    std::size_t code;
    if (!code_at(column, row, code)) return {};
    return value_at(*column.dictionary, code, scratch);
  }
  if (is_missing(column, row)) return {};
  if (column.layout == Layout::ids)
    return {Kind::identity, load_at<std::int64_t>(column.data, column.offset + row)};
  if (numeric_layout(column.layout)) {
    std::int64_t number;
    numbers(column, row, 1, &number);
    return {column.kind, number};
  }
  return {column.kind, 0, bytes_at(column, row, scratch)};
}

void check(const Column& column, const char* name) {
  if (column.dictionary) {
    check(*column.dictionary, name);
    for (std::size_t row = 0; row < column.size; ++row) {
      if (column.is_null(row)) continue;
      std::int64_t code;
      raw_numbers(column, row, 1, &code);
      if (code < 0 && column.negative_code_is_null) continue;
      if (code < 0 || static_cast<std::size_t>(code) >= column.dictionary->size)
        refuse(name, row, "a code of the dictionary", std::to_string(code));
    }
    return;
  }
  if (column.layout == Layout::u64) {
    for (std::size_t row = 0; row < column.size; ++row)
      if (!column.is_null(row))
        if (const auto raw = load_at<std::uint64_t>(column.data, column.offset + row); raw >> 63)
          refuse(name, row, "an integer below 2^63", std::to_string(raw));
  } else if (column.layout == Layout::decimal) {
    for (std::size_t row = 0; row < column.size; ++row) {
      bool fits = true;
      if (!column.is_null(row)) static_cast<void>(decimal_at(column, row, fits));
      if (!fits) refuse(name, row, "a decimal within a 64-bit integer", "one beyond it");
    }
  } else if (column.layout == Layout::ucs4) {
    Scratch scratch;
    for (std::size_t row = 0; row < column.size; ++row)
      if (!column.is_null(row) && !ucs4_at(column, row, scratch))
        refuse(name, row, "Unicode text", "a lone surrogate");
  } else if (column.scale != Scale::none && column.scale != Scale::floor_div86400000) {
    check_scaled(column, name);
  }
}

void prepare(Column& column) {
  if (!column.dictionary) return;
  const std::size_t size = column.dictionary->size;
  column.dictionary_ids.assign(size, kSeed);
  for (std::size_t begin = 0; begin < size; begin += kBlock)
    hash_rows(*column.dictionary, begin, std::min(kBlock, size - begin), true,
              column.dictionary_ids.data() + begin);
}

std::size_t Batch::Chunks::find(std::size_t row) const noexcept {
  if (chunks.size() == 1) return 0;
  return static_cast<std::size_t>(std::upper_bound(starts.begin(), starts.end() - 1, row) -
                                  starts.begin()) -
         1;
}

Batch::Batch(std::vector<std::vector<Column>> columns, const char* name) {
  for (std::size_t c = 0; c < columns.size(); ++c) {
    Chunks into;
    Kinds kind = {Kind::null};
    std::size_t rows = 0;
    for (Column& chunk : columns[c]) {
      kind = unify(kind, {chunk.dictionary ? chunk.dictionary->kind : chunk.kind}, name);
      if (chunk.size == 0) continue;  // so that starts ascend strictly
      into.starts.push_back(rows);
      rows += chunk.size;
      into.chunks.push_back(std::move(chunk));
    }
    into.starts.push_back(rows);
    if (c > 0 && rows != size_)
      throw std::invalid_argument(std::string(name) + ": expected columns of one length, got " +
                                  std::to_string(size_) + " and " + std::to_string(rows));
    size_ = rows;
    kinds_.push_back(kind[0]);
    columns_.push_back(std::move(into));
  }
  if (columns_.empty())
    throw std::invalid_argument(std::string(name) + ": expected at least one column, got none");
  if (columns_.size() > 255)
    throw std::invalid_argument(std::string(name) + ": expected at most 255 columns, got " +
                                std::to_string(columns_.size()));
}

void Batch::ids(std::size_t begin, std::size_t count, Key* out) const noexcept {
  if (count > kBlock) {  // hash_rows keeps a block of numbers on the stack
    ids(begin, kBlock, out);
    for (std::size_t done = kBlock; done < count; done += kBlock)
      ids(begin + done, std::min(kBlock, count - done), out + done);
    return;
  }
  std::fill(out, out + count, kSeed);
  const bool composite = columns_.size() > 1;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const Chunks& column = columns_[c];
    std::size_t done = 0;
    for (std::size_t chunk = count > 0 ? column.find(begin) : 0; done < count; ++chunk) {
      const Column& part = column.chunks[chunk];
      const std::size_t first = begin + done - column.starts[chunk];
      const std::size_t rows = std::min(count - done, part.size - first);
      hash_rows(part, first, rows, c == 0, out + done);
      if (composite && may_miss(part))
        for (std::size_t i = 0; i < rows; ++i)
          if (is_missing(part, first + i)) out[done + i] = hash_null_mark(out[done + i]);
      done += rows;
    }
  }
}

std::span<const Key> Batch::whole() const noexcept {
  if (!remembered_.empty()) return remembered_;
  if (columns_.size() != 1 || columns_[0].chunks.size() != 1) return {};
  const Column& column = columns_[0].chunks[0];
  if (column.layout != Layout::ids) return {};
  return {static_cast<const Key*>(column.data) + column.offset, size_};
}

Value Batch::value(std::size_t column, std::size_t row, Scratch& scratch) const {
  const Chunks& in = columns_[column];
  const std::size_t chunk = in.find(row);
  return value_at(in.chunks[chunk], row - in.starts[chunk], scratch);
}

void Batch::encode(std::size_t row, std::string& out) const {
  out.push_back(static_cast<char>(columns_.size()));
  Scratch scratch;
  for (std::size_t c = 0; c < columns_.size(); ++c) encode_value(value(c, row, scratch), out);
}

bool Batch::equals(std::size_t row, std::string_view encoded) const {
  Reader from(encoded);
  Scratch scratch;
  if (from.u8() != columns_.size()) return false;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const Value mine = value(c, row, scratch);
    if (static_cast<Kind>(from.u8()) != mine.kind) return false;
    if (mine.kind == Kind::text || mine.kind == Kind::bytes) {
      if (from.sized("value") != mine.bytes) return false;
    } else if (mine.kind != Kind::null && from.i64() != mine.number) {
      return false;
    }
  }
  return true;
}

}  // namespace pyroute
