// The planning problem: records of keys that are alike, and tasks with limits. What every planner
// reads, as plain arrays; nothing here decides anything.
//
//   record   `count` keys of one cost and one state size each, all on one task now (`current`) and
//            with one home. A single key is a record of count 1. `id` breaks ties: smaller first.
//   task     by its position: tasks ascend by id, so "smaller task" means smaller position.
//            capacity: relative speed, above 0. base: load that no record here accounts for
//            (background, pinned keys, shares of split keys). A task that is not open takes
//            nothing, and its records have to leave.
//   mean     (cost of all records + base of the open tasks) / capacity of the open tasks
//   limit(t) (1 + max_imbalance) * mean * capacity(t) * (1 + 1e-9); theta_max and L_max in paper 002
//   within   load <= limit(t)
//   room     limit(t) - load(t); a task is over its limit by what that is below 0
//   level(t) load(t) / capacity(t): the measure by which tasks are compared
// Threads: plain values.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "ids.hpp"

namespace pyroute {

using Position = std::int32_t;  // of a task
inline constexpr Position kNowhere = -1;

[[nodiscard]] constexpr std::size_t index(Position task) noexcept {
  return static_cast<std::size_t>(task);
}

inline constexpr double kTolerance = 1e-9;

struct Problem {
  // by task
  std::vector<double> capacity;
  std::vector<Cost> base;
  std::vector<std::uint8_t> open;
  // by record
  std::vector<Key> id;
  std::vector<Cost> cost;
  std::vector<StateSize> size;
  std::vector<Position> current;
  std::vector<Position> home;
  std::vector<std::uint32_t> count;  // empty: every record is one key

  double max_imbalance = 0.08;
  bool two_sided = false;           // max_imbalance is meant below the mean too
  double beta = 1.5;                // of the priority c^beta / S, paper 002
  std::int64_t max_table = -1;      // keys away from their home that are allowed; -1: any number
  std::int64_t max_migration = -1;  // bytes of state that may move; -1: any number

  double mean = -1;  // mean level, once it is known
  // Asked between the steps of long work; whatever it throws ends the planning. Empty: never.
  std::function<void()> checkpoint;

  [[nodiscard]] std::size_t tasks() const noexcept { return capacity.size(); }
  [[nodiscard]] std::size_t records() const noexcept { return id.size(); }
  [[nodiscard]] std::uint32_t keys_of(std::size_t record) const noexcept {
    return count.empty() ? 1 : count[record];
  }
  void may_stop() const {
    if (checkpoint) checkpoint();
  }
};

// Key that no open task may hold within its limit, and the task it was given for its own.
struct Giant {
  std::uint32_t record;
  Position task;
  [[nodiscard]] bool operator==(const Giant&) const = default;
};

// Where everything is: what planners work on. A piece is a record or, where records stand for
// several keys, a part of one.
struct Placement {
  std::vector<Position> where;               // by piece
  std::vector<std::uint32_t> record, count;  // by piece; empty: piece i is record i, one key
  std::vector<Cost> load;                    // by task, base included
  std::vector<Giant> giants;                 // descending by cost
  std::vector<std::uint8_t> given;           // by task: given away to a giant; empty: none is
  std::int64_t stuck = 0;                    // keys that fitted nowhere and went to the least level
  std::int64_t trials =
      0;  // runs of the three phases, that of the chosen one again included; `simple`
          // counts as one, so does each sigma of readj
  std::int64_t away = -1;     // keys away from their home; -1: not counted yet
  StateSize migration = -1;   // state moved; -1: not counted yet
  StateSize least = -1;       // lower bound on it; -1: not needed yet
  bool table_full = false;    // more keys were to be away from home than the table may have
  bool budget_spent = false;  // more state was to move than the budget has

  [[nodiscard]] std::size_t record_of(std::size_t piece) const noexcept {
    return record.empty() ? piece : record[piece];
  }
  [[nodiscard]] std::uint32_t keys_of(std::size_t piece) const noexcept {
    return count.empty() ? 1 : count[piece];
  }
  // Whether a task may be given keys.
  [[nodiscard]] bool takes(const Problem& problem, Position task) const noexcept {
    return problem.open[index(task)] != 0 && (given.empty() || given[index(task)] == 0);
  }
};

// `count` keys of a record that end on a task.
struct Part {
  std::uint32_t record;
  std::uint32_t count;
  Position target;
  [[nodiscard]] bool operator==(const Part&) const = default;
};

[[nodiscard]] inline double mean_level(const Problem& problem) {
  if (problem.mean >= 0) return problem.mean;
  double load = 0, capacity = 0;
  for (std::size_t r = 0; r < problem.records(); ++r)
    load += problem.cost[r] * static_cast<double>(problem.keys_of(r));
  for (std::size_t t = 0; t < problem.tasks(); ++t)
    if (problem.open[t] != 0) {
      load += problem.base[t];
      capacity += problem.capacity[t];
    }
  return load / capacity;
}

// Where a key starts: where it is, else at its home, whichever is open first; kNowhere: neither is.
[[nodiscard]] inline Position start_of(const Problem& problem, std::size_t record) noexcept {
  if (problem.open[index(problem.current[record])] != 0) return problem.current[record];
  return problem.open[index(problem.home[record])] != 0 ? problem.home[record] : kNowhere;
}

// Order of planning: the dearest first, of equal ones the smaller id.
[[nodiscard]] inline auto dearest_first(const Problem& problem) {
  return [&problem](std::size_t a, std::size_t b) {
    return problem.cost[a] != problem.cost[b] ? problem.cost[a] > problem.cost[b]
                                              : problem.id[a] < problem.id[b];
  };
}

// gamma of paper 002: how much load leaves for each byte that moves (F13).
[[nodiscard]] inline double priority(const Problem& problem, std::size_t record, double beta) {
  const double c = problem.cost[record];
  const double raised = beta == 1.5 ? c * std::sqrt(c) : beta == 1 ? c : std::pow(c, beta);
  return raised / static_cast<double>(std::max<StateSize>(problem.size[record], 1));
}

// (1 + max_imbalance) * mean * capacity, the tolerance of `within` included.
[[nodiscard]] inline double limit_level(const Problem& problem) {
  return (1 + problem.max_imbalance) * mean_level(problem) * (1 + kTolerance);
}
[[nodiscard]] inline std::vector<double> limits(const Problem& problem) {
  const double mean = mean_level(problem);
  std::vector<double> out(problem.tasks());
  for (std::size_t t = 0; t < out.size(); ++t)
    out[t] = (1 + problem.max_imbalance) * mean * problem.capacity[t] * (1 + kTolerance);
  return out;
}

// Counts from a placement alone: what every answer is judged by.
[[nodiscard]] inline std::int64_t keys_away(const Problem& problem, const Placement& placement) {
  std::int64_t away = 0;
  for (std::size_t i = 0; i < placement.where.size(); ++i)
    if (placement.where[i] != problem.home[placement.record_of(i)]) away += placement.keys_of(i);
  return away;
}
[[nodiscard]] inline StateSize state_moved(const Problem& problem, const Placement& placement) {
  StateSize moved = 0;
  for (std::size_t i = 0; i < placement.where.size(); ++i) {
    const std::size_t r = placement.record_of(i);
    if (placement.where[i] != problem.current[r]) moved += problem.size[r] * placement.keys_of(i);
  }
  return moved;
}
[[nodiscard]] inline double greatest_level(const Problem& problem, std::span<const Cost> load) {
  double greatest = 0;
  for (std::size_t t = 0; t < problem.tasks(); ++t)
    if (problem.open[t] != 0) greatest = std::max(greatest, load[t] / problem.capacity[t]);
  return greatest;
}

}  // namespace pyroute
