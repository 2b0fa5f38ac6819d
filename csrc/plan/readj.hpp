// Readj, the baseline of paper 002 (Gedik's readjustment): returns and pairwise exchanges.
//
// Start as in llfd.hpp, without giants; keys without a start go, dearest first (ties: smaller id),
// to the least level (ties: smaller task). Keys that cost at least sigma * mean take part (sigma of
// the paper, delta in one place of it: F23). First every entry, whatever it costs, dearest first
// (ties: smaller id), goes home where the home is then within its limit. Then, while a task is over
// its limit: over all tasks i over their limit, all open tasks j, all keys k of i and all keys m of
// j or none, the change k -> j, m -> i that lowers max(level i, level j) most, by more than 1e-9 of
// it, is made (ties: less state moved in all, smaller i, smaller j, smaller id of k, none before
// any m, smaller id of m); it ends where none does. Without a sigma, 1, 1/2, 1/4, ... are tried
// until more than 2048 keys take part or all that cost something do: of those that leave no task
// over its limit the one that moves least state (ties: greater sigma), else the one of the lowest
// greatest level.
//
// Guarantees: matches_reference (tests/test_readj.py), never_above_start (the same file).
// Cost: O(keys that take part, squared) per change. Threads: pure.
#pragma once

#include "plan/problem.hpp"

namespace pyroute {

// sigma 0: search for the best.
[[nodiscard]] Placement readj(const Problem& problem, double sigma);

}  // namespace pyroute
