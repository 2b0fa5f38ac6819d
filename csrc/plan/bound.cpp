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

StateSize least_migration(const Problem& p) {
  const std::vector<double> limit = limits(p);
  std::vector<Cost> load = p.base;
  StateSize forced = 0;
  for (std::size_t r = 0; r < p.records(); ++r) {
    if (p.open[index(p.current[r])] == 0) forced += p.size[r] * p.keys_of(r);
    load[index(p.current[r])] += p.cost[r] * p.keys_of(r);
  }
  std::vector<std::uint8_t> over(p.tasks());
  bool any = false;
  for (std::size_t t = 0; t < p.tasks(); ++t)
    any |= (over[t] = p.open[t] != 0 && load[t] > limit[t]) != 0;
  if (!any) return forced;
  struct Key {
    double per_cost;
    std::uint32_t record;
    [[nodiscard]] bool operator<(const Key& other) const {
      return per_cost > other.per_cost;  // the least on top
    }
  };
  std::vector<std::vector<Key>> keys(p.tasks());
  for (std::size_t r = 0; r < p.records(); ++r)
    if (const std::size_t t = index(p.current[r]); over[t] != 0 && p.cost[r] > 0)
      keys[t].push_back(
          {static_cast<double>(p.size[r]) / p.cost[r], static_cast<std::uint32_t>(r)});
  double moved = 0;
  for (std::size_t t = 0; t < p.tasks(); ++t) {
    if (over[t] == 0) continue;
    double left = load[t] - limit[t];
    std::make_heap(keys[t].begin(), keys[t].end());
    while (left > 0 && !keys[t].empty()) {
      const auto [per_cost, r] = keys[t].front();
      const double taken = std::min(left, p.cost[r] * p.keys_of(r));
      moved += taken * per_cost;
      left -= taken;
      std::pop_heap(keys[t].begin(), keys[t].end());
      keys[t].pop_back();
    }
  }
  return forced + static_cast<StateSize>(moved * (1 - kTolerance));
}

}  // namespace pyroute
