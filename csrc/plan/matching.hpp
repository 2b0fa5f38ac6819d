// The assignment problem: which part of a new partition is which server, so that most stays where
// it is (C11: a partitioner numbers its parts anew each time).
//
// best_matching(kept, n): kept[part * n + server] is what stays where it is if that part is that
// server. Gives a server for each part, each once, with the greatest sum; of several such
// matchings the one that the method finds, which depends on kept alone. Hungarian method with
// potentials.
//
// Guarantee: optimal (tests/test_matching.py, against every permutation).
// Cost: O(n^3). Threads: pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/problem.hpp"

namespace pyroute {

// Precondition: kept has n * n entries, none below 0 or above 2^60.
[[nodiscard]] std::vector<Position> best_matching(std::span<const std::int64_t> kept,
                                                  std::size_t n);

}  // namespace pyroute
