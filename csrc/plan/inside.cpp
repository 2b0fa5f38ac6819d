#include "plan/inside.hpp"

#include "plan/planner.hpp"
#include "plan/search.hpp"

namespace pyroute {
namespace {

constexpr std::int64_t kSearch = 64;

// What is wrong with a placement: entries above the table's bound, then the greatest level above
// the limit. A key on a task that is closed is worse than either.
struct Excess {
  std::int64_t closed, entries;
  double level;

  [[nodiscard]] bool better_than(const Excess& other) const noexcept {
    if (closed != other.closed) return closed < other.closed;
    if (entries != other.entries) return entries < other.entries;
    return level < other.level * (1 - kTolerance);
  }
};

[[nodiscard]] Excess excess(const Problem& p, const std::vector<Position>& where) {
  Excess found{0, 0, limit_level(p)};
  std::vector<Cost> load = p.base;
  for (std::size_t i = 0; i < p.records(); ++i) {
    load[index(where[i])] += p.cost[i];
    found.closed += p.open[index(where[i])] == 0;
    found.entries += where[i] != p.home[i];
  }
  found.entries = p.max_table < 0 ? 0 : std::max<std::int64_t>(0, found.entries - p.max_table);
  for (std::size_t t = 0; t < p.tasks(); ++t)
    if (p.open[t] != 0) found.level = std::max(found.level, load[t] / p.capacity[t]);
  return found;
}

// Planned, and searched where a task is over its limit; again from there while that is better, so
// that a plan made again moves nothing: where no placement is within limits, plans could go round
// in circles. `size`: of all keys, as such a plan would see them.
[[nodiscard]] std::vector<Position> settle(Problem p, const std::vector<StateSize>& size) {
  for (;;) {
    Placement placed = plan(p, Algorithm::mixed, 0, 0);
    if (excess(p, placed.where).level > limit_level(p)) search(p, placed, kSearch);
    if (!excess(p, placed.where).better_than(excess(p, p.current))) return p.current;
    p.current = placed.where;
    p.size = size;
    if (p.max_migration >= 0) return p.current;
  }
}

}  // namespace

std::vector<Position> place_inside(const InsideProblem& p) {
  const std::size_t n = p.id.size(), tasks = p.server.size();
  Position last = 0;
  for (const Position server : p.server) last = std::max(last, server);
  // The tasks of each server; of one whose tasks all take nothing, all of them.
  std::vector<std::vector<Position>> on(index(last) + 1);
  std::vector<std::uint8_t> takes(on.size());
  for (std::size_t t = 0; t < tasks; ++t)
    if (p.capacity[t] > 0) takes[index(p.server[t])] = 1;
  for (std::size_t t = 0; t < tasks; ++t)
    if (p.capacity[t] > 0 || takes[index(p.server[t])] == 0)
      on[index(p.server[t])].push_back(static_cast<Position>(t));
  std::vector<std::vector<std::uint32_t>> keys(on.size());
  std::vector<Position> out(n);
  std::int64_t away = 0;  // entries that no task inside the server can avoid
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t s = index(p.placed[i]);
    if (p.server[index(p.home[i])] != p.placed[i]) ++away;
    if (on[s].size() == 1)
      out[i] = on[s][0];
    else
      keys[s].push_back(static_cast<std::uint32_t>(i));
  }
  std::int64_t entries = p.max_table < 0 ? -1 : std::max<std::int64_t>(0, p.max_table - away);
  StateSize budget = p.max_migration;
  for (std::size_t s = 0; s < on.size(); ++s) {
    if (keys[s].empty()) continue;
    // The last task is closed: it holds the keys that come, and is the home of those from
    // elsewhere.
    Problem inside;
    const auto outside = static_cast<Position>(on[s].size());
    for (const Position t : on[s]) {
      inside.base.push_back(p.base[index(t)]);
      inside.capacity.push_back(takes[s] != 0 ? p.capacity[index(t)] : 1);
    }
    inside.base.push_back(0);
    inside.capacity.push_back(1);
    inside.open.assign(on[s].size() + 1, 1);
    inside.open.back() = 0;
    const auto position = [&](Position task) {
      const auto at = std::find(on[s].begin(), on[s].end(), task);
      return at == on[s].end() ? outside : static_cast<Position>(at - on[s].begin());
    };
    std::vector<StateSize> size;
    std::int64_t homeless = 0;
    for (const std::uint32_t i : keys[s]) {
      const Position current = position(p.current[i]), home = position(p.home[i]);
      inside.id.push_back(p.id[i]);
      inside.cost.push_back(p.load[i]);
      size.push_back(p.size[i]);
      inside.size.push_back(current == outside ? 0 : p.size[i]);
      inside.current.push_back(current);
      inside.home.push_back(home);
      homeless += home == outside;
    }
    inside.mean = p.mean;
    inside.max_imbalance = p.max_imbalance;
    inside.max_table = entries < 0 ? -1 : entries + homeless;
    inside.max_migration = budget;
    const std::vector<Position> placed = settle(inside, size);
    for (std::size_t i = 0; i < keys[s].size(); ++i) {
      const std::uint32_t key = keys[s][i];
      out[key] = on[s][index(placed[i])];
      if (entries > 0 && inside.home[i] != outside && placed[i] != inside.home[i]) --entries;
      if (budget > 0 && placed[i] != inside.current[i])
        budget = std::max<StateSize>(0, budget - inside.size[i]);
    }
  }
  return out;
}

}  // namespace pyroute
