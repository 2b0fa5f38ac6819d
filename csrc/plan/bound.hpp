// Lower bound on the greatest level: no placement of the keys on the open tasks does better,
// whatever the table and the budget allow.
//
// The greatest of, with costs descending c1 >= c2 >= ..., capacities descending w1 >= w2 >= ..., N
// open tasks:
//   mean         all cost and base over all capacity
//   base         base / capacity of any one task
//   one key      c1 has to go somewhere: the least (base + c1) / capacity over tasks
//   few keys     j keys are on at most j tasks: (c1 + ... + cj) / (w1 + ... + wj), j < N
//   pigeonhole   of the first q N + 1 keys some task has q + 1, and they cost at least the q + 1
//                cheapest of them: (c_{qN+1-q} + ... + c_{qN+1}) / w1, q = 1 to 8 (F24: q = 1 is
//                c_N + c_{N+1})
// less 1e-12 of it: sums that are taken in another order differ by a rounding.
//
// least_migration() is the lower bound on state moved: no placement within the limits moves less,
// whatever the table allows. Keys of tasks that are not open all move. An open task over its limit
// has to give up what it is over, at least by the keys of least state per cost, the last one in
// part (fractional knapsack); keys that come from closed tasks are without state there. Rounded
// down, less 1e-9 of it.
//
// Guarantees: never_above_optimum, never_above_any_migration (both in tests/test_bound.py, against
// every placement of small instances).
// Cost: one pass with a heap of 8 N + 1 costs; one pass, and a heap of each task over its limit.
// Threads: pure.
#pragma once

#include "plan/problem.hpp"

namespace pyroute {

[[nodiscard]] double lower_bound(const Problem& problem);
[[nodiscard]] StateSize least_migration(const Problem& problem);

}  // namespace pyroute
