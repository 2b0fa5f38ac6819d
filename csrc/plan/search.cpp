#include "plan/search.hpp"

#include <limits>
#include <optional>

#include "plan/editor.hpp"

namespace pyroute {
namespace {

class Searcher {
 public:
  Searcher(const Problem& problem, Placement& placement)
      : p_(problem),
        out_(placement),
        edit_(problem, placement),
        mean_(mean_level(problem)),
        sorted_(problem.tasks()) {
    std::vector<std::size_t> sizes(p_.tasks());
    for (std::size_t piece = 0; piece < out_.where.size(); ++piece)
      if (cost(piece) > 0) ++sizes[index(out_.where[piece])];
    for (std::size_t t = 0; t < p_.tasks(); ++t) sorted_[t].pieces.reserve(sizes[t]);
    for (std::size_t piece = 0; piece < out_.where.size(); ++piece)
      if (cost(piece) > 0)
        sorted_[index(out_.where[piece])].pieces.push_back(static_cast<std::uint32_t>(piece));
  }

  // The moves of the change that was made; 0 where none helps.
  std::int64_t step(std::int64_t most) {
    const auto tasks = static_cast<Position>(p_.tasks());
    Position d = kNowhere;
    for (Position t = 0; t < tasks; ++t)
      if (edit_.takes(t) && (d == kNowhere || edit_.level(t) > edit_.level(d))) d = t;
    if (d == kNowhere) return 0;
    best_.reset();
    const double now = edit_.level(d);
    bar_ = now - kTolerance * now;
    for (Position e = 0; e < tasks; ++e)
      if (edit_.takes(e) && edit_.level(e) < now) look_at_moves(d, e);
    if (most > 1 && (!best_ || best_->after > mean_ * (1 + 1e-4)))
      for (Position e = 0; e < tasks; ++e)
        if (edit_.takes(e) && edit_.level(e) < now) look_at_exchanges(d, e);
    if (!best_) return 0;
    const Change change = *best_;
    move(change.key, d, change.to);
    if (change.other == kNone) return 1;
    move(change.other, change.to, d);
    return 2;
  }

  // One key to the task of the least level; false where it is high enough, or none can come.
  bool lift() {
    const auto tasks = static_cast<Position>(p_.tasks());
    std::vector<Position> order;
    for (Position t = 0; t < tasks; ++t)
      if (edit_.takes(t)) order.push_back(t);
    std::stable_sort(order.begin(), order.end(),
                     [this](Position a, Position b) { return edit_.level(a) > edit_.level(b); });
    if (order.size() < 2) return false;
    Position e = order.back();
    for (const Position t : order)
      if (edit_.level(t) == edit_.level(e)) e = std::min(e, t);
    if (edit_.level(e) >= (1 - p_.max_imbalance) * mean_ * (1 - kTolerance)) return false;
    for (const Position d : order) {
      if (d == e) continue;
      const auto& list = on(d);
      // From the dearest cost down; of one cost, from the smallest id up.
      std::ptrdiff_t best = -1;
      for (std::ptrdiff_t end = first_from(list, std::nextafter(ideal(d, e), kInfinity));
           end > 0 && best < 0;) {
        const std::ptrdiff_t begin =
            first_from(list, cost(list[static_cast<std::size_t>(end - 1)]));
        for (std::ptrdiff_t i = begin; i < end && best < 0; ++i) {
          const std::uint32_t piece = list[static_cast<std::size_t>(i)];
          if (edit_.allows(edit_.more_away(piece, e), edit_.more_migration(piece, e))) best = i;
        }
        end = begin;
      }
      if (best < 0) continue;
      move(list[static_cast<std::size_t>(best)], d, e);
      return true;
    }
    return false;
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::ptrdiff_t kNear = 16;
  struct Change {
    double after;
    StateSize state;
    std::uint32_t key, other;
    Position to;
  };
  struct Sorted {
    bool done = false;
    std::vector<std::uint32_t> pieces;  // ascending by cost, then id
  };

  [[nodiscard]] Cost cost(std::size_t piece) const { return edit_.cost(piece); }
  [[nodiscard]] Key id(std::size_t piece) const { return edit_.id(piece); }
  [[nodiscard]] auto ascending() const {
    return [this](std::uint32_t a, std::uint32_t b) {
      return cost(a) != cost(b) ? cost(a) < cost(b) : id(a) < id(b);
    };
  }
  std::vector<std::uint32_t>& on(Position t) {
    Sorted& list = sorted_[index(t)];
    if (!list.done) std::sort(list.pieces.begin(), list.pieces.end(), ascending());
    list.done = true;
    return list.pieces;
  }
  // The first whose cost is not below c.
  [[nodiscard]] std::ptrdiff_t first_from(const std::vector<std::uint32_t>& list, Cost c) const {
    return std::lower_bound(list.begin(), list.end(), c,
                            [this](std::uint32_t piece, Cost x) { return cost(piece) < x; }) -
           list.begin();
  }
  [[nodiscard]] double ideal(Position d, Position e) const {
    const double of_d = p_.capacity[index(d)], of_e = p_.capacity[index(e)];
    return (out_.load[index(d)] * of_e - out_.load[index(e)] * of_d) / (of_d + of_e);
  }

  void consider(Position d, Position e, std::uint32_t key, std::uint32_t other) {
    const Cost shift = cost(key) - (other == kNone ? 0 : cost(other));
    const double after = std::max((out_.load[index(d)] - shift) / p_.capacity[index(d)],
                                  (out_.load[index(e)] + shift) / p_.capacity[index(e)]);
    if (!(after < bar_) || (best_ && after > best_->after)) return;
    std::int64_t entries = edit_.more_away(key, e);
    StateSize bytes = edit_.more_migration(key, e);
    if (other != kNone) {
      entries += edit_.more_away(other, d);
      bytes += edit_.more_migration(other, d);
    }
    if (!edit_.allows(entries, bytes)) return;
    const Change change{after, bytes, key, other, e};
    if (!best_ || before(change, *best_)) best_ = change;
  }
  [[nodiscard]] bool before(const Change& a, const Change& b) const {
    if (a.after != b.after) return a.after < b.after;
    if (a.state != b.state) return a.state < b.state;
    if ((a.other == kNone) != (b.other == kNone)) return a.other == kNone;
    if (a.to != b.to) return a.to < b.to;
    if (id(a.key) != id(b.key)) return id(a.key) < id(b.key);
    return a.other != kNone && id(a.other) < id(b.other);
  }
  void look_at_moves(Position d, Position e) {
    const auto& list = on(d);
    const std::ptrdiff_t at = first_from(list, ideal(d, e));
    const std::ptrdiff_t end = std::min(std::ssize(list), at + kNear);
    for (std::ptrdiff_t i = std::max<std::ptrdiff_t>(0, at - kNear); i < end; ++i)
      consider(d, e, list[static_cast<std::size_t>(i)], kNone);
  }
  void look_at_exchanges(Position d, Position e) {
    const auto& others = on(e);
    const double wanted = ideal(d, e);
    for (const std::uint32_t key : on(d)) {
      const std::ptrdiff_t at = first_from(others, cost(key) - wanted);
      for (std::ptrdiff_t i = std::max<std::ptrdiff_t>(0, at - 1);
           i < std::min(std::ssize(others), at + 1); ++i)
        if (const std::uint32_t other = others[static_cast<std::size_t>(i)];
            cost(other) < cost(key))
          consider(d, e, key, other);
    }
  }
  // Moves one key of a piece.
  void move(std::uint32_t piece, Position from, Position to) {
    const auto now = static_cast<std::uint32_t>(edit_.move(piece, 1, to));
    if (now == piece) {
      auto& left = on(from);
      left.erase(std::find(std::lower_bound(left.begin(), left.end(), piece, ascending()),
                           left.end(), piece));
    }
    auto& list = on(to);
    list.insert(std::upper_bound(list.begin(), list.end(), now, ascending()), now);
  }

  const Problem& p_;
  Placement& out_;
  Editor edit_;
  const double mean_;
  std::vector<Sorted> sorted_;
  std::optional<Change> best_;
  double bar_ = 0;
};

}  // namespace

std::int64_t search(const Problem& problem, Placement& placement, std::int64_t moves) {
  Searcher searcher(problem, placement);
  std::int64_t made = 0;
  while (made < moves) {
    problem.may_stop();
    const std::int64_t more = searcher.step(moves - made);
    if (more == 0) break;
    made += more;
  }
  return made;
}

void lift(const Problem& problem, Placement& placement) {
  Searcher searcher(problem, placement);
  std::size_t keys = 0;
  for (std::size_t r = 0; r < problem.records(); ++r) keys += problem.keys_of(r);
  while (keys-- > 0 && searcher.lift())
    if (keys % 64 == 0) problem.may_stop();
}

}  // namespace pyroute
