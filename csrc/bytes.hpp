// Versioned bytes: how every kernel writes and reads itself.
//
//   "PYRT" | kernel u8 | version u8 | 0 u16 | payload | checksum u64
//
// All little-endian. The checksum is hash_bytes of everything before it, so a flipped bit is found;
// it does not keep out an adversary, so readers also check every length before they allocate and
// every number before they use it, and throw FormatError. Varints are LEB128.
// Each release reads all older versions; the golden files of a version are never regenerated.
#pragma once

#include <cmath>
#include <string>
#include <string_view>

#include "errors.hpp"
#include "hash.hpp"

namespace pyroute {

enum class Kernel : std::uint8_t {
  space_saving = 1,
  pair_space_saving = 2,
  cost_sketch = 3,
  key_stats = 4,
  snapshot = 5,
  ring = 6,
  dynamic_grouping = 7,
  engine_home = 8,
  router = 9,
  group_report = 10,
  group_orders = 11,
  report = 12,
  tracker = 13,
  scheduler = 14,
  gru = 20,
};

class Writer {
 public:
  Writer() = default;  // a bare payload
  Writer(Kernel kernel, std::uint8_t version) {
    out_ = "PYRT";
    u8(static_cast<std::uint8_t>(kernel));
    u8(version);
    raw<std::uint16_t>(0);
  }

  void u8(std::uint8_t v) { out_.push_back(static_cast<char>(v)); }
  void u32(std::uint32_t v) { raw(v); }
  void u64(std::uint64_t v) { raw(v); }
  void i64(std::int64_t v) { raw(v); }
  void f64(double v) { raw(v); }
  void varint(std::uint64_t v) {
    for (; v >= 0x80; v >>= 7) u8(static_cast<std::uint8_t>(v | 0x80));
    u8(static_cast<std::uint8_t>(v));
  }
  void bytes(std::string_view data) { out_.append(data); }
  void sized(std::string_view data) {
    varint(data.size());
    bytes(data);
  }

  [[nodiscard]] std::string finish() && {
    u64(hash_bytes(out_));
    return std::move(out_);
  }
  [[nodiscard]] const std::string& payload() const { return out_; }

 private:
  template <class T>
  void raw(T v) {
    char buffer[sizeof v];
    std::memcpy(buffer, &v, sizeof v);
    out_.append(buffer, sizeof v);
  }

  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view payload) : left_(payload) {}
  // Checks frame and checksum; version() is at most newest.
  Reader(std::string_view data, Kernel kernel, std::uint8_t newest) : left_(data) {
    if (data.size() < 16 || data.substr(0, 4) != "PYRT")
      throw FormatError("data: expected bytes written by to_bytes, got something else");
    const std::string_view body = data.substr(0, data.size() - 8);
    if (xx::load<std::uint64_t>(data.data() + body.size()) != hash_bytes(body))
      throw FormatError("data: expected an intact checksum, got a different one");
    left_ = body.substr(4);
    if (const auto got = u8(); got != static_cast<std::uint8_t>(kernel))
      throw FormatError("data: expected kernel " + std::to_string(static_cast<int>(kernel)) +
                        ", got " + std::to_string(got));
    version_ = u8();
    if (version_ == 0 || version_ > newest)
      throw FormatError("data: expected version 1 to " + std::to_string(newest) + ", got " +
                        std::to_string(version_));
    if (raw<std::uint16_t>() != 0) throw FormatError("data: expected reserved zero, got other");
  }

  [[nodiscard]] std::uint8_t version() const { return version_; }
  [[nodiscard]] std::size_t left() const { return left_.size(); }
  std::uint8_t u8() { return raw<std::uint8_t>(); }
  std::uint32_t u32() { return raw<std::uint32_t>(); }
  std::uint64_t u64() { return raw<std::uint64_t>(); }
  std::int64_t i64() { return raw<std::int64_t>(); }
  double f64() { return raw<double>(); }
  // A finite number that is not negative.
  double amount(const char* name) {
    const double v = f64();
    if (!(v >= 0) || std::isinf(v)) throw bad(name, "a finite number >= 0");
    return v;
  }
  std::uint64_t varint(const char* name, std::uint64_t most = ~std::uint64_t{0}) {
    std::uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::uint8_t byte = u8();
      const auto bits = static_cast<std::uint64_t>(byte & 0x7f);
      if (shift == 63 && bits > 1) break;
      v |= bits << shift;
      if ((byte & 0x80) == 0) {
        if (v > most) throw bad(name, "at most " + std::to_string(most));
        return v;
      }
    }
    throw bad(name, "a varint of 64 bits");
  }
  // A number of items, each of which takes at least `least` more bytes: nothing is allocated for
  // items that cannot be there.
  std::size_t count(const char* name, std::size_t least) {
    const std::uint64_t n = varint(name);
    if (least > 0 && n > left_.size() / least) throw bad(name, "no more items than bytes");
    return static_cast<std::size_t>(n);
  }
  std::string_view bytes(std::size_t size) {
    if (size > left_.size()) throw FormatError("data: expected more bytes, got a truncated end");
    const std::string_view out = left_.substr(0, size);
    left_.remove_prefix(size);
    return out;
  }
  std::string_view sized(const char* name) { return bytes(count(name, 1)); }
  void end() const {
    if (!left_.empty())
      throw FormatError("data: expected its end, got " + std::to_string(left_.size()) +
                        " more bytes");
  }
  [[nodiscard]] static FormatError bad(const char* name, const std::string& expected) {
    return FormatError(std::string(name) + ": expected " + expected + ", got other");
  }
  static void check(bool holds, const char* name, const char* expected) {
    if (!holds) throw bad(name, expected);
  }

 private:
  template <class T>
  T raw() {
    return xx::load<T>(bytes(sizeof(T)).data());
  }

  std::string_view left_;
  std::uint8_t version_ = 0;
};

}  // namespace pyroute
