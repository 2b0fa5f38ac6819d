// Plan: what to change, what it costs, and how good it can be; and the one way to make it.
//
// PlanInput joins what is known of the keys: every key of the snapshot, and those that only the
// table, the splits or the pins name (cost 0, state size 0: nothing was seen of them). Its ids are
// what the caller asks homes for, before the change and after it.
// make_plan() turns that into a Problem (problem.hpp), asks the planner and writes the answer down:
//   pinned keys      are on their task and nowhere else; they count against the bound on the table
//   doubles          two values of one id (a snapshot may have them) stay where they are: a table
//                    cannot tell them apart
//   split keys       load each of their d owners with cost / d. Where `mergeable`, a key dearer
//                    than the greatest limit is split over the fewest tasks whose limit holds its
//                    share. One that is split stays so while its owners are enough and it costs
//                    more than 0.8 of that limit, or max_migration is given; else it gets the
//                    owners it needs, and is joined where that is one. While the plan is not within
//                    its limits and was stuck or short of table, the key of the greatest share gets
//                    a quarter more tasks, at most 8 times, and the plan of the least greatest
//                    level is kept. Owners stay as far as they are open and, unless max_migration
//                    is given, can hold the share beside those of dearer split keys, in their
//                    order; what is missing are the tasks of the least level, first those that can
//                    hold it. Where all that is not within the limits, the plan that splits nothing
//                    new is made too, and kept if its greatest level is less: a key a little dearer
//                    than a task can fit whole where its parts do not. Without `mergeable` splits
//                    stay, but owners that are not open are replaced.
//   closed tasks     drained ones, and those that the new home does not have: their keys leave
//   capacities       are divided by the mean of the open tasks', so that the mean level is the mean
//                    load
//   groups           with a degree the planner works on key groups (key_group.hpp)
// Migrations are the keys that change their task, and of split keys the shares of state (size / d)
// on tasks that do not own them any more; keys that nothing was seen of are named too, with a state
// size of 0.
//
// Guarantees, each a test of that name in tests/test_plan.py:
//   complete       applying table, splits and home gives the loads that the plan claims
//   pins_hold      pinned keys are on their task
//   drained_empty  no key that was seen is left on a closed task
//   splits_help    the greatest level is at most that of the plan without `mergeable`
//   ghosts_named   keys of the table that the snapshot does not have move only with a migration
//                  that names them
// Cost: O(keys) with one table lookup each, and the planner. Threads: pure.
#pragma once

#include <functional>
#include <string>

#include "plan/planner.hpp"
#include "stats/snapshot.hpp"
#include "table/routing_table.hpp"
#include "table/split.hpp"

namespace pyroute {

struct PlanOptions {
  Algorithm algorithm = Algorithm::mixed;
  double max_imbalance = 0.08;
  bool two_sided = false;
  std::int64_t max_table = 3000;  // -1: any
  double beta = 1.5;
  std::int64_t degree = 0;          // 0: keys
  std::vector<double> capacities;   // by task of the plan
  std::vector<std::uint8_t> open;   // by task of the plan
  std::int64_t max_migration = -1;  // -1: any
  bool mergeable = false;
  std::int64_t search_moves = 0;
  double sigma = 0;
  std::function<void()> checkpoint = {};  // problem.hpp
};

class PlanInput {
 public:
  // A key of which more is known than its home.
  struct Special {
    Key id;
    TaskId tabled = -1, pinned = -1;
    std::int32_t split = -1;  // position among the splits
    std::size_t row = kNone;
  };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  // All but the pins must outlive it. Throws TypeMismatch where the kinds of values differ,
  // std::invalid_argument where a pinned value comes twice.
  PlanInput(const Snapshot& snapshot, const RoutingTable& table, std::span<const Split> splits,
            const ValueList& split_names, const Batch& pins, std::span<const TaskId> pinned_to);

  // By row: the keys of the snapshot, then the others.
  [[nodiscard]] std::span<const Key> ids() const noexcept {
    return more_ids_.empty() ? snapshot_.ids() : std::span<const Key>(more_ids_);
  }
  [[nodiscard]] Cost cost(std::size_t row) const noexcept {
    return row < seen() ? snapshot_.costs()[row] : 0;
  }
  [[nodiscard]] StateSize size(std::size_t row) const noexcept {
    return row < seen() ? snapshot_.state_sizes()[row] : 0;
  }
  [[nodiscard]] std::string encoded(std::size_t row) const;  // its value, see value.hpp
  [[nodiscard]] std::size_t seen() const noexcept { return snapshot_.ids().size(); }
  [[nodiscard]] const Snapshot& snapshot() const noexcept { return snapshot_; }
  [[nodiscard]] std::span<const Split> splits() const noexcept { return splits_; }
  [[nodiscard]] std::span<const Special> specials() const noexcept { return specials_; }
  // The kinds of all values; none where some have no name.
  [[nodiscard]] const Kinds& kinds() const noexcept { return kinds_; }
  // The values of rows, in their order.
  [[nodiscard]] ValueList names(std::span<const std::size_t> rows) const;

 private:
  [[nodiscard]] Special* find(Key id) noexcept;

  const Snapshot& snapshot_;
  std::span<const Split> splits_;
  std::vector<Special> specials_;  // ascending by id
  Kinds kinds_;
  std::vector<Key> more_ids_;            // of all rows, where there are others than the snapshot's
  std::vector<std::string> more_names_;  // of those others
};

struct Plan {
  std::vector<TaskId> tasks;  // of before and after, ascending
  std::vector<std::uint8_t> open;
  std::vector<double> capacities;  // their mean over the open tasks is 1
  std::vector<Cost> loads_before, loads_after, estimated_loads;  // the last with a degree alone

  std::vector<Key> table_ids;  // ascending
  std::vector<TaskId> table_targets;
  ValueList table_names;
  std::vector<Split> splits;  // ascending by id
  ValueList split_names;

  std::vector<Key> ids;  // of the migrations, by row of the input
  std::vector<TaskId> sources, targets;
  std::vector<StateSize> state_sizes;
  std::vector<Cost> costs;
  ValueList names;

  struct Alone {  // a key dearer than any limit
    Key id;
    TaskId task;
    Cost cost;
    std::string name;
  };
  std::vector<Alone> giants;
  double mean = 0, limit = 0, lower_bound = 0;  // levels; the limit of a task of capacity 1
  StateSize state_total = 0;
  StateSize least_migration = 0;  // lower bound, where the plan is within its limits
  std::int64_t pinned_moves = 0, stuck = 0, trials = 0, groups = 0;
  bool table_full = false, budget_spent = false;
  double group_seconds = 0;  // spent on making groups
};

// homes_before, homes_after: a task for each id of the input. tasks: as in Plan. clock gives
// seconds. Throws std::invalid_argument where pins need more entries than the table may have.
// Precondition: options are checked, pins name open tasks.
[[nodiscard]] Plan make_plan(const PlanInput& input, std::span<const TaskId> tasks,
                             std::span<const TaskId> homes_before,
                             std::span<const TaskId> homes_after, const PlanOptions& options,
                             const std::function<double()>& clock);

}  // namespace pyroute
