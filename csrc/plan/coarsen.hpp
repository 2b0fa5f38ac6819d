// Coarsening of a colocation problem: keys that belong together become one vertex, so that a whole
// community (a key with those that follow it) moves at once.
//
// coarsen()  Vertices are visited by ascending number of neighbours, ties by a hash of seed and
//            vertex. One that is still alone joins the cluster with which it shares most traffic,
//            over the root of the cluster's load (ties: the smaller number), where the two bring no
//            operator more than 1 / (4 * servers) of its load, nor 4 times the mean of a vertex;
//            else it joins the overflow of that cluster, and where that is full too, or there is
//            none, it is the next one. With `where` only vertices of the same where, current and
//            origin are joined, and fixed ones with fixed ones. Loads, sizes, stakes and traffic
//            add up; a coarse vertex has no home (the bound on the table is for the finest level).
// partition() Coarsens until at most max(512, 24 * servers) vertices are left, or nothing is
//            gained. Those are placed 8 times (less where there are many edges among them, at least
//            twice), by halving the servers and what is on them again and again (the best of 4
//            seeded halves, grown from one vertex by the greatest share of traffic with the half,
//            then refined), each is improved, the one of the greatest value is kept and refined on
//            the way back. Limits are 3 % wider on the coarsest level, and less so on those
//            between. Where a vertex is now, whether it is fixed, stakes and bounds do not count:
//            it depends on traffic, loads, limits and seed alone.
// improve()  The same on the way of an arrangement: coarsens within it, refines from there.
//
// Guarantees, each a test of that name in tests/test_coarsen.py:
//   adds_up      a coarse arrangement has the stakes, loads and migration of the fine one, and its
//                value less the traffic inside of vertices
//   improves     improve() never makes the worth less
//   repeatable   equal problems and seeds give equal answers
// Cost: O(edges) per level, and about half of the vertices from level to level. Threads: pure.
#pragma once

#include "plan/locality.hpp"

namespace pyroute {

struct Coarse {
  LocalityProblem problem;
  std::vector<Vertex> cluster;  // by fine vertex
};

// where: empty, or one for each vertex. Precondition: without it, stakes and sizes are 0.
[[nodiscard]] Coarse coarsen(const LocalityProblem& fine, std::span<const Position> where,
                             std::uint64_t seed);
[[nodiscard]] std::vector<Position> partition(const LocalityProblem& problem, std::uint64_t seed);
void improve(const LocalityProblem& problem, Arrangement& arrangement, std::uint64_t seed);

}  // namespace pyroute
