// The colocation problem: keys of consecutive operators, the traffic between them, and servers that
// may take a limited share of each operator. What every step of a colocation reads, as plain
// arrays; nothing here decides anything.
//
//   vertex     one key of one operator, or, after coarsen.hpp, several keys that move together.
//              load: what it brings to each operator (`operators` numbers a vertex). member: bit o
//              is set where it holds keys of operator o. size: bytes of state that move with it.
//   edge       the records in which both ends occur; once in the row of either end, with one
//              weight. No edge joins two keys of one operator.
//   server     by position. limit: the load that keys may bring to one operator there, background
//              taken off already; below 0 where no key of that operator may be.
//   near       kNear - distance of two servers in units of 1 / kNear: kNear on the same server, 0
//              on the farthest
//   current    where the vertex is. A vertex elsewhere pays its stake.
//   origin     where the state is: what max_migration is counted from
//   home       where the vertex is without an entry in the table; empty: there is no bound on it
//   fixed      1: the vertex stays where it is, whatever it costs; empty: none does
//   overload   sum over operators and servers of what is above the limit, times the operator's
//              penalty
//   value      sum over edges of weight * near(ends) - overload
//   worth      value - the stakes of the vertices that are not where they are now: what is made
//              greater
// Everything is whole numbers: sums do not depend on their order, and ties are ties.
// Threads: plain values.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "ids.hpp"
#include "plan/problem.hpp"

namespace pyroute {

using Vertex = std::uint32_t;
inline constexpr std::int64_t kNear = 256;
inline constexpr std::int64_t kPenalty = 8 * kNear;  // of a load that is counted in records
// Weights and loads add up to less than this, so that no sum of theirs overflows.
inline constexpr std::int64_t kMaxTraffic = std::int64_t{1} << 48;

struct LocalityProblem {
  std::size_t servers = 0, operators = 0;
  // by vertex
  std::vector<std::int64_t> load;  // vertex * operators + operator
  std::vector<std::uint64_t> member;
  std::vector<StateSize> size;
  std::vector<std::int64_t> stake;
  std::vector<Position> current, origin, home;
  std::vector<std::uint8_t> fixed;
  // by edge, both ways: the row of v is [offsets[v], offsets[v + 1])
  std::vector<std::size_t> offsets{0};
  std::vector<Vertex> neighbour;
  std::vector<std::int64_t> weight;
  // by operator * servers + server
  std::vector<std::int64_t> limit;
  // by server * servers + server
  std::vector<std::int64_t> near;

  // by operator
  std::vector<std::int64_t> penalty;
  std::vector<std::int64_t> max_table;  // -1: any number

  StateSize max_migration = -1;  // -1: any number
  std::int64_t fee = 0;          // worth that a start from elsewhere has to add beyond its stakes

  // Asked between the steps of long work; whatever it throws ends the planning. Empty: never.
  std::function<void()> checkpoint;

  [[nodiscard]] std::size_t vertices() const noexcept { return member.size(); }
  [[nodiscard]] std::int64_t load_of(std::size_t vertex, std::size_t op) const noexcept {
    return load[vertex * operators + op];
  }
  [[nodiscard]] bool is_fixed(std::size_t vertex) const noexcept {
    return !fixed.empty() && fixed[vertex] != 0;
  }
  [[nodiscard]] std::span<const Vertex> neighbours(std::size_t vertex) const noexcept {
    return {neighbour.data() + offsets[vertex], offsets[vertex + 1] - offsets[vertex]};
  }
  [[nodiscard]] std::span<const std::int64_t> weights(std::size_t vertex) const noexcept {
    return {weight.data() + offsets[vertex], offsets[vertex + 1] - offsets[vertex]};
  }
  void may_stop() const {
    if (checkpoint) checkpoint();
  }
};

// Where everything is, with the sums that bounds and objective are about.
struct Arrangement {
  std::vector<Position> where;       // by vertex
  std::vector<std::int64_t> load;    // operator * servers + server
  std::vector<std::int64_t> tabled;  // by operator: vertices away from their home
  StateSize migration = 0;           // bytes away from their origin
  std::int64_t value = 0;
  std::int64_t stakes = 0;  // paid

  [[nodiscard]] std::int64_t worth() const noexcept { return value - stakes; }
};

[[nodiscard]] constexpr std::int64_t excess(std::int64_t load, std::int64_t limit) noexcept {
  return std::max<std::int64_t>(0, load - limit);
}

// Sums up a placement. Precondition: one server for each vertex.
[[nodiscard]] Arrangement arrange(const LocalityProblem& problem, std::vector<Position> where);
// What value loses by loads that are above their limits.
[[nodiscard]] std::int64_t overload(const LocalityProblem& problem,
                                    std::span<const std::int64_t> load);

}  // namespace pyroute
