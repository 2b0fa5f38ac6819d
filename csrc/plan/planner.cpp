#include "plan/planner.hpp"

#include <numeric>
#include <optional>
#include <queue>
#include <stdexcept>
#include <string>
#include <utility>

#include "plan/bound.hpp"
#include "plan/editor.hpp"
#include "plan/llfd.hpp"
#include "plan/readj.hpp"
#include "plan/search.hpp"

namespace pyroute {
namespace {

// Pieces for which `of` holds, ordered by `before`.
template <class Of, class Before>
std::vector<std::size_t> pieces(const Placement& placement, Of&& of, Before&& before) {
  std::vector<std::size_t> found;
  for (std::size_t piece = 0; piece < placement.where.size(); ++piece)
    if (of(piece)) found.push_back(piece);
  std::sort(found.begin(), found.end(), before);
  return found;
}

Placement simple(const Problem& p) {
  const std::size_t n = p.records();
  Placement out;
  out.where.resize(n);
  out.load = p.base;
  out.trials = 1;
  if (!p.count.empty()) {
    out.count = p.count;
    out.record.resize(n);
    std::iota(out.record.begin(), out.record.end(), 0u);
  }
  std::vector<std::uint32_t> order;
  for (std::size_t r = 0; r < n; ++r) {
    out.where[r] = start_of(p, r);
    if (p.cost[r] > 0 || out.where[r] == kNowhere) order.push_back(static_cast<std::uint32_t>(r));
  }
  std::sort(order.begin(), order.end(), dearest_first(p));
  using Level = std::pair<double, Position>;
  std::priority_queue<Level, std::vector<Level>, std::greater<>> levels;
  for (std::size_t t = 0; t < p.tasks(); ++t)
    if (p.open[t] != 0) levels.emplace(p.base[t] / p.capacity[t], static_cast<Position>(t));
  std::vector<std::uint32_t> got(p.tasks());
  for (const std::uint32_t r : order) {
    std::vector<Position> targets;
    for (std::uint32_t i = 0; i < p.keys_of(r); ++i) {
      const Position t = levels.top().second;
      levels.pop();
      out.load[index(t)] += p.cost[r];
      levels.emplace(out.load[index(t)] / p.capacity[index(t)], t);
      if (got[index(t)]++ == 0) targets.push_back(t);
    }
    out.where[r] = targets[0];
    if (!out.count.empty()) out.count[r] = got[index(targets[0])];
    got[index(targets[0])] = 0;
    for (std::size_t i = 1; i < targets.size(); ++i) {
      out.record.push_back(r);
      out.count.push_back(std::exchange(got[index(targets[i])], 0u));
      out.where.push_back(targets[i]);
    }
  }
  return out;
}

Placement run_once(const Problem& p, Psi psi, bool clean) {
  Llfd llfd(p, psi, p.beta);
  llfd.run(clean ? llfd.entries() : 0, false);
  return llfd.placement();
}

bool table_holds(const Problem& p, const Llfd& llfd) {
  return p.max_table < 0 || llfd.table_size() <= p.max_table;
}

// Runs with n entries cleaned, then as many more as the table was too large, until it is not: the
// last n, or nothing where even all of them are not enough.
std::optional<std::int64_t> run_within(const Problem& p, Llfd& llfd, std::int64_t n, bool gently) {
  for (;; n = std::min(llfd.entries(), n + llfd.table_size() - p.max_table)) {
    llfd.run(n, gently);
    if (table_holds(p, llfd)) return n;
    if (n == llfd.entries()) return {};
  }
}

// Of the last run, which cleaned n, and gentle ones the one that moves least state.
Placement gentlest(const Problem& p, Llfd& llfd, std::int64_t n) {
  StateSize least = llfd.migration();
  bool stuck = llfd.stuck() > 0;
  if (least == 0 && !stuck) return llfd.placement();
  const StateSize bound = least_migration(p);
  const double enough = 1.01 * static_cast<double>(bound);
  const auto good = [&] { return !stuck && static_cast<double>(least) <= enough; };
  Placement best = llfd.placement();
  const auto try_from = [&](Llfd& with, std::int64_t first) {
    if (good() || !run_within(p, with, first, true) || with.stuck() > 0) return;
    if (!stuck && with.migration() >= least) return;
    least = with.migration();
    stuck = false;
    best = with.placement();
  };
  try_from(llfd, n);
  if (llfd.useful() > n) try_from(llfd, llfd.useful());
  std::int64_t trials = llfd.trials();
  if (p.beta != 1 && !good()) {
    Llfd by_ratio(p, Psi::gamma, 1);
    try_from(by_ratio, n);
    if (llfd.useful() > n) try_from(by_ratio, llfd.useful());
    trials += by_ratio.trials();
  }
  best.trials = trials;
  best.least = bound;
  return best;
}

Placement mixed(const Problem& p, Llfd& llfd) {
  if (const auto n = run_within(p, llfd, 0, false)) return gentlest(p, llfd, *n);
  const std::int64_t trials = llfd.trials();
  Placement out = run_once(p, Psi::cost, true);
  out.trials += trials;
  return out;
}

Placement mixed_bf(const Problem& p, Llfd& llfd) {
  std::int64_t best = -1;
  StateSize least = 0;
  for (std::int64_t n = 0; n <= llfd.entries(); ++n) {
    llfd.run(n, false);
    if (llfd.stuck() > 0 || !table_holds(p, llfd)) continue;
    if (best >= 0 && llfd.migration() >= least) continue;
    best = n;
    least = llfd.migration();
  }
  if (best < 0) return mixed(p, llfd);
  llfd.run(best, false);
  return gentlest(p, llfd, best);
}

void return_moved(const Problem& p, Placement& out) {
  if (out.migration == 0) return;
  const std::vector<double> limit = limits(p);
  Editor edit(p, out);
  const auto found = pieces(
      out,
      [&](std::size_t piece) {
        // A giant is on a task that was given away.
        return edit.moved(piece) && edit.takes(edit.current(piece)) && edit.takes(out.where[piece]);
      },
      [&](std::size_t a, std::size_t b) {
        return edit.size(a) != edit.size(b) ? edit.size(a) > edit.size(b) : edit.before(a, b);
      });
  for (const std::size_t piece : found) {
    const Position to = edit.current(piece);
    std::uint32_t n = edit.table_allows(piece, to);
    const double room = limit[index(to)] - out.load[index(to)], each = edit.cost(piece);
    if (room < each * n) n = room >= each ? static_cast<std::uint32_t>(room / each) : 0;
    edit.move(piece, n, to);
  }
}

void hold_table(const Problem& p, Placement& out) {
  if (p.max_table < 0) return;
  Editor edit(p, out);
  if (edit.away() <= p.max_table) return;
  const auto found = pieces(
      out,
      [&](std::size_t piece) {
        return out.where[piece] != edit.home(piece) && p.open[index(edit.home(piece))] != 0;
      },
      [&](std::size_t a, std::size_t b) {
        // Not to a giant's task, as long as there are others.
        const bool of_a = edit.takes(edit.home(a)), of_b = edit.takes(edit.home(b));
        if (of_a != of_b) return of_a;
        return edit.cost(a) != edit.cost(b) ? edit.cost(a) < edit.cost(b) : edit.before(a, b);
      });
  out.table_full = true;
  for (const std::size_t piece : found) {
    if (edit.away() <= p.max_table) return;
    const auto n = std::min<std::int64_t>(edit.away() - p.max_table, out.keys_of(piece));
    edit.move(piece, static_cast<std::uint32_t>(n), edit.home(piece));
  }
}

// Nothing moved, where nothing has to be; nothing where something has to.
std::optional<Placement> stay(const Problem& p) {
  Placement out;
  out.where = p.current;
  out.count = p.count;
  out.record.resize(p.count.size());
  std::iota(out.record.begin(), out.record.end(), 0u);
  out.load = p.base;
  for (std::size_t r = 0; r < p.records(); ++r) {
    if (p.open[index(p.current[r])] == 0) return {};
    out.load[index(p.current[r])] += p.cost[r] * p.keys_of(r);
  }
  if (p.max_table >= 0 && keys_away(p, out) > p.max_table) return {};
  return out;
}

}  // namespace

void hold_budget(const Problem& p, Placement& out) {
  if (p.max_migration < 0) return;
  Editor edit(p, out);
  if (edit.migration() <= p.max_migration) return;
  const auto per_byte = [&](std::size_t piece) {
    return edit.cost(piece) / static_cast<double>(edit.size(piece));
  };
  out.budget_spent = true;
  // Again where a pass changed something: it may have made room in the table for one passed over.
  for (bool changed = true; changed;) {
    changed = false;
    std::int64_t passed = 0;  // keys that the table has no room for
    const auto found = pieces(
        out,
        [&](std::size_t piece) {
          return edit.moved(piece) && edit.size(piece) > 0 &&
                 p.open[index(edit.current(piece))] != 0;
        },
        [&](std::size_t a, std::size_t b) {
          const double of_a = per_byte(a), of_b = per_byte(b);
          return of_a != of_b ? of_a < of_b : edit.before(a, b);
        });
    for (const std::size_t piece : found) {
      const StateSize over = edit.migration() - p.max_migration, each = edit.size(piece);
      if (over <= 0) return;
      const std::int64_t most = edit.table_allows(piece, edit.current(piece));
      const std::int64_t wanted = std::min<std::int64_t>(out.keys_of(piece), (over - 1) / each + 1);
      const std::int64_t n = std::min(most, wanted);
      passed += wanted - n;
      changed = changed || n > 0;
      edit.move(piece, static_cast<std::uint32_t>(n), edit.current(piece));
    }
    const auto stateless = pieces(
        out,
        [&](std::size_t piece) {
          return edit.moved(piece) && edit.size(piece) == 0 &&
                 p.open[index(edit.current(piece))] != 0 &&
                 edit.more_away(piece, edit.current(piece)) < 0;
        },
        [&](std::size_t a, std::size_t b) {
          return edit.cost(a) != edit.cost(b) ? edit.cost(a) < edit.cost(b) : edit.before(a, b);
        });
    for (const std::size_t piece : stateless) {
      const std::int64_t n = std::min<std::int64_t>(out.keys_of(piece), passed);
      passed -= n;
      changed = changed || n > 0;
      edit.move(piece, static_cast<std::uint32_t>(n), edit.current(piece));
    }
  }
}

Algorithm algorithm_named(const std::string& name) {
  static constexpr const char* kNames[] = {"mixed", "mixed_bf", "min_table", "min_mig",
                                           "llfd",  "simple",   "readj"};
  for (std::size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<Algorithm>(i);
  throw std::invalid_argument(
      "algorithm: expected mixed, mixed_bf, min_table, min_mig, llfd, simple or readj, got " +
      name);
}

Placement plan(const Problem& p, Algorithm algorithm, std::int64_t search_moves, double sigma) {
  Placement out;
  bool beyond = false;
  switch (algorithm) {
    case Algorithm::mixed:
    case Algorithm::mixed_bf: {
      beyond = true;
      Llfd llfd(p, Psi::gamma, p.beta);
      out = algorithm == Algorithm::mixed ? mixed(p, llfd) : mixed_bf(p, llfd);
      return_moved(p, out);
      break;
    }
    case Algorithm::min_table:
      out = run_once(p, Psi::cost, true);
      break;
    case Algorithm::min_mig:
      out = run_once(p, Psi::gamma, false);
      break;
    case Algorithm::llfd:
      out = run_once(p, Psi::cost, false);
      break;
    case Algorithm::simple:
      out = simple(p);
      break;
    case Algorithm::readj:
      if (!p.count.empty()) throw std::invalid_argument("degree: expected None for readj, got one");
      out = readj(p, sigma);
      break;
  }
  hold_table(p, out);
  if (beyond && out.stuck > 0) {
    Placement other = simple(p);
    hold_table(p, other);
    if (greatest_level(p, other.load) < greatest_level(p, out.load) * (1 - kTolerance)) {
      other.trials += out.trials;
      out = std::move(other);
    }
  }
  hold_budget(p, out);
  if (beyond) {
    const double level = greatest_level(p, out.load);
    std::optional<Placement> other;
    if (level > limit_level(p)) other = stay(p);
    if (other && greatest_level(p, other->load) < level * (1 - kTolerance)) {
      other->trials = out.trials;
      other->stuck = out.stuck;
      other->table_full = out.table_full;
      other->budget_spent = out.budget_spent;
      out = std::move(*other);
    }
  }
  if (search_moves > 0) search(p, out, search_moves);
  if (p.two_sided) lift(p, out);
  return out;
}

void merge_parts(std::vector<Part>& parts) {
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return a.record != b.record ? a.record < b.record : a.target < b.target;
  });
  std::size_t kept = 0;
  for (const Part& part : parts) {
    if (kept > 0 && parts[kept - 1].record == part.record && parts[kept - 1].target == part.target)
      parts[kept - 1].count += part.count;
    else
      parts[kept++] = part;
  }
  parts.resize(kept);
}

std::vector<Part> moved_parts(const Problem& p, const Placement& placement) {
  std::vector<Part> out;
  for (std::size_t piece = 0; piece < placement.where.size(); ++piece) {
    const std::size_t r = placement.record_of(piece);
    if (placement.where[piece] != p.current[r])
      out.push_back(
          {static_cast<std::uint32_t>(r), placement.keys_of(piece), placement.where[piece]});
  }
  if (!placement.record.empty()) merge_parts(out);
  return out;
}

}  // namespace pyroute
