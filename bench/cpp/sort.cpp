// std::sort of (cost, index) pairs: the measure of a planner's speed.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

extern "C" double sort_pairs(const double* costs, std::uint32_t count) {
  std::vector<std::pair<double, std::uint32_t>> pairs(count);
  for (std::uint32_t i = 0; i < count; ++i) pairs[i] = {costs[i], i};
  std::sort(pairs.begin(), pairs.end());
  return pairs[count / 2].first;
}
