// Colocation: which server each key of consecutive operators belongs on (paper 001, past it).
//
// colocate() starts from where everything is and goes on in rounds. In a round `current` is the
// answer so far, so that stakes are paid for what the round moves, and these are compared:
//   stay       everything where it is
//   starts     partition() where `fresh`, and the partitions given, each where its value is greater
//              than that of staying by more than the fee (once improved without stakes and bounds;
//              refined alone where there are more than 2^18 pairs): its parts are matched to the
//              servers so that most bytes (where nothing has state: most load) stay where they are
//              (matching.hpp; where distances or limits tell servers apart, only if that makes the
//              worth greater), then refine(). The fee is taken off its worth.
//   warm       from where everything is: improve() (coarsen.hpp) where the value, its overload left
//              aside, is at least 4/5 of the greatest of a start. Else refine() (refine.hpp), and
//              only where no start was taken or max_migration is given: a start that is so much
//              better leaves little for it
// The one of the greatest worth that holds the bounds is taken (ties: the earlier); where staying
// does not hold them, the one that is least beyond them. Unless it takes off overload, it has to be
// worth more than staying by 1 / 1024 of the traffic of vertices that may move. Where some are
// fixed, there are no starts. It ends with the round that stays. Every round but the last makes the
// value greater by more than its stakes, so the price of moving is paid by the whole way too;
// max_migration counts from the origin in all of them.
//
// Guarantees, each a test of that name in tests/test_colocate.py:
//   unchanged_moves_nothing   a plan made again on the same statistics, without a budget of bytes,
//                             from where the plan left everything, moves nothing: its only round is
//                             the last one of the plan before
//   budget_holds              no more state moves than max_migration, unless the bound on the table
//                             sends more of it home
//   fixed_stay                a vertex that is fixed does not move
//   table_holds               no more keys of an operator are away from home than max_table
//   repeatable                equal input gives an equal plan
// Cost: that of partition(), once, and about two improve(). Threads: pure.
#pragma once

#include "plan/locality.hpp"

namespace pyroute {

struct Colocated {
  Arrangement arrangement;
  std::int64_t rounds = 0;
  std::int64_t start = -1;  // the last start that was taken: its number, fresh first; -1: none
};

// starts: one server for each vertex, each. Precondition: current == origin.
[[nodiscard]] Colocated colocate(LocalityProblem problem,
                                 const std::vector<std::vector<Position>>& starts, bool fresh,
                                 std::uint64_t seed);

}  // namespace pyroute
