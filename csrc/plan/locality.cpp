#include "plan/locality.hpp"

namespace pyroute {

std::int64_t overload(const LocalityProblem& p, std::span<const std::int64_t> load) {
  std::int64_t over = 0;
  for (std::size_t i = 0; i < load.size(); ++i)
    over += p.penalty[i / p.servers] * excess(load[i], p.limit[i]);
  return over;
}

Arrangement arrange(const LocalityProblem& p, std::vector<Position> where) {
  Arrangement out;
  out.where = std::move(where);
  out.load.resize(p.operators * p.servers);
  out.tabled.resize(p.operators);
  std::int64_t twice = 0;  // every edge is in two rows
  for (std::size_t v = 0; v < p.vertices(); ++v) {
    const std::size_t at = index(out.where[v]);
    for (std::size_t o = 0; o < p.operators; ++o) {
      out.load[o * p.servers + at] += p.load_of(v, o);
      if (!p.home.empty() && out.where[v] != p.home[v] && (p.member[v] >> o & 1) != 0)
        ++out.tabled[o];
    }
    if (out.where[v] != p.current[v]) out.stakes += p.stake[v];
    if (out.where[v] != p.origin[v]) out.migration += p.size[v];
    const auto others = p.neighbours(v);
    const auto weights = p.weights(v);
    for (std::size_t e = 0; e < others.size(); ++e)
      twice += weights[e] * p.near[at * p.servers + index(out.where[others[e]])];
  }
  out.value = twice / 2 - overload(p, out.load);
  return out;
}

}  // namespace pyroute
