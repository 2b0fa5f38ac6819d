// Names: the original values behind monitored ids, so that a report can say which key it is.
//
// Keys that carry their value in the id (value.hpp, self_naming) need no entry. Others are kept
// once per id, however many entries use it; retain() drops the ids nobody monitors any more.
// Cost: O(1) per add and find. Threads: none of its own; the owner locks.
#pragma once

#include <unordered_map>

#include "column.hpp"

namespace pyroute {

class Names {
 public:
  [[nodiscard]] const Kinds& kinds() const noexcept { return kinds_; }
  // Throws TypeMismatch when values of these kinds cannot be among those seen before.
  void expect(const Kinds& kinds, const char* name) { kinds_ = unify(kinds_, kinds, name); }
  void add(Key id, const Batch& batch, std::size_t row);
  // The same where encode(text) appends the encoding of the value.
  template <class Encode>
  void add_with(Key id, Encode&& encode) {
    if (self_naming(kinds_)) return;
    const auto [at, fresh] = names_.try_emplace(id);
    if (fresh) encode(at->second);
  }
  // Keeps this side's name where both have one.
  void add_all(const Names& other);
  // Ids among which nothing may be lost; call from time to time, it acts when half is garbage.
  template <class Each>
  void retain(std::size_t live, Each&& each_live_id) {
    if (names_.size() < 2 * live + 1024) return;
    std::unordered_map<Key, std::string> kept;
    each_live_id([&](Key id) {
      if (const auto at = names_.find(id); at != names_.end())
        kept.emplace(id, std::move(at->second));
    });
    names_ = std::move(kept);
  }
  void reset() {
    names_.clear();
    kinds_.clear();
  }
  // The encoding of value.hpp.
  [[nodiscard]] std::string encoded(Key id) const;
  [[nodiscard]] std::size_t bytes_used() const noexcept;

  void write(Writer& to, std::vector<Key> ids) const;  // the names of these ids
  // `allowed` are the ids a name may have; a name that is not its id's value is refused.
  [[nodiscard]] static Names read(Reader& from, const std::vector<Key>& allowed);

 private:
  Kinds kinds_;
  std::unordered_map<Key, std::string> names_;
};

}  // namespace pyroute
