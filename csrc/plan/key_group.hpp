// Key groups: the compact 6-tuple of paper 002 (IV): keys that are alike, planned as one.
//
// A group is (target, current, home, cost level, state level, count). Grouping rounds cost and state
// size (discretize.hpp, one call for each per current task), then merges the keys of one task whose
// home and both levels agree. A plan on groups says (group, count, target): how many keys of a group
// go where; which ones is picked where the keys are known (F17: by all of current, home, levels):
//   pick     the keys of a group in the order psi gamma of their own cost and size (greatest first,
//            ties: smaller id), dealt to the targets in ascending order.
// State sizes are rounded as numbers, then to whole bytes (half up).
// Groups are ordered by (current, home, cost level, state level), the levels descending; the keys of
// a group by pick order. The id of a group is that of its first key.
//
// In the distributed form each task groups its own keys and reports the groups alone; reports of all
// tasks, in ascending order of task, are the groups of the whole, so both forms give one plan.
//
// Guarantees, each a test of that name in tests/test_key_group.py:
//   matches_reference   equal to the plain twin
//   partition           every key is in exactly one group, one of its own task and home
//   distributed_equal   groups reported by tasks give the plan of groups made in one place
// Cost: sorts of the keys, O(K log K). Threads: pure.
#pragma once

#include "plan/problem.hpp"

namespace pyroute {

struct KeyGroups {
  std::vector<Position> current, home;
  std::vector<Cost> cost;         // level
  std::vector<StateSize> size;    // level
  std::vector<std::uint32_t> count;
  std::vector<Key> id;            // of the first key
  std::vector<std::uint32_t> key;  // records of the problem, group after group in pick order

  [[nodiscard]] std::size_t groups() const noexcept { return id.size(); }
};

// Groups the records of a problem, each of which is one key. Precondition: degree checked.
[[nodiscard]] KeyGroups group_keys(const Problem& keys, std::int64_t degree);
// The same problem with groups for records.
[[nodiscard]] Problem grouped_problem(const Problem& keys, const KeyGroups& groups);
// The keys (records of the problem) that parts of groups move, and where to. Precondition: parts are
// those of moved_parts() on the grouped problem.
[[nodiscard]] std::vector<std::pair<std::uint32_t, Position>> pick(const KeyGroups& groups,
                                                                   std::span<const Part> parts);
// A placement of groups as one of keys, loads from the keys' own costs.
[[nodiscard]] Placement expand(const Problem& keys, const KeyGroups& groups, const Problem& grouped,
                               const Placement& on);

}  // namespace pyroute
