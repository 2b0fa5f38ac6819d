// The values behind a list of ids, by position: nothing is stored where ids name themselves.
// Threads: plain value.
#pragma once

#include "column.hpp"

namespace pyroute {

class ValueList {
 public:
  ValueList() = default;
  explicit ValueList(Kinds kinds) : kinds_(std::move(kinds)) {}
  ValueList(const Batch& batch);

  [[nodiscard]] const Kinds& kinds() const noexcept { return kinds_; }
  [[nodiscard]] bool stored() const noexcept { return !kinds_.empty() && !self_naming(kinds_); }
  void push(std::string_view encoded);
  // The encoding of value.hpp. `id` is the id at this position.
  [[nodiscard]] std::string encoded(std::size_t position, Key id) const;
  [[nodiscard]] std::string_view at(std::size_t position) const noexcept {
    return std::string_view(bytes_).substr(starts_[position],
                                           starts_[position + 1] - starts_[position]);
  }
  [[nodiscard]] ValueList reordered(std::span<const std::size_t> order) const;
  [[nodiscard]] std::size_t bytes_used() const noexcept {
    return bytes_.capacity() + starts_.capacity() * sizeof(std::size_t);
  }
  [[nodiscard]] bool operator==(const ValueList&) const = default;

  void write(Writer& to) const;
  // One value for each id, and each the value of its id.
  [[nodiscard]] static ValueList read(Reader& from, std::span<const Key> ids);

 private:
  Kinds kinds_;  // empty: the ids came without values
  std::vector<std::size_t> starts_{0};
  std::string bytes_;
};

}  // namespace pyroute
