#include "plan/key_group.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "plan/discretize.hpp"
#include "plan/planner.hpp"

namespace pyroute {

KeyGroups group_keys(const Problem& keys, std::int64_t degree) {
  const std::size_t n = keys.records();
  // Keys by current task.
  std::vector<std::uint32_t> first(keys.tasks() + 1), order(n);
  for (const Position at : keys.current) ++first[static_cast<std::size_t>(at) + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<std::uint32_t> next(first.begin(), first.end() - 1);
  for (std::size_t i = 0; i < n; ++i)
    order[next[static_cast<std::size_t>(keys.current[i])]++] = static_cast<std::uint32_t>(i);

  KeyGroups out;
  out.key.reserve(n);
  out.key_cost.reserve(n);
  struct Row {
    Position home;
    double cost, size;  // levels
    std::uint32_t key;
  };
  std::vector<double> values, costs, sizes;
  std::vector<Row> rows;
  for (std::size_t t = 0; t < keys.tasks(); ++t) {
    const std::span<const std::uint32_t> own(order.data() + first[t], first[t + 1] - first[t]);
    values.resize(own.size());
    costs.resize(own.size());
    sizes.resize(own.size());
    for (std::size_t i = 0; i < own.size(); ++i) values[i] = keys.cost[own[i]];
    discretize(values, degree, costs);
    for (std::size_t i = 0; i < own.size(); ++i) values[i] = static_cast<double>(keys.size[own[i]]);
    discretize(values, degree, sizes);
    rows.clear();
    for (std::size_t i = 0; i < own.size(); ++i)
      rows.push_back({keys.home[own[i]], costs[i], sizes[i], own[i]});
    std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
      if (a.home != b.home) return a.home < b.home;
      if (a.cost != b.cost) return a.cost > b.cost;
      if (a.size != b.size) return a.size > b.size;
      return dearest_first(keys)(a.key, b.key);
    });
    for (std::size_t i = 0; i < rows.size();) {
      const Row& row = rows[i];
      out.current.push_back(static_cast<Position>(t));
      out.home.push_back(row.home);
      out.cost_level.push_back(row.cost);
      out.size_level.push_back(row.size);
      out.id.push_back(keys.id[row.key]);
      const std::size_t begin = i;
      double cost = 0, size = 0;
      for (; i < rows.size() && rows[i].home == row.home && rows[i].cost == row.cost &&
             rows[i].size == row.size;
           ++i) {
        out.key.push_back(rows[i].key);
        out.key_cost.push_back(keys.cost[rows[i].key]);
        cost += keys.cost[rows[i].key];
        size += static_cast<double>(keys.size[rows[i].key]);
      }
      const auto count = static_cast<double>(i - begin);
      out.cost.push_back(cost / count);
      out.size.push_back(static_cast<StateSize>(std::floor(size / count + 0.5)));
      out.count.push_back(static_cast<std::uint32_t>(i - begin));
    }
  }
  return out;
}

Problem grouped_problem(const Problem& keys, const KeyGroups& groups) {
  Problem out;
  out.capacity = keys.capacity;
  out.base = keys.base;
  out.open = keys.open;
  out.max_imbalance = keys.max_imbalance;
  out.two_sided = keys.two_sided;
  out.checkpoint = keys.checkpoint;
  out.beta = keys.beta;
  out.max_table = keys.max_table;
  out.max_migration = keys.max_migration;
  out.id = groups.id;
  out.cost = groups.cost;
  out.size = groups.size;
  out.current = groups.current;
  out.home = groups.home;
  out.count = groups.count;
  return out;
}

std::vector<std::pair<std::uint32_t, Position>> pick(const KeyGroups& groups,
                                                     std::span<const Part> parts) {
  std::vector<std::size_t> first(groups.groups() + 1);
  for (std::size_t g = 0; g < groups.groups(); ++g) first[g + 1] = first[g] + groups.count[g];
  std::vector<std::pair<std::uint32_t, Position>> out;
  std::map<Position, Cost> beyond;  // by target: what its keys cost more than their levels
  std::size_t dearest = 0, cheapest = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& [group, count, target] = parts[i];
    if (i == 0 || group != parts[i - 1].record) {
      dearest = first[group];
      cheapest = first[group + 1];
      if (i > 0 && groups.current[group] != groups.current[parts[i - 1].record]) beyond.clear();
    }
    Cost& more = beyond[target];
    for (std::uint32_t n = 0; n < count; ++n) {
      const std::size_t at = more > 0 ? --cheapest : dearest++;
      more += groups.key_cost[at] - groups.cost[group];
      out.emplace_back(groups.key[at], target);
    }
  }
  return out;
}

Placement expand(const Problem& keys, const KeyGroups& groups, const Problem& grouped,
                 const Placement& on) {
  Placement out;
  out.where = keys.current;
  for (const auto& [key, to] : pick(groups, moved_parts(grouped, on))) out.where[key] = to;
  out.load = keys.base;
  for (std::size_t r = 0; r < keys.records(); ++r) out.load[index(out.where[r])] += keys.cost[r];
  out.given = on.given;
  for (const Giant& giant : on.giants) {
    // The first key of the group that is on the giant's task.
    std::size_t first = 0;
    for (std::size_t g = 0; g < giant.record; ++g) first += groups.count[g];
    for (std::size_t i = first; i < first + groups.count[giant.record]; ++i)
      if (out.where[groups.key[i]] == giant.task) {
        out.giants.push_back({groups.key[i], giant.task});
        break;
      }
  }
  out.stuck = on.stuck;
  out.trials = on.trials;
  out.table_full = on.table_full;
  out.budget_spent = on.budget_spent;
  return out;
}

}  // namespace pyroute
