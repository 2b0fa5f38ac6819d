#include "table/routing_table.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "branchless.hpp"

namespace pyroute {
namespace {

constexpr std::size_t kPrefetchedSlots = 16384;  // 256 KB; below, waiting is cheaper

}  // namespace

RoutingTable::RoutingTable(std::vector<Key> ids, std::vector<TaskId> targets, ValueList names)
    : ids_(std::move(ids)), targets_(std::move(targets)), names_(std::move(names)) {
  build();
}

void RoutingTable::build() {
  const std::size_t n = ids_.size();
  pilots_.assign(n / 5 + 1, 0);
  // With 65,536 pilots a load of 0.85 practically always succeeds at once; a lower one follows if
  // not.
  for (std::size_t slots = n + n / 6 + 1;; slots += slots / 4 + 1) {
    slots_.assign(slots, Slot{0, 0});
    if (place_all()) return;
  }
}

bool RoutingTable::place_all() {
  const std::size_t n = ids_.size();
  if (n == 0) return true;
  std::vector<std::uint32_t> starts(pilots_.size() + 1);
  for (const Key id : ids_) ++starts[bucket_of(id) + 1];
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  std::vector<std::uint32_t> members(n), fill(starts.begin(), starts.end() - 1);
  for (std::size_t i = 0; i < n; ++i)
    members[fill[bucket_of(ids_[i])]++] = static_cast<std::uint32_t>(i);
  std::vector<std::uint32_t> order(pilots_.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto size_of = [&](std::uint32_t bucket) { return starts[bucket + 1] - starts[bucket]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return size_of(a) > size_of(b); });
  std::vector<bool> taken(slots_.size());
  std::vector<std::size_t> chosen;
  for (const std::uint32_t bucket : order) {
    if (size_of(bucket) == 0) break;
    std::uint32_t pilot = 0;
    for (;; ++pilot) {
      if (pilot > 0xffff) return false;
      chosen.clear();
      for (std::uint32_t m = starts[bucket]; m < starts[bucket + 1]; ++m) {
        const std::size_t slot = slot_with(ids_[members[m]], static_cast<std::uint16_t>(pilot));
        if (taken[slot] || std::find(chosen.begin(), chosen.end(), slot) != chosen.end()) break;
        chosen.push_back(slot);
      }
      if (chosen.size() == size_of(bucket)) break;
    }
    pilots_[bucket] = static_cast<std::uint16_t>(pilot);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const std::size_t member = members[starts[bucket] + i];
      taken[chosen[i]] = true;
      slots_[chosen[i]] = {ids_[member], targets_[member]};
    }
  }
  // A free slot holds a key that lives elsewhere: no lookup of that key ends there.
  for (std::size_t slot = 0; slot < slots_.size(); ++slot)
    if (!taken[slot]) slots_[slot] = {ids_[0], 0};
  return true;
}

void RoutingTable::override(std::span<const Key> keys, TaskId* out) const noexcept {
  if (empty()) return;
  const std::size_t n = keys.size();
  const Slot* const slots = slots_.data();
  std::size_t where[kBlock];
  for (std::size_t i = 0; i < n; ++i) where[i] = slot_of(keys[i]);
  if (slots_.size() >= kPrefetchedSlots)
    for (std::size_t i = 0; i < n; ++i) __builtin_prefetch(slots + where[i]);
  for (std::size_t i = 0; i < n; ++i) {
    const Slot& slot = slots[where[i]];
    const auto hit = static_cast<TaskId>(ones_if(slot.id == keys[i]));
    out[i] = (slot.target & hit) | (out[i] & ~hit);
  }
}

std::size_t RoutingTable::bytes_used() const noexcept {
  return ids_.size() * (sizeof(Key) + sizeof(TaskId)) + pilots_.size() * sizeof(std::uint16_t) +
         slots_.size() * sizeof(Slot) + names_.bytes_used();
}

}  // namespace pyroute
