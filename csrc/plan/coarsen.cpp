#include "plan/coarsen.hpp"

#include <cmath>
#include <numeric>

#include "hash.hpp"
#include "plan/refine.hpp"

namespace pyroute {
namespace {

constexpr Vertex kAlone = static_cast<Vertex>(-1);
constexpr std::size_t kLevels = 24, kTries = 8, kHalves = 4;
constexpr std::size_t kWork = std::size_t{1} << 19;  // edges that all tries may have together
constexpr std::int64_t kGrowth = 4, kShare = 4;
constexpr double kSlack = 0.03, kHalfSlack = 1.05;

[[nodiscard]] std::size_t few(const LocalityProblem& p) {
  return std::max<std::size_t>(512, 24 * p.servers);
}

// Vertices by ascending rank, ties by a hash of the seed and the vertex.
template <class Rank>
[[nodiscard]] std::vector<Vertex> ordered(std::size_t n, std::uint64_t seed, Rank&& rank) {
  struct Entry {
    std::uint64_t rank, hash;
    Vertex vertex;
  };
  std::vector<Entry> all(n);
  for (std::size_t v = 0; v < n; ++v)
    all[v] = {rank(v), hash_int64(static_cast<std::int64_t>(v), seed), static_cast<Vertex>(v)};
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.hash < b.hash;
  });
  std::vector<Vertex> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = all[i].vertex;
  return out;
}

class Clustering {
 public:
  Clustering(const LocalityProblem& problem, std::span<const Position> where)
      : p_(problem),
        where_(where),
        cluster_(problem.vertices()),
        joined_(problem.vertices()),
        load_(problem.load),
        overflow_(problem.vertices(), kAlone),
        shared_(problem.vertices()),
        most_(problem.operators) {
    std::iota(cluster_.begin(), cluster_.end(), Vertex{0});
    std::vector<std::int64_t> members(p_.operators);
    for (std::size_t v = 0; v < p_.vertices(); ++v)
      for (std::size_t o = 0; o < p_.operators; ++o) {
        most_[o] += p_.load_of(v, o);
        members[o] += p_.load_of(v, o) > 0;
      }
    for (std::size_t o = 0; o < p_.operators; ++o)
      most_[o] = std::min(most_[o] / (kShare * static_cast<std::int64_t>(p_.servers)),
                          kGrowth * (most_[o] / std::max<std::int64_t>(1, members[o])) + 1);
  }

  void visit(Vertex v) {
    if (joined_[v] != 0) return;  // others have joined it, or it has joined one
    const auto others = p_.neighbours(v);
    const auto weights = p_.weights(v);
    Vertex best = kAlone;
    for (std::size_t e = 0; e < others.size(); ++e) {
      const Vertex c = cluster_[others[e]];
      if (!alike(v, c)) continue;
      if (shared_[c] == 0) touched_.push_back(c);
      shared_[c] += weights[e];
    }
    double greatest = -1;
    for (const Vertex c : touched_) {
      const double rank = rate(c);
      if (rank < greatest || (rank == greatest && c > best)) continue;
      greatest = rank;
      best = c;
    }
    for (const Vertex c : touched_) shared_[c] = 0;
    touched_.clear();
    if (best == kAlone) return;
    if (fits(v, best)) return join(v, best);
    const Vertex rest = overflow_[best];
    if (rest != kAlone && rest != v && fits(v, rest)) return join(v, rest);
    overflow_[best] = v;
  }

  [[nodiscard]] std::vector<Vertex>& clusters() noexcept { return cluster_; }

 private:
  // Traffic shared with a cluster, over the root of what the cluster has in all: a key that
  // everything goes with attracts nothing in particular.
  [[nodiscard]] double rate(Vertex c) const {
    std::int64_t load = 1;
    for (std::size_t o = 0; o < p_.operators; ++o) load += load_[c * p_.operators + o];
    return static_cast<double>(shared_[c]) / std::sqrt(static_cast<double>(load));
  }
  [[nodiscard]] bool alike(Vertex v, Vertex c) const {
    return where_.empty() || (where_[v] == where_[c] && p_.current[v] == p_.current[c] &&
                              p_.origin[v] == p_.origin[c] && p_.is_fixed(v) == p_.is_fixed(c));
  }
  [[nodiscard]] bool fits(Vertex v, Vertex c) const {
    if (!alike(v, c)) return false;  // an overflow is shared by all that its cluster attracts
    for (std::size_t o = 0; o < p_.operators; ++o)
      if (load_[c * p_.operators + o] + p_.load_of(v, o) > most_[o] && p_.load_of(v, o) > 0)
        return false;
    return true;
  }
  // v is alone. A cluster is named after the vertex that the others joined.
  void join(Vertex v, Vertex c) {
    cluster_[v] = c;
    joined_[v] = joined_[c] = 1;
    for (std::size_t o = 0; o < p_.operators; ++o) load_[c * p_.operators + o] += p_.load_of(v, o);
  }

  const LocalityProblem& p_;
  std::span<const Position> where_;
  std::vector<Vertex> cluster_;
  std::vector<std::uint8_t> joined_;
  std::vector<std::int64_t> load_;
  std::vector<Vertex> overflow_;
  std::vector<std::int64_t> shared_;
  std::vector<Vertex> touched_;
  std::vector<std::int64_t> most_;  // by operator
};

// Numbers clusters from 0 in the order of their vertices.
[[nodiscard]] std::size_t renumber(std::vector<Vertex>& cluster) {
  std::vector<Vertex> number(cluster.size(), kAlone);
  Vertex next = 0;
  for (Vertex& c : cluster) {
    if (number[c] == kAlone) number[c] = next++;
    c = number[c];
  }
  return next;
}

[[nodiscard]] LocalityProblem contract(const LocalityProblem& fine, std::span<const Vertex> cluster,
                                       std::size_t n) {
  LocalityProblem out;
  out.servers = fine.servers;
  out.operators = fine.operators;
  out.limit = fine.limit;
  out.penalty = fine.penalty;
  out.near = fine.near;
  out.max_table.assign(fine.operators, -1);
  out.max_migration = fine.max_migration;
  out.checkpoint = fine.checkpoint;
  out.load.resize(n * fine.operators);
  out.member.resize(n);
  out.size.resize(n);
  out.stake.resize(n);
  out.current.resize(n);
  out.origin.resize(n);
  out.fixed.resize(fine.fixed.empty() ? 0 : n);
  std::vector<std::size_t> start(n + 1);
  for (std::size_t v = 0; v < fine.vertices(); ++v) {
    const std::size_t c = cluster[v];
    ++start[c + 1];
    for (std::size_t o = 0; o < fine.operators; ++o)
      out.load[c * fine.operators + o] += fine.load_of(v, o);
    out.member[c] |= fine.member[v];
    out.size[c] += fine.size[v];
    out.stake[c] += fine.stake[v];
    out.current[c] = fine.current[v];
    out.origin[c] = fine.origin[v];
    if (!fine.fixed.empty()) out.fixed[c] = fine.fixed[v];
  }
  std::partial_sum(start.begin(), start.end(), start.begin());
  std::vector<Vertex> inside(fine.vertices());
  std::vector<std::size_t> at(start.begin(), start.end() - 1);
  for (std::size_t v = 0; v < fine.vertices(); ++v)
    inside[at[cluster[v]]++] = static_cast<Vertex>(v);

  std::vector<std::size_t> place(n, static_cast<std::size_t>(-1));
  out.offsets.reserve(n + 1);
  out.neighbour.reserve(fine.neighbour.size());
  out.weight.reserve(fine.weight.size());
  for (std::size_t c = 0; c < n; ++c) {
    const std::size_t begin = out.neighbour.size();
    for (std::size_t i = start[c]; i < start[c + 1]; ++i) {
      const auto others = fine.neighbours(inside[i]);
      const auto weights = fine.weights(inside[i]);
      for (std::size_t e = 0; e < others.size(); ++e) {
        const Vertex d = cluster[others[e]];
        if (d == c) continue;
        if (place[d] == static_cast<std::size_t>(-1)) {
          place[d] = out.neighbour.size();
          out.neighbour.push_back(d);
          out.weight.push_back(weights[e]);
        } else {
          out.weight[place[d]] += weights[e];
        }
      }
    }
    for (std::size_t e = begin; e < out.neighbour.size(); ++e)
      place[out.neighbour[e]] = static_cast<std::size_t>(-1);
    out.offsets.push_back(out.neighbour.size());
  }
  return out;
}

// The traffic, loads and limits alone.
[[nodiscard]] LocalityProblem without_history(const LocalityProblem& p) {
  LocalityProblem out = p;
  std::fill(out.size.begin(), out.size.end(), 0);
  std::fill(out.stake.begin(), out.stake.end(), 0);
  std::fill(out.current.begin(), out.current.end(), 0);
  std::fill(out.origin.begin(), out.origin.end(), 0);
  out.home.clear();
  out.fixed.clear();
  out.max_migration = -1;
  return out;
}

// Parts grown one after the other from a seeded vertex: the next one is that which shares most of
// its traffic with the part, until the part has its share of an operator.
[[nodiscard]] std::vector<Position> grown(const LocalityProblem& p, std::uint64_t seed) {
  const std::size_t n = p.vertices(), k = p.servers;
  const auto order = ordered(n, seed, [](std::size_t) -> std::uint64_t { return 0; });
  std::vector<std::int64_t> total(p.operators), rest(p.operators);
  std::vector<std::int64_t> all(n);
  for (std::size_t v = 0; v < n; ++v) {
    for (std::size_t o = 0; o < p.operators; ++o) total[o] += p.load_of(v, o);
    for (const std::int64_t w : p.weights(v)) all[v] += w;
  }
  std::vector<Position> where(n, kNowhere);
  std::vector<std::int64_t> shared(n);
  std::size_t next = 0;
  for (std::size_t s = 0; s + 1 < k; ++s) {
    const auto part = static_cast<Position>(s);
    std::fill(shared.begin(), shared.end(), 0);
    std::vector<std::int64_t> load(p.operators);
    std::vector<Vertex> front;
    std::vector<std::uint8_t> seen(n);
    const auto full = [&] {
      for (std::size_t o = 0; o < p.operators; ++o)
        if (total[o] > 0 && load[o] * static_cast<std::int64_t>(k) >= total[o]) return true;
      return false;
    };
    const auto take = [&](Vertex v) {
      where[v] = part;
      for (std::size_t o = 0; o < p.operators; ++o) load[o] += p.load_of(v, o);
      const auto others = p.neighbours(v);
      const auto weights = p.weights(v);
      for (std::size_t e = 0; e < others.size(); ++e) {
        const Vertex u = others[e];
        if (where[u] != kNowhere) continue;
        if (seen[u] == 0) front.push_back(u);
        seen[u] = 1;
        shared[u] += weights[e];
      }
    };
    while (!full()) {
      Vertex best = kAlone;
      double rank = 0;
      std::size_t left = 0;
      for (const Vertex u : front) {
        if (where[u] != kNowhere) continue;
        front[left++] = u;
        const double share = static_cast<double>(shared[u]) / static_cast<double>(all[u]);
        if (best == kAlone || share > rank || (share == rank && u < best)) {
          best = u;
          rank = share;
        }
      }
      front.resize(left);
      if (best == kAlone) {
        while (next < n && where[order[next]] != kNowhere) ++next;
        if (next == n) break;
        best = order[next];
      }
      take(best);
    }
  }
  for (Position& at : where)
    if (at == kNowhere) at = static_cast<Position>(k - 1);
  return where;
}

// Parts made by halving the servers and what is on them, again and again.
class Halving {
 public:
  Halving(const LocalityProblem& problem, std::uint64_t seed)
      : p_(problem), seed_(seed), local_(problem.vertices()), where_(problem.vertices()) {}

  [[nodiscard]] std::vector<Position> run() {
    std::vector<Vertex> all(p_.vertices());
    std::iota(all.begin(), all.end(), Vertex{0});
    split(std::move(all), 0, p_.servers);
    return std::move(where_);
  }

 private:
  void split(std::vector<Vertex> inside, std::size_t first, std::size_t last) {
    if (last - first == 1) {
      for (const Vertex v : inside) where_[v] = static_cast<Position>(first);
      return;
    }
    p_.may_stop();
    const std::size_t middle = first + (last - first) / 2;
    const LocalityProblem two = induced(inside, first, middle, last);
    Arrangement best;
    for (std::size_t i = 0; i < kHalves; ++i) {
      const std::uint64_t seed =
          hash_int64(static_cast<std::int64_t>(i),
                     hash_int64(static_cast<std::int64_t>(first * p_.servers + last), seed_));
      Arrangement one = arrange(two, grown(two, seed));
      refine(two, one, {.exchange = false, .passes = 3});
      if (i == 0 || one.value > best.value) best = std::move(one);
    }
    std::vector<Vertex> left, right;
    for (std::size_t i = 0; i < inside.size(); ++i)
      (best.where[i] == 0 ? left : right).push_back(inside[i]);
    split(std::move(left), first, middle);
    split(std::move(right), middle, last);
  }

  // The vertices with the traffic among them, on two servers that stand for two ranges.
  [[nodiscard]] LocalityProblem induced(std::span<const Vertex> inside, std::size_t first,
                                        std::size_t middle, std::size_t last) {
    LocalityProblem out;
    out.servers = 2;
    out.operators = p_.operators;
    out.near = {kNear, 0, 0, kNear};
    out.penalty = p_.penalty;
    out.max_table.assign(p_.operators, -1);
    out.checkpoint = p_.checkpoint;
    const std::size_t n = inside.size();
    out.size.assign(n, 0);
    out.stake.assign(n, 0);
    out.current.assign(n, 0);
    out.origin.assign(n, 0);
    for (std::size_t i = 0; i < n; ++i) local_[inside[i]] = static_cast<Vertex>(i + 1);
    std::vector<std::int64_t> total(p_.operators);
    for (const Vertex v : inside) {
      out.member.push_back(p_.member[v]);
      for (std::size_t o = 0; o < p_.operators; ++o) {
        out.load.push_back(p_.load_of(v, o));
        total[o] += p_.load_of(v, o);
      }
      const auto others = p_.neighbours(v);
      const auto weights = p_.weights(v);
      for (std::size_t e = 0; e < others.size(); ++e)
        if (local_[others[e]] != 0) {
          out.neighbour.push_back(local_[others[e]] - 1);
          out.weight.push_back(weights[e]);
        }
      out.offsets.push_back(out.neighbour.size());
    }
    for (const Vertex v : inside) local_[v] = 0;
    for (std::size_t o = 0; o < p_.operators; ++o) {
      const auto limits = [&](std::size_t from, std::size_t to) {
        std::int64_t sum = 0;
        for (std::size_t s = from; s < to; ++s)
          sum += std::max<std::int64_t>(0, p_.limit[o * p_.servers + s]);
        return sum;
      };
      const std::int64_t left = limits(first, middle), right = limits(middle, last);
      const double load = kHalfSlack * static_cast<double>(total[o]) /
                          static_cast<double>(std::max<std::int64_t>(1, left + right));
      for (const std::int64_t limit : {left, right})
        out.limit.push_back(
            std::min(limit, static_cast<std::int64_t>(load * static_cast<double>(limit)) + 1));
    }
    return out;
  }

  const LocalityProblem& p_;
  const std::uint64_t seed_;
  std::vector<Vertex> local_;  // position + 1 among those inside
  std::vector<Position> where_;
};

[[nodiscard]] std::vector<Position> projected(std::span<const Vertex> cluster,
                                              std::span<const Position> coarse) {
  std::vector<Position> out(cluster.size());
  for (std::size_t v = 0; v < cluster.size(); ++v) out[v] = coarse[cluster[v]];
  return out;
}

[[nodiscard]] bool worthwhile(const LocalityProblem& fine, const LocalityProblem& coarse) {
  return coarse.vertices() * 20 <= fine.vertices() * 19;
}

}  // namespace

Coarse coarsen(const LocalityProblem& fine, std::span<const Position> where, std::uint64_t seed) {
  Clustering clustering(fine, where);
  for (const Vertex v : ordered(fine.vertices(), seed, [&](std::size_t v) -> std::uint64_t {
         return fine.neighbours(v).size();
       }))
    clustering.visit(v);
  Coarse out;
  out.cluster = std::move(clustering.clusters());
  const std::size_t n = renumber(out.cluster);
  out.problem = contract(fine, out.cluster, n);
  return out;
}

std::vector<Position> partition(const LocalityProblem& problem, std::uint64_t seed) {
  const LocalityProblem plain = without_history(problem);
  std::vector<Coarse> levels;
  const auto finest = [&]() -> const LocalityProblem& {
    return levels.empty() ? plain : levels.back().problem;
  };
  while (levels.size() < kLevels && finest().vertices() > few(plain)) {
    plain.may_stop();
    Coarse next = coarsen(finest(), {}, hash_int64(static_cast<std::int64_t>(levels.size()), seed));
    if (!worthwhile(finest(), next.problem)) break;
    levels.push_back(std::move(next));
  }
  for (std::size_t l = 0; l < levels.size(); ++l) {
    const double more = kSlack * static_cast<double>(l + 1) / static_cast<double>(levels.size());
    for (auto& limit : levels[l].problem.limit)
      limit += static_cast<std::int64_t>(static_cast<double>(limit) * more);
  }
  Arrangement best;
  const std::size_t tries = std::clamp<std::size_t>(
      kWork / std::max<std::size_t>(1, finest().neighbour.size()), 2, kTries);
  for (std::size_t i = 0; i < tries; ++i) {
    plain.may_stop();
    const std::uint64_t one_seed = hash_int64(static_cast<std::int64_t>(i), seed);
    Arrangement one = arrange(finest(), Halving(finest(), one_seed).run());
    refine(finest(), one, {.passes = 2});
    if (i == 0 || one.value > best.value) best = std::move(one);
  }
  improve(finest(), best, seed);
  std::vector<Position> where = std::move(best.where);
  while (!levels.empty()) {
    where = projected(levels.back().cluster, where);
    levels.pop_back();
    Arrangement one = arrange(finest(), std::move(where));
    refine(finest(), one, {.passes = 4});
    where = std::move(one.where);
  }
  return where;
}

void improve(const LocalityProblem& problem, Arrangement& arrangement, std::uint64_t seed) {
  if (problem.vertices() > 0) {
    const Coarse coarse = coarsen(problem, arrangement.where, seed);
    if (worthwhile(problem, coarse.problem)) {
      std::vector<Position> where(coarse.problem.vertices());
      for (std::size_t v = 0; v < problem.vertices(); ++v)
        where[coarse.cluster[v]] = arrangement.where[v];
      Arrangement one = arrange(coarse.problem, std::move(where));
      const std::int64_t before = one.worth();
      improve(coarse.problem, one, hash_int64(1, seed));
      if (one.worth() > before)
        arrangement = arrange(problem, projected(coarse.cluster, one.where));
    }
  }
  refine(problem, arrangement);
}

}  // namespace pyroute
