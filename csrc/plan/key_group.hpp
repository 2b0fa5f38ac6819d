// Key groups: the compact 6-tuple of paper 002 (IV): keys that are alike, planned as one.
//
// A group is (target, current, home, cost level, state level, count). Grouping rounds cost and
// state size (discretize.hpp, one call for each per current task), then merges the keys of one task
// whose home and both levels agree. What a group says of its keys is not the level but their mean
// cost and mean state size (not in the paper): levels cancel their errors over a whole task only,
// and a plan moves parts of it; with means the loads of tasks are exact, and those of a plan nearly
// so.
// A plan on groups says (group, count, target): how many keys of a group go where; which ones is
// picked where the keys are known (F17: by all of current, home, levels):
//   pick     Orders are taken by group, then target. The keys of a group are in descending order of
//            their own cost (ties: smaller id). An order takes its keys one by one, the cheapest
//            left where the keys that its target got so far from this task cost more than the
//            means, else the dearest left. So what a target gets is what the plan counted on, but
//            for about one key's deviation.
// Mean state sizes are whole bytes (half up). Groups are ordered by (current, home, cost level,
// state level), the levels descending; the keys of a group as above. The id of a group is that of
// its first key.
//
// In the distributed form each task groups its own keys and reports the groups alone; reports of
// all tasks, in ascending order of task, are the groups of the whole, so both forms give one plan.
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
  std::vector<double> cost_level, size_level;
  std::vector<Cost> cost;       // mean
  std::vector<StateSize> size;  // mean
  std::vector<std::uint32_t> count;
  std::vector<Key> id;             // of the first key
  std::vector<std::uint32_t> key;  // records of the problem, group after group
  std::vector<Cost> key_cost;      // their own costs

  [[nodiscard]] std::size_t groups() const noexcept { return id.size(); }
};

// Groups the records of a problem, each of which is one key. Precondition: degree checked.
[[nodiscard]] KeyGroups group_keys(const Problem& keys, std::int64_t degree);
// The same problem with groups for records.
[[nodiscard]] Problem grouped_problem(const Problem& keys, const KeyGroups& groups);
// The keys (records of the problem) that parts of groups move, and where to. Precondition: parts
// are those of moved_parts() on the grouped problem.
[[nodiscard]] std::vector<std::pair<std::uint32_t, Position>> pick(const KeyGroups& groups,
                                                                   std::span<const Part> parts);
// A placement of groups as one of keys, loads from the keys' own costs.
[[nodiscard]] Placement expand(const Problem& keys, const KeyGroups& groups, const Problem& grouped,
                               const Placement& on);

}  // namespace pyroute
