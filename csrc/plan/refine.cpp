#include "plan/refine.hpp"

#include <limits>
#include <queue>
#include <tuple>

namespace pyroute {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min();
constexpr std::size_t kPatience = 128, kHeaviest = 64, kRounds = 20, kRepairs = 256, kFailed = 256;

struct Move {
  std::int64_t gain = kNone;
  Position to = kNowhere;
  [[nodiscard]] bool operator==(const Move&) const = default;
};

// An entry of a queue: the greatest first, of equal ones the smaller vertex.
template <class Rank>
struct Queued {
  Rank rank;
  Vertex vertex;
  [[nodiscard]] bool operator<(const Queued& other) const noexcept {
    return rank != other.rank ? rank < other.rank : vertex > other.vertex;
  }
};
template <class Rank>
using Queue = std::priority_queue<Queued<Rank>>;

class Refiner {
 public:
  Refiner(const LocalityProblem& problem, Arrangement& arrangement)
      : p_(problem),
        a_(arrangement),
        n_(problem.vertices()),
        k_(problem.servers),
        row_(k_),
        other_row_(k_),
        kept_(n_, kNoRow) {
    for (std::size_t s = 0; s < k_; ++s)
      for (std::size_t t = 0; t < k_; ++t)
        plain_ = plain_ && p_.near[s * k_ + t] == (s == t ? kNear : 0);
    std::size_t many = 0;
    for (std::size_t v = 0; v < n_; ++v)
      if (p_.neighbours(v).size() > std::max<std::size_t>(16, k_)) kept_[v] = many++ * k_;
    rows_.resize(many * k_);
    for (std::size_t v = 0; v < n_; ++v)
      if (kept_[v] != kNoRow) connect(v, rows_.data() + kept_[v]);
  }

  void repair() {
    for (std::size_t round = 0; round < kRounds && shed() > 0; ++round) p_.may_stop();
    for (std::size_t i = 0; i < kRepairs && overload(p_, a_.load) > 0 && shuffle(); ++i)
      p_.may_stop();
  }

  void trim() {
    for (std::size_t o = 0; o < p_.operators; ++o)
      if (p_.max_table[o] >= 0 && a_.tabled[o] > p_.max_table[o]) trim_table(o);
    if (p_.max_migration >= 0 && a_.migration > p_.max_migration) trim_migration();
  }

  // The sum of gains of the moves that were kept.
  std::int64_t pass() {
    std::vector<std::int64_t> live(n_, kNone);
    std::vector<Queued<std::int64_t>> first;
    first.reserve(n_);
    for (std::size_t v = 0; v < n_; ++v)
      if (const Move move = best(v); move.to != kNowhere) {
        live[v] = move.gain;
        first.push_back({move.gain, static_cast<Vertex>(v)});
      }
    Queue<std::int64_t> queue({}, std::move(first));
    std::vector<std::uint8_t> done(n_);
    std::vector<std::pair<Vertex, Position>> made;
    std::size_t kept = 0;
    std::int64_t sum = 0, greatest = 0;
    while (!queue.empty() && made.size() - kept < kPatience) {
      const auto [gain, v] = queue.top();
      queue.pop();
      if (done[v] != 0 || live[v] != gain) continue;
      const Move move = best(v);
      live[v] = move.gain;
      if (move.to == kNowhere) continue;
      if (move.gain != gain) {
        queue.push({move.gain, v});
        continue;
      }
      made.emplace_back(v, a_.where[v]);
      if (made.size() % 4096 == 0) p_.may_stop();
      this->move(v, move.to, move.gain);
      done[v] = 1;
      sum += gain;
      if (sum > greatest) {
        greatest = sum;
        kept = made.size();
      }
      for (const Vertex u : p_.neighbours(v)) {
        if (done[u] != 0) continue;
        const Move next = best(u);
        if (next.gain == live[u]) continue;
        live[u] = next.gain;
        if (next.to != kNowhere) queue.push({next.gain, u});
      }
    }
    while (made.size() > kept) {
      const auto [v, from] = made.back();
      made.pop_back();
      this->move(v, from);
    }
    return greatest;
  }

  // What it adds to the worth.
  std::int64_t exchange() {
    struct Wish {
      std::int64_t pull;
      Vertex vertex;
      Position to;
    };
    const std::int64_t before = a_.worth();
    std::vector<Wish> wishes;
    for (std::size_t v = 0; v < n_; ++v) {
      if (!single(v)) continue;
      Wish wish{0, static_cast<Vertex>(v), kNowhere};
      with_near(
          v,
          [&](const std::int64_t* row, Position to) {
            if (to == a_.where[v]) return;
            const std::int64_t pull = pull_with(row, v, to);
            if (pull <= 0 || pull < wish.pull || (pull == wish.pull && to > wish.to)) return;
            if (!bounds_allow(v, to)) return;
            wish.pull = pull;
            wish.to = to;
          },
          [](const std::int64_t*) {});
      if (wish.to != kNowhere && !has_room(v, wish.to)) wishes.push_back(wish);
    }
    std::sort(wishes.begin(), wishes.end(), [](const Wish& a, const Wish& b) {
      return a.pull != b.pull ? a.pull > b.pull : a.vertex < b.vertex;
    });
    std::vector<std::uint8_t> done(n_), asked(p_.operators * k_);
    std::vector<Queue<double>> loose(asked.size());
    std::size_t looked = 0, failed = 0;
    for (const auto& [_, v, t] : wishes) {
      if (++looked % 1024 == 0) p_.may_stop();
      if (failed == kFailed) break;
      if (done[v] != 0 || pull_of(v, t) <= 0 || !bounds_allow(v, t)) continue;
      const std::size_t at = operator_of(v) * k_ + index(t);
      if (asked[at] == 0) {
        loose[at] = loosest(operator_of(v), t);
        asked[at] = 1;
      }
      failed = displace(v, t, loose[at], done) ? 0 : failed + 1;
    }
    return a_.worth() - before;
  }

 private:
  static constexpr std::size_t kNoRow = static_cast<std::size_t>(-1);

  // Fills row[s] with the traffic, by nearness, that v would have on s.
  void connect(std::size_t v, std::int64_t* row) const {
    std::fill_n(row, k_, 0);
    const auto others = p_.neighbours(v);
    const auto weights = p_.weights(v);
    if (plain_) {
      for (std::size_t e = 0; e < others.size(); ++e)
        row[index(a_.where[others[e]])] += weights[e] * kNear;
      return;
    }
    for (std::size_t e = 0; e < others.size(); ++e) {
      const std::int64_t* const near = p_.near.data() + index(a_.where[others[e]]) * k_;
      for (std::size_t s = 0; s < k_; ++s) row[s] += weights[e] * near[s];
    }
  }
  [[nodiscard]] const std::int64_t* connection(std::size_t v) {
    if (kept_[v] != kNoRow) return rows_.data() + kept_[v];
    connect(v, other_row_.data());
    return other_row_.data();
  }

  // What leaving its server takes off the overload.
  [[nodiscard]] std::int64_t relief(std::size_t v) const {
    std::int64_t out = 0;
    const std::size_t from = index(a_.where[v]);
    for (std::size_t o = 0; o < p_.operators; ++o) {
      const std::size_t at = o * k_ + from;
      out += p_.penalty[o] * std::min(p_.load_of(v, o), excess(a_.load[at], p_.limit[at]));
    }
    return out;
  }
  // What coming to a server adds to the overload.
  [[nodiscard]] std::int64_t burden(std::size_t v, Position to) const {
    std::int64_t out = 0;
    for (std::size_t o = 0; o < p_.operators; ++o) {
      const std::size_t at = o * k_ + index(to);
      const std::int64_t before = a_.load[at], after = before + p_.load_of(v, o);
      out += p_.penalty[o] * (excess(after, p_.limit[at]) - excess(before, p_.limit[at]));
    }
    return out;
  }
  [[nodiscard]] std::int64_t stake_gain(std::size_t v, Position to) const {
    return p_.stake[v] * (static_cast<std::int64_t>(a_.where[v] != p_.current[v]) -
                          static_cast<std::int64_t>(to != p_.current[v]));
  }
  // The gain of a move without its overload.
  [[nodiscard]] std::int64_t pull_with(const std::int64_t* row, std::size_t v, Position to) const {
    return row[index(to)] - row[index(a_.where[v])] + stake_gain(v, to);
  }
  [[nodiscard]] std::int64_t pull_of(std::size_t v, Position to) {
    return pull_with(connection(v), v, to);
  }
  [[nodiscard]] std::int64_t gain_of(std::size_t v, Position to) {
    return pull_of(v, to) + relief(v) - burden(v, to);
  }

  // Whether no key of one of v's operators may be there.
  [[nodiscard]] bool closed(std::size_t v, Position to) const {
    for (std::uint64_t rest = p_.member[v]; rest != 0; rest &= rest - 1)
      if (p_.limit[static_cast<std::size_t>(std::countr_zero(rest)) * k_ + index(to)] < 0)
        return true;
    return false;
  }
  [[nodiscard]] bool has_room(std::size_t v, Position to) const {
    for (std::uint64_t rest = p_.member[v]; rest != 0; rest &= rest - 1) {
      const auto o = static_cast<std::size_t>(std::countr_zero(rest));
      const std::size_t at = o * k_ + index(to);
      if (a_.load[at] + p_.load_of(v, o) > p_.limit[at]) return false;
    }
    return true;
  }
  [[nodiscard]] std::int64_t more_tabled(std::size_t v, Position to) const {
    if (p_.home.empty()) return 0;
    return static_cast<std::int64_t>(to != p_.home[v]) -
           static_cast<std::int64_t>(a_.where[v] != p_.home[v]);
  }
  [[nodiscard]] StateSize more_migration(std::size_t v, Position to) const {
    return p_.size[v] * (static_cast<StateSize>(to != p_.origin[v]) -
                         static_cast<StateSize>(a_.where[v] != p_.origin[v]));
  }
  [[nodiscard]] bool table_allows(std::uint64_t member, std::int64_t more) const {
    if (p_.home.empty() || more <= 0) return true;
    for (std::uint64_t rest = member; rest != 0; rest &= rest - 1) {
      const auto o = static_cast<std::size_t>(std::countr_zero(rest));
      if (p_.max_table[o] >= 0 && a_.tabled[o] + more > p_.max_table[o]) return false;
    }
    return true;
  }
  [[nodiscard]] bool budget_allows(StateSize more) const {
    return p_.max_migration < 0 || more <= 0 || a_.migration + more <= p_.max_migration;
  }
  [[nodiscard]] bool bounds_allow(std::size_t v, Position to) const {
    return !p_.is_fixed(v) && budget_allows(more_migration(v, to)) &&
           table_allows(p_.member[v], more_tabled(v, to));
  }
  [[nodiscard]] bool pair_allowed(std::size_t v, Position t, std::size_t u, Position s) const {
    return !p_.is_fixed(v) && !p_.is_fixed(u) &&
           budget_allows(more_migration(v, t) + more_migration(u, s)) &&
           table_allows(p_.member[v], more_tabled(v, t) + more_tabled(u, s));
  }

  // The best move to a server that v shares traffic with, or that it is on now (`current`); where
  // its own is over a limit, to any one that has room or takes over no more overload.
  [[nodiscard]] Move best(std::size_t v) {
    return relief(v) > 0 ? best_of_all(v, true) : best_of_near(v);
  }
  [[nodiscard]] Move best_of_all(std::size_t v, bool may_overload) {
    const std::int64_t* const row = connection(v);
    const std::int64_t relieved = relief(v);
    Move out;
    for (std::size_t t = 0; t < k_; ++t) {
      const auto to = static_cast<Position>(t);
      if (to == a_.where[v]) continue;
      std::int64_t gain = pull_with(row, v, to) + relieved;
      if (gain <= out.gain) continue;
      if (!has_room(v, to)) {
        if (!may_overload || closed(v, to)) continue;
        const std::int64_t more = burden(v, to);
        gain -= more;
        if (more > relieved || gain <= out.gain) continue;
      }
      if (bounds_allow(v, to)) out = {gain, to};
    }
    return out;
  }
  [[nodiscard]] Move best_of_near(std::size_t v) {
    Move out;
    std::int64_t greatest = kNone;
    with_near(
        v, [&](const std::int64_t* row, Position to) { consider(row, v, to, greatest, out); },
        [&](const std::int64_t* row) {
          if (out.to != kNowhere) out.gain = pull_with(row, v, out.to) + relief(v);
        });
    return out;
  }
  void consider(const std::int64_t* row, std::size_t v, Position to, std::int64_t& greatest,
                Move& out) const {
    if (to == a_.where[v]) return;
    const std::int64_t here = row[index(to)] + (to == p_.current[v] ? p_.stake[v] : 0);
    if (here < greatest || (here == greatest && to > out.to)) return;
    if (!has_room(v, to) || !bounds_allow(v, to)) return;
    greatest = here;
    out.to = to;
  }
  // each(row, server) for every server that v shares traffic with and its current one, then
  // last(row). Where only the same server is near, and the neighbours are few, those are looked at
  // alone.
  template <class Each, class Last>
  void with_near(std::size_t v, Each&& each, Last&& last) {
    if (!plain_ || kept_[v] != kNoRow) {
      const std::int64_t* const row = connection(v);
      for (std::size_t t = 0; t < k_; ++t)
        if (const auto to = static_cast<Position>(t); row[t] > 0 || to == p_.current[v])
          each(row, to);
      last(row);
      return;
    }
    const auto others = p_.neighbours(v);
    const auto weights = p_.weights(v);
    for (std::size_t e = 0; e < others.size(); ++e) {
      const Position at = a_.where[others[e]];
      if (row_[index(at)] == 0) touched_.push_back(at);
      row_[index(at)] += weights[e] * kNear;
    }
    if (row_[index(p_.current[v])] == 0) touched_.push_back(p_.current[v]);
    for (const Position to : touched_) each(row_.data(), to);
    last(row_.data());
    for (const Position at : touched_) row_[index(at)] = 0;
    touched_.clear();
  }

  void move(std::size_t v, Position to) { move(v, to, gain_of(v, to)); }
  // gain: that of the move, where the caller knows it.
  void move(std::size_t v, Position to, std::int64_t gain) {
    const Position from = a_.where[v];
    const std::size_t s = index(from), t = index(to);
    for (std::size_t o = 0; o < p_.operators; ++o) {
      a_.load[o * k_ + s] -= p_.load_of(v, o);
      a_.load[o * k_ + t] += p_.load_of(v, o);
    }
    if (const std::int64_t more = more_tabled(v, to); more != 0)
      for (std::uint64_t rest = p_.member[v]; rest != 0; rest &= rest - 1)
        a_.tabled[static_cast<std::size_t>(std::countr_zero(rest))] += more;
    a_.migration += more_migration(v, to);
    const std::int64_t refund = stake_gain(v, to);
    a_.stakes -= refund;
    a_.value += gain - refund;
    a_.where[v] = to;
    const auto others = p_.neighbours(v);
    const auto weights = p_.weights(v);
    for (std::size_t e = 0; e < others.size(); ++e) {
      if (kept_[others[e]] == kNoRow) continue;
      std::int64_t* const row = rows_.data() + kept_[others[e]];
      if (plain_) {
        row[s] -= weights[e] * kNear;
        row[t] += weights[e] * kNear;
      } else {
        for (std::size_t r = 0; r < k_; ++r)
          row[r] += weights[e] * (p_.near[r * k_ + t] - p_.near[r * k_ + s]);
      }
    }
  }

  // The load that v brings to operators that are over their limit where it is.
  [[nodiscard]] std::int64_t load_over(std::size_t v) const {
    std::int64_t out = 0;
    for (std::size_t o = 0; o < p_.operators; ++o) {
      const std::size_t at = o * k_ + index(a_.where[v]);
      if (a_.load[at] > p_.limit[at]) out += p_.load_of(v, o);
    }
    return out;
  }
  // Loss per load of the best move, as a rank: greater is better.
  [[nodiscard]] double density(std::size_t v, const Move& move, std::int64_t over) const {
    return static_cast<double>(move.gain - relief(v)) / static_cast<double>(over);
  }
  std::size_t shed() {
    if (overload(p_, a_.load) == 0) return 0;
    Queue<double> queue;
    for (std::size_t v = 0; v < n_; ++v)
      if (const std::int64_t over = load_over(v); over > 0)
        if (const Move move = best_of_all(v, false); move.to != kNowhere)
          queue.push({density(v, move, over), static_cast<Vertex>(v)});
    std::size_t made = 0;
    while (!queue.empty()) {
      const auto [rank, v] = queue.top();
      queue.pop();
      const std::int64_t over = load_over(v);
      if (over == 0) continue;
      const Move move = best_of_all(v, false);
      if (move.to == kNowhere) continue;
      if (const double now = density(v, move, over); now != rank) {
        queue.push({now, v});
        continue;
      }
      this->move(v, move.to, move.gain);
      ++made;
    }
    return made;
  }

  [[nodiscard]] bool single(std::size_t v) const { return std::has_single_bit(p_.member[v]); }
  [[nodiscard]] std::size_t operator_of(std::size_t v) const {
    return static_cast<std::size_t>(std::countr_zero(p_.member[v]));
  }
  // Single keys of an operator with load on a server, by the least loss per load of leaving it,
  // room aside.
  [[nodiscard]] Queue<double> loosest(std::size_t o, Position at) {
    std::vector<Queued<double>> first;
    for (std::size_t v = 0; v < n_; ++v) {
      if (a_.where[v] != at || p_.member[v] != std::uint64_t{1} << o || p_.load_of(v, o) == 0)
        continue;
      // To a server that it shares nothing with, it loses all that it has here.
      std::int64_t greatest = kNone;
      with_near(
          v,
          [&](const std::int64_t* row, Position to) {
            if (to != at && bounds_allow(v, to))
              greatest = std::max(greatest, pull_with(row, v, to));
          },
          [&](const std::int64_t* row) {
            for (std::size_t t = 0; t < k_ && greatest == kNone; ++t)
              if (const auto to = static_cast<Position>(t); to != at && bounds_allow(v, to))
                greatest = pull_with(row, v, to);
          });
      if (greatest != kNone)
        first.push_back({static_cast<double>(greatest) / static_cast<double>(p_.load_of(v, o)),
                         static_cast<Vertex>(v)});
    }
    return Queue<double>({}, std::move(first));
  }
  // Moves v to t and others away from there until t is within its limit, if that is worth it.
  bool displace(Vertex v, Position t, Queue<double>& loose, std::vector<std::uint8_t>& done) {
    const std::size_t o = operator_of(v), at = o * k_ + index(t);
    const std::int64_t before = a_.worth();
    std::vector<std::pair<Vertex, Position>> made{{v, a_.where[v]}};
    std::vector<Queued<double>> out, aside;
    move(v, t);
    while (a_.load[at] > p_.limit[at] && out.size() < kHeaviest && aside.size() < kHeaviest &&
           !loose.empty()) {
      const auto [rank, u] = loose.top();
      loose.pop();
      if (done[u] != 0 || a_.where[u] != t || u == v) continue;
      const Move next = best_of_all(u, false);
      if (next.to == kNowhere) {
        aside.push_back({rank, u});
        continue;
      }
      if (const double now = density(u, next, p_.load_of(u, o)); now != rank) {
        loose.push({now, u});
        continue;
      }
      out.push_back({rank, u});
      made.emplace_back(u, t);
      move(u, next.to, next.gain);
    }
    for (const auto& entry : aside) loose.push(entry);
    if (a_.load[at] <= p_.limit[at] && a_.worth() > before) {
      for (const auto& [moved, _] : made) done[moved] = 1;
      return true;
    }
    for (; !made.empty(); made.pop_back()) move(made.back().first, made.back().second);
    for (const auto& entry : out) loose.push(entry);
    return false;
  }

  // The first kHeaviest keys of an operator on each server, by descending load; ties: smaller.
  [[nodiscard]] std::vector<std::vector<Vertex>> heaviest(std::size_t o) const {
    std::vector<std::vector<Vertex>> out(k_);
    for (std::size_t v = 0; v < n_; ++v)
      if (p_.member[v] == std::uint64_t{1} << o && p_.load_of(v, o) > 0)
        out[index(a_.where[v])].push_back(static_cast<Vertex>(v));
    for (auto& all : out) {
      const auto end = std::min<std::size_t>(kHeaviest, all.size());
      std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(end), all.end(),
                        [&](Vertex a, Vertex b) {
                          const std::int64_t x = p_.load_of(a, o), y = p_.load_of(b, o);
                          return x != y ? x > y : a < b;
                        });
      all.resize(end);
    }
    return out;
  }

  // One move or exchange that makes the overload less; false where there is none.
  bool shuffle() {
    std::size_t o = 0, s = 0;
    std::int64_t greatest = 0;
    for (std::size_t i = 0; i < a_.load.size(); ++i)
      if (const std::int64_t over = excess(a_.load[i], p_.limit[i]); over > greatest) {
        greatest = over;
        o = i / k_;
        s = i % k_;
      }
    struct Change {
      std::int64_t less = 0, pull = 0;
      Vertex v = 0, u = 0;
      bool two = false;
      Position to = kNowhere;
      [[nodiscard]] bool after(const Change& other) const {
        const auto rank = [](const Change& c) {
          return std::tuple(-c.less, -c.pull, c.two, c.v, c.u, c.to);
        };
        return rank(*this) > rank(other);
      }
    };
    Change chosen;
    const auto from = static_cast<Position>(s);
    const auto heavy = heaviest(o);
    const auto limit = [&](std::size_t at) { return p_.limit[o * k_ + at]; };
    const auto load = [&](std::size_t at) { return a_.load[o * k_ + at]; };
    for (std::size_t t = 0; t < k_; ++t) {
      if (t == s || limit(t) < 0) continue;
      const auto to = static_cast<Position>(t);
      const auto consider = [&](Vertex v, bool two, Vertex u) {
        const std::int64_t shift = p_.load_of(v, o) - (two ? p_.load_of(u, o) : 0);
        const std::int64_t less = excess(load(s), limit(s)) + excess(load(t), limit(t)) -
                                  excess(load(s) - shift, limit(s)) -
                                  excess(load(t) + shift, limit(t));
        if (less <= 0 || less < chosen.less) return;
        if (two ? !pair_allowed(v, to, u, from) : !bounds_allow(v, to)) return;
        const std::int64_t pull = pull_of(v, to) + (two ? pull_of(u, from) : 0);
        const Change change{less, pull, v, two ? u : 0, two, to};
        if (chosen.to == kNowhere || chosen.after(change)) chosen = change;
      };
      for (const Vertex v : heavy[s]) {
        consider(v, false, 0);
        for (const Vertex u : heavy[t]) consider(v, true, u);
      }
    }
    if (chosen.to == kNowhere) return false;
    move(chosen.v, chosen.to);
    if (chosen.two) move(chosen.u, from);
    return true;
  }

  void trim_table(std::size_t o) {
    const auto out = [&](std::size_t v) {
      return !p_.is_fixed(v) && (p_.member[v] >> o & 1) != 0 && a_.where[v] != p_.home[v];
    };
    send(
        out, p_.home, [](std::size_t) { return 1.0; },
        [&] { return a_.tabled[o] <= p_.max_table[o]; });
  }
  void trim_migration() {
    const auto out = [&](std::size_t v) {
      return !p_.is_fixed(v) && p_.size[v] > 0 && a_.where[v] != p_.origin[v] &&
             table_allows(p_.member[v], more_tabled(v, p_.origin[v]));
    };
    send(
        out, p_.origin, [&](std::size_t v) { return static_cast<double>(p_.size[v]); },
        [&] { return a_.migration <= p_.max_migration; });
  }
  // Sends vertices for which `out` holds to `targets`, least loss per unit first, until enough.
  template <class Out, class Unit, class Enough>
  void send(Out&& out, const std::vector<Position>& targets, Unit&& unit, Enough&& enough) {
    Queue<double> queue;
    const auto rank = [&](std::size_t v) {
      return static_cast<double>(gain_of(v, targets[v])) / unit(v);
    };
    for (std::size_t v = 0; v < n_; ++v)
      if (out(v)) queue.push({rank(v), static_cast<Vertex>(v)});
    while (!queue.empty() && !enough()) {
      const auto [was, v] = queue.top();
      queue.pop();
      if (!out(v)) continue;
      if (const double now = rank(v); now != was) {
        queue.push({now, v});
        continue;
      }
      move(v, targets[v]);
    }
  }

  const LocalityProblem& p_;
  Arrangement& a_;
  const std::size_t n_, k_;
  bool plain_ = true;
  std::vector<std::int64_t> row_;  // zero between calls
  std::vector<std::int64_t> other_row_, rows_;
  std::vector<Position> touched_;
  std::vector<std::size_t> kept_;  // where the row of a vertex with many neighbours is
};

}  // namespace

void refine(const LocalityProblem& problem, Arrangement& arrangement,
            const RefineOptions& options) {
  if (problem.servers < 2 || problem.vertices() == 0) return;
  Refiner refiner(problem, arrangement);
  if (options.repair) refiner.repair();
  if (options.trim) refiner.trim();
  for (int i = 0; i < options.passes; ++i) {
    problem.may_stop();
    std::int64_t gained = refiner.pass();
    if (options.exchange) gained += refiner.exchange();
    if (gained <= 0) break;
  }
}

}  // namespace pyroute
