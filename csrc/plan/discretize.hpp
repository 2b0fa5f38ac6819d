// HLHE: half-linear-half-exponential rounding that makes values alike (paper 002, IV-B).
//
// Values x > 0 are divided by the smallest of them, so that each is at least 1; by 2^-52 of the
// greatest where that is more, and what is then below 1 counts as 1. With R = 2^r and s = floor(max
// / R) the representatives are s * R, (s - 1) * R, ..., R (linear), R / 2, R / 4, ..., 1 (halving);
// where max < R there is no linear part, and they are the whole numbers 1 to floor(max) (F28).
// Values are taken in descending order (ties: smaller position first). One at or above the greatest
// representative is rounded to it. Any other lies between two neighbours, y <= x < y', and takes
// the one that leaves the smaller absolute sum of deviations x - phi(x) so far, the lower where
// they tie (F15); a value that is a representative itself may be moved too, which is what cancels
// the error of others. Values of 0 stay 0. The result is multiplied by the divisor again. The
// caller gives each task a call of its own, so one accumulator per task (F28).
//
// Guarantees, each a test of that name in tests/test_discretize.py:
//   matches_reference   equal to the plain twin
//   figure_6            8 6 3 2 2 1 1 1 1 1 with R = 4: deviation 0
//   neighbours          every value gets one of its two neighbours
// Cost: one sort; memory 12 bytes per value. Threads: pure.
#pragma once

#include <span>
#include <vector>

#include "ids.hpp"

namespace pyroute {

// Throws std::invalid_argument where degree is not a power of two from 1 to 2^30.
void check_degree(std::int64_t degree);

// out[i] = the representative of values[i]. Precondition: values finite and >= 0, out of equal
// size, degree checked.
void discretize(std::span<const double> values, std::int64_t degree, std::span<double> out);

}  // namespace pyroute
