// KeyCounts: the heaviest keys of a stream whose keys may be of several types.
//
// A router routes any mix of types, so its statistics take any mix: a SpaceSaving for each type, in
// the order of first sight. A key belongs to the first one whose kinds do not contradict its own.
// Kinds only grow more exact, so a key belongs to the same one for ever, nulls included, and the
// bounds of SpaceSaving hold in each for the keys of its type: 1 and true, which have one identity,
// are two keys here. Types beyond kMost are counted together by identity, without names: memory is
// that of kMost + 1 sketches at most.
//
// Guarantee: types (tests/test_multilang.py and tests/test_frames.py).
// Cost: that of SpaceSaving, and one pass over the kinds of a block. Threads: none of its own.
#pragma once

#include "stats/space_saving.hpp"

namespace pyroute {

class KeyCounts {
 public:
  static constexpr std::size_t kMost = 16;

  // Throws what SpaceSaving throws for a capacity.
  explicit KeyCounts(std::size_t capacity) : capacity_(capacity) { parts_.emplace_back(capacity); }

  // Precondition: at most kBlock ids, and ids.size() * arity values, by row; each id is the key of
  // its row.
  void observe_block(std::span<const Key> ids, const Value* values, std::size_t arity);
  // Adds what was counted elsewhere. Throws std::invalid_argument as SpaceSaving::merge does.
  void merge(const SpaceSaving& other);
  void reset();

  // One at least; the first is empty where nothing was seen.
  [[nodiscard]] const std::vector<SpaceSaving>& parts() const noexcept { return parts_; }

 private:
  [[nodiscard]] SpaceSaving& part_of(const Kinds& kinds);
  [[nodiscard]] bool nameless(const SpaceSaving& part) const noexcept {
    return parts_.size() > kMost && &part == &parts_.back();
  }

  std::size_t capacity_;
  std::vector<SpaceSaving> parts_;
};

}  // namespace pyroute
