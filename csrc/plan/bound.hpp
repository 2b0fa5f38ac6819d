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
// Guarantees: never_above_optimum (tests/test_bound.py, against every placement of small
// instances).
// Cost: one pass with a heap of 8 N + 1 costs. Threads: pure.
#pragma once

#include "plan/problem.hpp"

namespace pyroute {

[[nodiscard]] double lower_bound(const Problem& keys);

}  // namespace pyroute
