#include "plan/key_group.hpp"

#include <algorithm>
#include <cmath>
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
  struct Row {
    Position home;
    Cost cost;
    StateSize size;
    double gamma;
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
    for (std::size_t i = 0; i < own.size(); ++i)
      values[i] = static_cast<double>(keys.size[own[i]]);
    discretize(values, degree, sizes);
    rows.clear();
    for (std::size_t i = 0; i < own.size(); ++i)
      rows.push_back({keys.home[own[i]], costs[i], std::llround(sizes[i]),
                      priority(keys, own[i]), own[i]});
    std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
      if (a.home != b.home) return a.home < b.home;
      if (a.cost != b.cost) return a.cost > b.cost;
      if (a.size != b.size) return a.size > b.size;
      return a.gamma != b.gamma ? a.gamma > b.gamma : keys.id[a.key] < keys.id[b.key];
    });
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Row& row = rows[i];
      const bool same = i > 0 && rows[i - 1].home == row.home && rows[i - 1].cost == row.cost &&
                        rows[i - 1].size == row.size;
      if (same) {
        ++out.count.back();
      } else {
        out.current.push_back(static_cast<Position>(t));
        out.home.push_back(row.home);
        out.cost.push_back(row.cost);
        out.size.push_back(row.size);
        out.count.push_back(1);
        out.id.push_back(keys.id[row.key]);
      }
      out.key.push_back(row.key);
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
  std::vector<std::size_t> next(groups.groups() + 1);
  for (std::size_t g = 0; g < groups.groups(); ++g) next[g + 1] = next[g] + groups.count[g];
  std::vector<std::pair<std::uint32_t, Position>> out;
  for (const Part& part : parts)
    for (std::uint32_t i = 0; i < part.count; ++i)
      out.emplace_back(groups.key[next[part.record]++], part.target);
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
