// Tasks inside a server: where an operator has several tasks on one server, the keys that
// colocate.hpp placed there are balanced over them (C14).
//
// A key that was on one of the server's tasks starts there; one that comes from elsewhere has to be
// given a task. Each server is a Problem of its own (problem.hpp) with the mean load of the whole
// operator, solved by `mixed` (planner.hpp), with 64 moves of search where a task is over its limit
// then. A plan is taken where it is better: all keys are on tasks that take keys, fewer entries are
// above max_table, the greatest level above the limit is lower, in this order. Without
// max_migration it is planned again from there while that is so. Keys that come have no size in the
// first plan, for their move is paid already. Where a server has one task that takes keys, they are
// on it. Servers are taken in ascending order, each with what the ones before left of max_table
// (keys away from their home task) and max_migration.
//
// Guarantees, each a test of that name in tests/test_inside.py:
//   stays_on_server   every key is on a task of its server, one that takes keys where there is one
//   calm              within limits, and with no key coming, nothing moves; nor does anything when
//                     the answer is planned again without max_migration, within limits or not
// Cost: that of the planner. Threads: pure.
#pragma once

#include "plan/problem.hpp"

namespace pyroute {

struct InsideProblem {
  // by task of the operator
  std::vector<Position> server;
  std::vector<double> capacity;  // 0: takes nothing
  std::vector<Cost> base;
  // by key of the operator
  std::vector<Key> id;
  std::vector<Cost> load;
  std::vector<StateSize> size;
  std::vector<Position> placed;         // server
  std::vector<Position> current, home;  // tasks

  double mean = 0;  // load of a task of capacity 1
  double max_imbalance = 0.03;
  std::int64_t max_table = -1;      // of the whole operator
  std::int64_t max_migration = -1;  // left for moves inside servers
};

// The task of each key. Precondition: every `placed` server has a task.
[[nodiscard]] std::vector<Position> place_inside(const InsideProblem& problem);

}  // namespace pyroute
