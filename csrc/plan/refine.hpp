// Refinement of a colocation: moves and exchanges that make the worth of an arrangement greater
// (locality.hpp) and hold each operator's own limit, which a partitioner with one weight per vertex
// cannot (C1).
//
// gain(v, t) is what moving v to server t adds to the worth. A move is allowed where v is not fixed
// and, after the move, t is within its limits for every operator of v, no more vertices of an
// operator are away from home than max_table, unless the move makes them fewer, and no more state
// is away from its origin than max_migration, unless the move makes it less. best(v) is the allowed
// move of the greatest gain (ties: smaller server) to a server that v shares traffic with (by
// nearness) or is on now (`current`). Where v brings load to an operator that is over its limit on
// its server, any server will do, and in a pass also one without room (but not one that is closed
// to v), if the overload as a whole does not grow. Steps, in the order in which refine() takes
// them:
//   repair     Vertices with load where an operator is over its limit are queued by the loss per
//              load of their best move (minus its gain without overload, over what they bring to
//              the operators that are over), least first. The first is moved, unless its server is
//              within limits by now. Ends with the queue; a round that moved something is followed
//              by another, up to 20. Then, for the operator and server of the greatest excess
//              (ties: smaller operator, smaller server): of the moves of one of its 64 heaviest
//              keys to any other server, room or not, and the exchanges with one of the 64 heaviest
//              there, the one that makes the overload least (ties: greater gain, one key instead of
//              two, smaller keys, smaller server) is made as long as it makes it less, up to 256
//              times.
//   trim       Where the table is above its bound, vertices away from home are queued by their loss
//              when sent there, limits or not; the first goes, until the bound holds. Then, where
//              more state moves than max_migration, those away from their origin, by loss per byte;
//              vertices without state are left, and those for which the table has no room there.
//   pass       Every vertex is queued by the gain of its best move, greatest first. The first is
//              moved and done with for this pass, and its neighbours are queued anew. Gains may be
//              negative; the pass ends with the queue, or after 128 moves in a row that did not
//              exceed the greatest sum of gains so far. What came after that sum is undone.
//   exchange   Wishes are keys v with a server t of the greatest gain, limits aside (table and
//              budget must allow it; ties: smaller t), above 0, where t has no room for v. By
//              descending gain, each that still gains: v is moved to t, then keys of its operator
//              leave t by their best move to any server, queued by the loss per load of leaving,
//              until t is within its limit. In the beginning (with the first wish for t) that is
//              the least loss there is, room aside; a key that has no room anywhere in its turn
//              waits for the next wish. It stays where it took at most 64 of them, no more than 64
//              had to wait, and the worth grew, else it is undone. A key takes part in one such
//              exchange; 256 wishes in a row that are undone are the end of it. Vertices of several
//              keys take no part.
// Of equal ones in a queue the smaller vertex is first. What a vertex is queued by is computed when
// it is queued; where it has changed by its turn, the vertex is queued again, or dropped where
// there is no such move any more.
// Passes and exchanges alternate until neither gains anything, at most 16 times.
//
// Guarantees, each a test of that name in tests/test_refine.py:
//   matches_reference   equal to the plain twin
//   never_worse         but for repair and trim, the worth never sinks
//   limits_hold         passes and exchanges never make the overload greater
//   fixed_stay          no step moves a vertex that is fixed
//   bounds_hold         the table is within its bound, or no greater than it was; so is migration,
//                       unless the bound on the table sends more home
// Cost: about O(edges) per pass and a queue of the vertices; rows of connections are kept for
// vertices with many neighbours alone. Threads: pure.
#pragma once

#include "plan/locality.hpp"

namespace pyroute {

struct RefineOptions {
  bool repair = true, trim = true, exchange = true;
  int passes = 16;
};

// Precondition: the problem's lengths agree, near is symmetric with kNear on its diagonal, the
// arrangement was made by arrange() of it.
void refine(const LocalityProblem& problem, Arrangement& arrangement,
            const RefineOptions& options = {});

}  // namespace pyroute
