// What travels in the distributed form of planning on groups (paper 002, IV; F27): a task reports
// its key groups, the controller orders how many keys of which group go where.
//
// GroupReport: the groups of one task without the keys (key_group.hpp), the router they were under,
// and what balance and its certificate need of the keys themselves: their load and the greatest cost
// of one.
// GroupOrders: (group, count, target) for one task, by group, then target.
//
// Guarantees: round_trip (tests/test_key_group.py).
// Cost: about 20 bytes a group, 4 an order. Threads: plain values.
#pragma once

#include <string>
#include <vector>

#include "bytes.hpp"

namespace pyroute {

struct GroupReport {
  TaskId task = 0;
  std::int64_t version = 0;       // of the router that the task was under
  std::uint64_t fingerprint = 0;  // of the same
  std::int64_t degree = 1;
  Cost background = 0;          // load that no key accounts for
  Cost load = 0, greatest = 0;  // of the keys
  std::vector<TaskId> home;
  std::vector<Cost> cost;
  std::vector<StateSize> size;
  std::vector<std::uint32_t> count;
  std::vector<Key> id;  // of the first key of each group
  [[nodiscard]] bool operator==(const GroupReport&) const = default;

  [[nodiscard]] std::string to_bytes() const;
  [[nodiscard]] static GroupReport from_bytes(std::string_view data);
};

struct GroupOrders {
  TaskId task = 0;
  std::vector<std::uint32_t> group, count;
  std::vector<TaskId> target;
  [[nodiscard]] bool operator==(const GroupOrders&) const = default;

  [[nodiscard]] std::string to_bytes() const;
  [[nodiscard]] static GroupOrders from_bytes(std::string_view data);
};

}  // namespace pyroute
