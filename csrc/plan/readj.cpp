#include "plan/readj.hpp"

#include <optional>

namespace pyroute {
namespace {

class Readjuster {
 public:
  Readjuster(const Problem& problem, double least)
      : p_(problem), limit_(limits(problem)), on_(problem.tasks()) {
    out_.where.resize(p_.records());
    out_.load = p_.base;
    out_.trials = 1;
    std::vector<std::uint32_t> entries, nowhere;
    for (std::size_t r = 0; r < p_.records(); ++r) {
      const Position at = out_.where[r] = start_of(p_, r);
      if (at == kNowhere) {
        nowhere.push_back(static_cast<std::uint32_t>(r));
        continue;
      }
      out_.load[index(at)] += p_.cost[r];
      if (at != p_.home[r] && p_.open[index(p_.home[r])] != 0)
        entries.push_back(static_cast<std::uint32_t>(r));
    }
    std::sort(nowhere.begin(), nowhere.end(), dearest_first(p_));
    for (const std::uint32_t r : nowhere) {
      std::size_t best = p_.tasks();
      for (std::size_t t = 0; t < p_.tasks(); ++t)
        if (p_.open[t] != 0 && (best == p_.tasks() || level(t) < level(best))) best = t;
      out_.where[r] = static_cast<Position>(best);
      out_.load[best] += p_.cost[r];
    }
    std::sort(entries.begin(), entries.end(), dearest_first(p_));
    for (const std::uint32_t r : entries) {
      const std::size_t from = index(out_.where[r]), home = index(p_.home[r]);
      if (out_.load[home] + p_.cost[r] > limit_[home]) continue;
      out_.load[from] -= p_.cost[r];
      out_.load[home] += p_.cost[r];
      out_.where[r] = p_.home[r];
    }
    for (std::size_t r = 0; r < p_.records(); ++r)
      if (p_.cost[r] >= least && p_.cost[r] > 0)
        on_[index(out_.where[r])].push_back(static_cast<std::uint32_t>(r));
    while (change()) p_.may_stop();
  }
  [[nodiscard]] bool balanced() const {
    for (std::size_t t = 0; t < p_.tasks(); ++t)
      if (p_.open[t] != 0 && out_.load[t] > limit_[t]) return false;
    return true;
  }
  [[nodiscard]] Placement& out() { return out_; }

 private:
  struct Best {
    double gain;
    StateSize state;
    std::size_t i, j, key, other;  // positions in on_[i] and on_[j]; other: its size for none
  };
  [[nodiscard]] double level(std::size_t t) const { return out_.load[t] / p_.capacity[t]; }
  [[nodiscard]] StateSize state(std::uint32_t r, std::size_t to) const {
    const std::size_t current = index(p_.current[r]), from = index(out_.where[r]);
    return p_.size[r] *
           (static_cast<StateSize>(to != current) - static_cast<StateSize>(from != current));
  }
  [[nodiscard]] bool before(const Best& a, const Best& b) const {
    if (a.gain != b.gain) return a.gain > b.gain;
    if (a.state != b.state) return a.state < b.state;
    if (a.i != b.i) return a.i < b.i;
    if (a.j != b.j) return a.j < b.j;
    const Key key_a = p_.id[on_[a.i][a.key]], key_b = p_.id[on_[b.i][b.key]];
    if (key_a != key_b) return key_a < key_b;
    const bool none_a = a.other == on_[a.j].size(), none_b = b.other == on_[b.j].size();
    if (none_a || none_b) return none_a && !none_b;
    return p_.id[on_[a.j][a.other]] < p_.id[on_[b.j][b.other]];
  }
  bool change() {
    std::optional<Best> best;
    for (std::size_t i = 0; i < p_.tasks(); ++i) {
      if (p_.open[i] == 0 || out_.load[i] <= limit_[i]) continue;
      for (std::size_t j = 0; j < p_.tasks(); ++j) {
        if (p_.open[j] == 0 || i == j) continue;
        const double now = std::max(level(i), level(j));
        for (std::size_t k = 0; k < on_[i].size(); ++k)
          for (std::size_t m = 0; m <= on_[j].size(); ++m) {
            const bool none = m == on_[j].size();
            const Cost shift = p_.cost[on_[i][k]] - (none ? 0 : p_.cost[on_[j][m]]);
            const double after = std::max((out_.load[i] - shift) / p_.capacity[i],
                                          (out_.load[j] + shift) / p_.capacity[j]);
            const double gain = now - after;
            if (!(gain > kTolerance * now) || (best && gain < best->gain)) continue;
            const StateSize bytes = state(on_[i][k], j) + (none ? 0 : state(on_[j][m], i));
            const Best found{gain, bytes, i, j, k, m};
            if (!best || before(found, *best)) best = found;
          }
      }
    }
    if (!best) return false;
    auto &from = on_[best->i], &to = on_[best->j];
    const std::uint32_t key = from[best->key];
    const bool none = best->other == to.size();
    shift(key, best->i, best->j);
    if (none) {
      from.erase(from.begin() + static_cast<std::ptrdiff_t>(best->key));
      to.push_back(key);
    } else {
      shift(to[best->other], best->j, best->i);
      std::swap(from[best->key], to[best->other]);
    }
    return true;
  }
  void shift(std::uint32_t r, std::size_t from, std::size_t to) {
    out_.load[from] -= p_.cost[r];
    out_.load[to] += p_.cost[r];
    out_.where[r] = static_cast<Position>(to);
  }

  const Problem& p_;
  const std::vector<double> limit_;
  std::vector<std::vector<std::uint32_t>> on_;  // keys that take part, by task
  Placement out_;
};

}  // namespace

Placement readj(const Problem& problem, double sigma) {
  const double mean = mean_level(problem);
  if (sigma > 0) return std::move(Readjuster(problem, sigma * mean).out());
  std::optional<Placement> best;
  bool best_balanced = false;
  StateSize least = 0;
  double lowest = 0;
  std::int64_t trials = 0;
  for (double share = 1;; share /= 2) {
    const auto part =
        static_cast<std::size_t>(std::count_if(problem.cost.begin(), problem.cost.end(),
                                               [&](Cost c) { return c >= share * mean && c > 0; }));
    if (best && part > 2048) break;
    Readjuster tried(problem, share * mean);
    ++trials;
    const bool balanced = tried.balanced();
    const StateSize moved = state_moved(problem, tried.out());
    const double greatest = greatest_level(problem, tried.out().load);
    if (!best ||
        (balanced ? !best_balanced || moved < least : !best_balanced && greatest < lowest)) {
      best = std::move(tried.out());
      best_balanced = balanced;
      least = moved;
      lowest = greatest;
    }
    if (part == static_cast<std::size_t>(std::count_if(problem.cost.begin(), problem.cost.end(),
                                                       [](Cost c) { return c > 0; })))
      break;
  }
  best->trials = trials;
  return std::move(*best);
}

}  // namespace pyroute
