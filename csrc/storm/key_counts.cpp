#include "storm/key_counts.hpp"

namespace pyroute {
namespace {

const Kinds kIdentity{Kind::identity};

bool fits(const Kinds& seen, const Kinds& next) noexcept {
  if (seen.empty() || next.empty()) return true;
  if (seen.size() != next.size()) return false;
  for (std::size_t i = 0; i < seen.size(); ++i)
    if (seen[i] != next[i] && seen[i] != Kind::null && next[i] != Kind::null) return false;
  return true;
}

// Makes `seen` the kinds of both; false where they contradict.
bool widen(Kinds& seen, const Value* values) noexcept {
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const Kind kind = values[i].kind;
    if (kind == seen[i] || kind == Kind::null) continue;
    if (seen[i] != Kind::null) return false;
    seen[i] = kind;
  }
  return true;
}

}  // namespace

SpaceSaving& KeyCounts::part_of(const Kinds& kinds) {
  for (SpaceSaving& part : parts_)
    if (fits(part.kinds(), kinds)) return part;
  if (parts_.size() > kMost) return parts_.back();
  return parts_.emplace_back(capacity_);
}

void KeyCounts::observe_block(std::span<const Key> ids, const Value* values, std::size_t arity) {
  if (ids.empty()) return;
  const auto row_at = [&](std::size_t row) { return values + row * arity; };
  const auto observe = [&](SpaceSaving& part, const Kinds& kinds, std::size_t begin,
                           std::size_t end) {
    part.observe_block(ids.subspan(begin, end - begin), kinds,
                       [&](std::size_t row, std::string& text) {
                         text.push_back(static_cast<char>(arity));
                         for (std::size_t column = 0; column < arity; ++column)
                           encode_value(row_at(begin + row)[column], text);
                       });
  };
  Kinds kinds(arity, Kind::null);
  bool alike = parts_.size() == 1;
  for (std::size_t row = 0; row < ids.size() && alike; ++row) alike = widen(kinds, row_at(row));
  if (alike && fits(parts_[0].kinds(), kinds)) [[likely]]
    return observe(parts_[0], kinds, 0, ids.size());
  // In runs of the same kinds: where a key with a null belongs depends on the keys before it.
  const auto same = [&](std::size_t row) {
    for (std::size_t column = 0; column < arity; ++column)
      if (row_at(row)[column].kind != kinds[column]) return false;
    return true;
  };
  for (std::size_t begin = 0; begin < ids.size();) {
    for (std::size_t column = 0; column < arity; ++column)
      kinds[column] = row_at(begin)[column].kind;
    std::size_t end = begin + 1;
    while (end < ids.size() && same(end)) ++end;
    SpaceSaving& part = part_of(kinds);
    observe(part, nameless(part) ? kIdentity : kinds, begin, end);
    begin = end;
  }
}

void KeyCounts::merge(const SpaceSaving& other) {
  SpaceSaving& part = part_of(other.kinds());
  if (!nameless(part)) return part.merge(other);
  for (const auto& entry : other.counters().entries())
    for (Count n = 0; n < entry.count; ++n)
      part.observe_block({&entry.id, 1}, kIdentity, [](std::size_t, std::string&) {});
}

void KeyCounts::reset() {
  parts_.erase(parts_.begin() + 1, parts_.end());
  parts_[0].reset();
}

}  // namespace pyroute
