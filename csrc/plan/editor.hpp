// A placement under change, with the counts that the bounds on table and migration are about.
// Cost: O(pieces) once, O(1) per change. Threads: one.
#pragma once

#include "plan/problem.hpp"

namespace pyroute {

class Editor {
 public:
  // Both must outlive it.
  Editor(const Problem& problem, Placement& placement)
      : p_(problem), out_(placement), away_(placement.away), migration_(placement.migration) {
    if (away_ < 0) away_ = keys_away(problem, placement);
    if (migration_ < 0) migration_ = state_moved(problem, placement);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  [[nodiscard]] Cost cost(std::size_t piece) const { return p_.cost[out_.record_of(piece)]; }
  [[nodiscard]] StateSize size(std::size_t piece) const { return p_.size[out_.record_of(piece)]; }
  [[nodiscard]] Key id(std::size_t piece) const { return p_.id[out_.record_of(piece)]; }
  [[nodiscard]] Position home(std::size_t piece) const { return p_.home[out_.record_of(piece)]; }
  [[nodiscard]] Position current(std::size_t piece) const {
    return p_.current[out_.record_of(piece)];
  }
  // Order of pieces that are alike otherwise: by id, then by the task they are on.
  [[nodiscard]] bool before(std::size_t a, std::size_t b) const {
    return id(a) != id(b) ? id(a) < id(b) : out_.where[a] < out_.where[b];
  }
  [[nodiscard]] bool moved(std::size_t piece) const { return out_.where[piece] != current(piece); }
  [[nodiscard]] bool takes(Position task) const { return out_.takes(p_, task); }
  [[nodiscard]] double level(Position task) const {
    return out_.load[index(task)] / p_.capacity[index(task)];
  }

  [[nodiscard]] std::int64_t away() const noexcept { return away_; }
  [[nodiscard]] StateSize migration() const noexcept { return migration_; }
  // What one key of a piece that goes to a task adds to them.
  [[nodiscard]] std::int64_t more_away(std::size_t piece, Position to) const {
    return static_cast<std::int64_t>(to != home(piece)) -
           static_cast<std::int64_t>(out_.where[piece] != home(piece));
  }
  [[nodiscard]] StateSize more_migration(std::size_t piece, Position to) const {
    return size(piece) * (static_cast<StateSize>(to != current(piece)) -
                          static_cast<StateSize>(out_.where[piece] != current(piece)));
  }
  // How many keys of a piece may go to a task without more entries than the table may have.
  [[nodiscard]] std::uint32_t table_allows(std::size_t piece, Position to) const {
    const std::uint32_t n = out_.keys_of(piece);
    if (p_.max_table < 0 || more_away(piece, to) <= 0) return n;
    return static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(p_.max_table - away_, 0, static_cast<std::int64_t>(n)));
  }
  // Whether the bounds allow changes that add so much; what adds nothing is always allowed.
  [[nodiscard]] bool allows(std::int64_t entries, StateSize bytes) const {
    return (p_.max_table < 0 || entries <= 0 || away_ + entries <= p_.max_table) &&
           (p_.max_migration < 0 || bytes <= 0 || migration_ + bytes <= p_.max_migration);
  }

  // Moves n keys of a piece to a task: the piece they are now.
  std::size_t move(std::size_t piece, std::uint32_t n, Position to) {
    if (n == 0) return piece;
    away_ += more_away(piece, to) * n;
    migration_ += more_migration(piece, to) * n;
    out_.load[index(out_.where[piece])] -= cost(piece) * n;
    out_.load[index(to)] += cost(piece) * n;
    if (n == out_.keys_of(piece)) {
      out_.where[piece] = to;
      return piece;
    }
    out_.count[piece] -= n;
    out_.record.push_back(out_.record[piece]);
    out_.count.push_back(n);
    out_.where.push_back(to);
    return out_.where.size() - 1;
  }

 private:
  const Problem& p_;
  Placement& out_;
  std::int64_t& away_;
  StateSize& migration_;
};

}  // namespace pyroute
