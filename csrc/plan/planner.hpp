// The planners of paper 002 and what goes beyond them: each a pure function of the problem.
//
//   simple     LPT: all keys, dearest first (ties: smaller id), each to the open task of the least
//              level (ties: smaller task); keys that cost nothing stay where they start (llfd.hpp;
//              those without a start go last). No task is given away
//   llfd       no cleaning, psi cost
//   min_table  all entries cleaned, psi cost (algorithm 2)
//   min_mig    no cleaning, psi gamma (algorithm 3)
//   mixed      psi gamma, n entries cleaned: n = 0, then n + (table size - max_table), at most all,
//              while the table is too large (algorithm 4 with F9 and F10). At all entries, still
//              too large: min_table. Else, beyond the paper, a gentle run, from that n on in the
//              same way but without min_table; where more than n entries are useful, one from all
//              of those on; and where beta is not 1, both again by gamma of beta 1, which is state
//              per cost. Of these and the first run the one of least migration with nothing stuck
//              and the table within its bound (ties: the earlier), else the first. They end as soon
//              as the best so far has nothing stuck and moves at most 1.01 times the lower bound on
//              migration (bound.hpp), or nothing at all
//   mixed_bf   psi gamma, every n from 0 to all (F11): of the runs with nothing stuck and the table
//              within its bound the one of least migration (ties: smaller n), then gently as mixed;
//              else as mixed
//   readj      readj.hpp
// Then, in this order, ties always to the smaller id, then to the smaller task that the key is on:
//   return     (mixed, mixed_bf) Moved keys, largest state first, go back to where they were if
//              that task is open, not given away to a giant, within its limit with them, and the
//              table does not grow beyond its bound. Giants stay.
//   table      Where more keys are away from home than max_table, the cheapest of them whose
//              home is open are sent home until the bound holds (table_full), those whose home was
//              given away to a giant after all others.
//   fallback   (mixed, mixed_bf) With keys stuck, `simple` with its table step is tried too and
//              taken where its greatest level is lower by more than 1e-9 of it (F25); nothing is
//              stuck then, and there are no giants.
//   budget     Where more state moves than max_migration, moved keys whose old task is open stay
//              there instead, those of least cost per byte first, until the budget holds
//              (budget_spent). A key that would then be an entry beyond the table's bound is passed
//              over; after all of them, for each one passed over, a moved key without state that is
//              an entry and was none stays at its old task too, the cheapest first. This is
//              repeated as long as the budget does not hold and something changes.
//   stay       (mixed, mixed_bf) Where a level is still above the limit, and nothing has to move
//              (every key is on an open task, and no more are away than max_table), everything
//              stays if that has a lower greatest level, by more than 1e-9 of it; no task is given
//              away then.
//   search     search.hpp, within search_moves.
//   lift       (two_sided) search.hpp.
//
// Guarantees, each a test of that name in tests/test_planner.py:
//   matches_reference   equal to the plain twins
//   constraints_hold    table and budget hold wherever they can, recomputed from the answer alone
//   deterministic       equal problems give equal answers
// Cost: see llfd.hpp; mixed takes 1 to about 10 runs. Threads: pure.
#pragma once

#include <string>

#include "plan/problem.hpp"

namespace pyroute {

enum class Algorithm : std::uint8_t { mixed, mixed_bf, min_table, min_mig, llfd, simple, readj };

// Throws std::invalid_argument for another name.
[[nodiscard]] Algorithm algorithm_named(const std::string& name);

// sigma is that of readj; 0: the best. Throws std::invalid_argument where readj is given groups.
[[nodiscard]] Placement plan(const Problem& problem, Algorithm algorithm, std::int64_t search_moves,
                             double sigma);

// The step `budget` alone.
void hold_budget(const Problem& problem, Placement& placement);

// Sorts parts by record and target, and joins those that agree in both.
void merge_parts(std::vector<Part>& parts);
// The keys that are not where they were, by record and target.
[[nodiscard]] std::vector<Part> moved_parts(const Problem& problem, const Placement& placement);

}  // namespace pyroute
