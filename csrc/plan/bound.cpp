#include "plan/bound.hpp"

#include <algorithm>
#include <functional>

namespace pyroute {

double lower_bound(const Problem& keys) {
  constexpr std::size_t kPigeons = 8;
  std::vector<double> capacity;
  double bound = mean_level(keys);
  for (std::size_t t = 0; t < keys.tasks(); ++t)
    if (keys.open[t] != 0) {
      capacity.push_back(keys.capacity[t]);
      bound = std::max(bound, keys.base[t] / keys.capacity[t]);
    }
  std::sort(capacity.begin(), capacity.end(), std::greater<>());
  const std::size_t n = capacity.size();

  // The dearest keys: a heap with the cheapest of them on top.
  const std::size_t wanted = kPigeons * n + 1;
  std::vector<Cost> dearest;
  const auto cheapest_on_top = std::greater<>();
  for (std::size_t r = 0; r < keys.records(); ++r)
    for (std::uint32_t i = 0; i < keys.keys_of(r); ++i) {
      if (dearest.size() < wanted) {
        dearest.push_back(keys.cost[r]);
        std::push_heap(dearest.begin(), dearest.end(), cheapest_on_top);
        continue;
      }
      if (!(keys.cost[r] > dearest.front())) break;
      std::pop_heap(dearest.begin(), dearest.end(), cheapest_on_top);
      dearest.back() = keys.cost[r];
      std::push_heap(dearest.begin(), dearest.end(), cheapest_on_top);
    }
  std::sort(dearest.begin(), dearest.end(), std::greater<>());
  if (dearest.empty()) return bound;

  double alone = 0;
  bool any = false;
  for (std::size_t t = 0; t < keys.tasks(); ++t)
    if (keys.open[t] != 0) {
      const double level = (keys.base[t] + dearest[0]) / keys.capacity[t];
      alone = any ? std::min(alone, level) : level;
      any = true;
    }
  bound = std::max(bound, alone);
  double cost = 0, held = 0;
  for (std::size_t j = 0; j + 1 < n && j < dearest.size(); ++j) {
    cost += dearest[j];
    held += capacity[j];
    bound = std::max(bound, cost / held);
  }
  for (std::size_t q = 1; q <= kPigeons && q * n < dearest.size(); ++q) {
    double together = 0;
    for (std::size_t j = q * n - q; j <= q * n; ++j) together += dearest[j];
    bound = std::max(bound, together / capacity[0]);
  }
  return bound * (1 - 1e-12);
}

}  // namespace pyroute
