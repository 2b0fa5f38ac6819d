// Routing table: bounded exceptions to the home, key -> task, behind a static perfect hash.
//
// Every key of the table has exactly one slot, so a lookup reads one slot, compares one id and
// selects: no probing and no branch that depends on the data. Construction (deterministic): keys
// are grouped into buckets of about five by their low 32 bits; from the largest bucket on, each
// takes the smallest pilot that sends its keys to free slots, slot = floor(high32(key * (pilot *
// 0x9E3779B97F4A7C15 | 1)) * slots / 2^32).
//
// Guarantees: exact (equal to a dict, tests/test_router.py), total (a key that is not there gets
// the fallback).
// Cost: 3 to 12 ns per key with up to 1e6 entries; building about 0.3 us per entry.
// Memory: 19 bytes per entry for the hash. Threads: immutable.
#pragma once

#include "memory.hpp"
#include "value_list.hpp"

namespace pyroute {

class RoutingTable {
 public:
  RoutingTable() { build(); }
  // Precondition: ids ascend strictly and tasks belong to them; names too (or have no kinds).
  RoutingTable(std::vector<Key> ids, std::vector<TaskId> targets, ValueList names);

  // out[i] = target of keys[i], or out[i] as it was. Precondition: at most kBlock keys.
  void override(std::span<const Key> keys, TaskId* out) const noexcept;
  [[nodiscard]] TaskId find(Key key, TaskId fallback) const noexcept {
    const Slot& slot = slots_[slot_of(key)];
    return slot.id == key && !empty() ? slot.target : fallback;
  }

  [[nodiscard]] bool empty() const noexcept { return ids_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return ids_.size(); }
  [[nodiscard]] std::span<const Key> ids() const noexcept { return ids_; }  // ascending
  [[nodiscard]] std::span<const TaskId> targets() const noexcept { return targets_; }
  [[nodiscard]] const ValueList& names() const noexcept { return names_; }
  [[nodiscard]] std::size_t bytes_used() const noexcept;

 private:
  struct alignas(16) Slot {
    Key id;
    TaskId target;
  };
  static constexpr std::uint64_t spin(std::uint16_t pilot) noexcept {
    return (pilot * 0x9E3779B97F4A7C15u) | 1;
  }
  [[nodiscard]] std::size_t bucket_of(Key key) const noexcept {
    return static_cast<std::size_t>((key & 0xffffffffu) * pilots_.size() >> 32);
  }
  [[nodiscard]] std::size_t slot_with(Key key, std::uint16_t pilot) const noexcept {
    return static_cast<std::size_t>((key * spin(pilot) >> 32) * slots_.size() >> 32);
  }
  [[nodiscard]] std::size_t slot_of(Key key) const noexcept {
    return slot_with(key, pilots_[bucket_of(key)]);
  }
  void build();
  [[nodiscard]] bool place_all();

  std::vector<Key> ids_;
  std::vector<TaskId> targets_;
  ValueList names_;
  std::vector<std::uint16_t, LargePages<std::uint16_t>> pilots_;
  std::vector<Slot, LargePages<Slot>> slots_;
};

}  // namespace pyroute
