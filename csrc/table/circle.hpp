// What Ring and DynamicGrouping share: a circle of 2^bits identifiers, each with an owner.
//
//   apportion    how many identifiers each task gets for its weight: its exact share, rounded down
//                or up so that all add up (largest remainder; ties to the smaller id)
//   move_fewest  new owners with those counts that differ from the old in as few identifiers as any
//                such circle could: sum over tasks of max(0, had - gets)
//   packed bytes of owners: run lengths or bit-packed numbers, whichever is shorter
//
// Threads: pure functions.
#pragma once

#include <span>
#include <vector>

#include "bytes.hpp"

namespace pyroute {

struct Weighted {
  TaskId task;
  double weight;
  [[nodiscard]] bool operator==(const Weighted&) const = default;
};

// Sorted by task. Throws std::invalid_argument (naming `name`) when empty, when an id is negative
// or comes twice, when a weight is negative or not finite, or when all are 0.
[[nodiscard]] std::vector<Weighted> checked_tasks(std::span<const Weighted> tasks,
                                                  const char* name);

// Precondition: tasks are checked.
[[nodiscard]] std::vector<std::size_t> apportion(std::span<const Weighted> tasks,
                                                 std::size_t identifiers);

// Two rounds from `start` around the circle, over the identifiers whose owner has too many: in the
// first each goes to wanted[i] where that task still has room, in the second to the smallest task
// that has. gets[i] belongs to tasks[i]; an owner that is not among the tasks gets 0. Precondition:
// gets sum to owners.size().
[[nodiscard]] std::vector<TaskId> move_fewest(std::span<const TaskId> owners,
                                              std::span<const Weighted> tasks,
                                              std::span<const std::size_t> gets,
                                              std::span<const TaskId> wanted, std::size_t start);

void write_tasks(Writer& to, std::span<const Weighted> tasks);
[[nodiscard]] std::vector<Weighted> read_tasks(Reader& from);
// Owners as positions in the sorted list of distinct owners, which is written too.
void write_owners(Writer& to, std::span<const TaskId> owners);
[[nodiscard]] std::vector<TaskId> read_owners(Reader& from, std::size_t identifiers);
[[nodiscard]] std::uint64_t hash_owners(std::span<const TaskId> owners,
                                        std::uint64_t seed) noexcept;

}  // namespace pyroute
