// Snapshot: the statistics of one closed interval, immutable: what a planner reads.
//
// Per key: id, cost (the forecast for the next interval) and state size (what moves if the key
// moves). `background` is load that no key here accounts for, per task.
// Threads: immutable.
#pragma once

#include "value_list.hpp"

namespace pyroute {

struct Load {
  TaskId task;
  Cost cost;
  [[nodiscard]] bool operator==(const Load&) const = default;
};

class Snapshot {
 public:
  // Throws std::invalid_argument for lengths that differ, a cost that is negative or not finite, a
  // negative state size, a value that comes twice, and background that is negative, not finite or
  // names a task twice. state_sizes empty: 1 for every key, so that migration cost counts keys.
  Snapshot(const Batch& values, std::vector<Cost> costs, std::vector<StateSize> state_sizes,
           std::vector<Load> background, std::int64_t interval);
  // Precondition: as the checks above.
  Snapshot(std::vector<Key> ids, ValueList names, std::vector<Cost> costs,
           std::vector<StateSize> state_sizes, std::int64_t interval);

  // Rows whose id an earlier row has: two values may share one.
  [[nodiscard]] const std::vector<std::size_t>& doubles() const noexcept { return doubles_; }
  [[nodiscard]] std::span<const Key> ids() const noexcept { return ids_; }
  [[nodiscard]] const ValueList& names() const noexcept { return names_; }
  [[nodiscard]] std::span<const Cost> costs() const noexcept { return costs_; }
  [[nodiscard]] std::span<const StateSize> state_sizes() const noexcept { return state_sizes_; }
  [[nodiscard]] const std::vector<Load>& background() const noexcept { return background_; }
  [[nodiscard]] std::int64_t interval() const noexcept { return interval_; }
  [[nodiscard]] bool operator==(const Snapshot&) const = default;

  [[nodiscard]] std::string to_bytes() const;
  [[nodiscard]] static Snapshot from_bytes(std::string_view data);

 private:
  Snapshot() = default;
  void check();
  void find_doubles();

  std::vector<Key> ids_;
  ValueList names_;
  std::vector<Cost> costs_;
  std::vector<StateSize> state_sizes_;
  std::vector<Load> background_;  // ascending by task
  std::int64_t interval_ = 0;
  std::vector<std::size_t> doubles_;
};

}  // namespace pyroute
