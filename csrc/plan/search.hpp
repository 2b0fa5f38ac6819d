// Local search: lowers the greatest level by single moves and exchanges, within a budget of moves.
//
// A step takes the task d of the greatest level among the open ones not given away to a giant
// (ties: smaller), and for every other such task e looks at: one key of d moved to e, and where the
// table, the budget or the costs leave no good one, one key of d exchanged for a cheaper one of e.
// `ideal` is the cost that would make both levels equal. Of single moves the 16 keys of d next
// below and the 16 next at or above the ideal are looked at; of exchanges, for every key of d, the
// one key of e next below and the one next at or above cost - ideal. Keys that cost nothing take no
// part. The change that leaves the lowest greater level of the two is made, where that is below the
// level of d by more than 1e-9 of it; ties: less state moved in all, then single moves, then
// smaller e, then smaller ids. Exchanges are looked at only where the best single move leaves d or
// e above the mean (that of all tasks) by more than 1e-4 of it, or there is none. A change that
// makes the table or the migration greater than they are and than their bound is not made. It ends
// with the budget (an exchange counts two), or where no change helps.
//
// lift() is for the two-sided constraint (F12): while the task e of the least level among those
// that take keys (ties: smaller) is below (1 - max_imbalance) * mean * (1 - 1e-9), going through
// the other such tasks by descending level (ties: smaller), the dearest key of a task that costs at
// most its `ideal` with e (ties: smaller id) and that the bounds allow is moved to e; it ends where
// there is none, or after as many moves as there are keys.
//
// Guarantees, each a test of that name in tests/test_search.py:
//   never_worse   the greatest level never grows, and table and migration stay within their bounds
//   within_moves  at most as many keys change their task as the budget says
//   lifts         lift() equals its twin, never makes the greatest level greater, nor the least one
//                 less
// Cost: a sort of each task that takes part, then O(log K) per step, O(K) where exchanges are
// looked at. Threads: pure.
#pragma once

#include "plan/problem.hpp"

namespace pyroute {

// The number of moves that were made. Precondition: moves >= 0.
std::int64_t search(const Problem& problem, Placement& placement, std::int64_t moves);
void lift(const Problem& problem, Placement& placement);

}  // namespace pyroute
