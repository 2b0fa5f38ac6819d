#include "plan/colocate.hpp"

#include <optional>

#include "plan/coarsen.hpp"
#include "plan/matching.hpp"
#include "plan/refine.hpp"

namespace pyroute {
namespace {

constexpr std::size_t kSmall = std::size_t{1} << 19;  // edges, both ways
constexpr std::int64_t kLittle = 1024;
constexpr int kFew = 4;  // passes where there are many pairs

// How far an arrangement is beyond the bounds on table and migration.
[[nodiscard]] std::int64_t beyond(const LocalityProblem& p, const Arrangement& a) {
  std::int64_t out = 0;
  for (std::size_t o = 0; o < p.operators; ++o)
    if (p.max_table[o] >= 0) out += excess(a.tabled[o], p.max_table[o]);
  if (p.max_migration >= 0) out += excess(a.migration, p.max_migration);
  return out;
}

// Whether any numbering of the servers is as good as another.
[[nodiscard]] bool interchangeable(const LocalityProblem& p) {
  const std::size_t k = p.servers;
  for (std::size_t s = 0; s < k; ++s) {
    for (std::size_t t = 0; t < k; ++t)
      if (p.near[s * k + t] != (s == t ? kNear : p.near[k > 1 ? 1 : 0])) return false;
    for (std::size_t o = 0; o < p.operators; ++o)
      if (p.limit[o * k + s] != p.limit[o * k]) return false;
  }
  return true;
}

[[nodiscard]] std::vector<Position> matched(const LocalityProblem& p,
                                            const std::vector<Position>& start) {
  const std::size_t k = p.servers;
  std::vector<std::int64_t> kept(k * k);
  const bool stateless =
      std::all_of(p.size.begin(), p.size.end(), [](auto size) { return size == 0; });
  for (std::size_t v = 0; v < p.vertices(); ++v) {
    std::int64_t& sum = kept[index(start[v]) * k + index(p.current[v])];
    if (!stateless)
      sum += p.size[v];
    else
      for (std::size_t o = 0; o < p.operators; ++o) sum += p.load_of(v, o);
  }
  const auto server = best_matching(kept, k);
  std::vector<Position> out(start.size());
  for (std::size_t v = 0; v < start.size(); ++v) out[v] = server[index(start[v])];
  return out;
}

class Rounds {
 public:
  Rounds(LocalityProblem problem, const std::vector<std::vector<Position>>& starts, bool fresh,
         std::uint64_t seed)
      : p_(std::move(problem)), seed_(seed), alike_(interchangeable(p_)) {
    LocalityProblem plain = p_;
    std::fill(plain.stake.begin(), plain.stake.end(), 0);
    std::fill(plain.current.begin(), plain.current.end(), 0);
    std::fill(plain.origin.begin(), plain.origin.end(), 0);
    plain.max_migration = -1;
    plain.max_table.assign(p_.operators, -1);
    for (std::size_t v = 0; v < p_.vertices(); ++v)
      if (!p_.is_fixed(v))
        for (const std::int64_t weight : p_.weights(v)) little_ += weight;
    little_ = little_ / 2 * kNear / kLittle;
    if (!p_.fixed.empty()) return;  // a start moves everything
    if (fresh) add(plain, partition(plain, seed), true);
    for (const auto& start : starts) add(plain, start, false);
  }

  [[nodiscard]] Colocated run() {
    Colocated out;
    out.arrangement = arrange(p_, p_.current);
    for (;;) {
      p_.may_stop();
      ++out.rounds;
      p_.current = out.arrangement.where;
      // Where nothing is counted from it, it must not show: a plan made again has another one.
      if (p_.max_migration < 0) p_.origin = p_.current;
      best_ = arrange(p_, p_.current);
      worth_ = best_->worth();
      taken_ = kStay;
      round();
      out.arrangement = std::move(*best_);
      if (taken_ == kStay) return out;
      if (taken_ >= 0) out.start = taken_;
    }
  }

 private:
  static constexpr std::int64_t kStay = -2, kWarm = -1;
  struct Start {
    std::vector<Position> where;
    std::int64_t value;
  };

  [[nodiscard]] bool small() const { return p_.neighbour.size() <= kSmall; }
  void add(const LocalityProblem& plain, std::vector<Position> where, bool refined) {
    Arrangement one = arrange(plain, std::move(where));
    if (small())
      improve(plain, one, seed_);
    else if (!refined)
      refine(plain, one, {.passes = kFew});
    starts_.push_back({std::move(one.where), one.value});
  }

  void round() {
    const Arrangement stay = *best_;
    std::int64_t greatest = 0;
    for (const Start& start : starts_) greatest = std::max(greatest, start.value);
    for (std::size_t i = 0; i < starts_.size(); ++i) {
      if (starts_[i].value <= stay.value + p_.fee) continue;
      p_.may_stop();
      Arrangement one = arrange(p_, matched(p_, starts_[i].where));
      if (!alike_)
        if (Arrangement same = arrange(p_, starts_[i].where); same.worth() >= one.worth())
          one = std::move(same);
      refine(p_, one, {.passes = small() ? RefineOptions().passes : kFew});
      consider(std::move(one), static_cast<std::int64_t>(i));
    }
    const std::int64_t traffic = stay.value + overload(p_, stay.load);
    const bool near = traffic >= greatest / 5 * 4;
    if (!near && taken_ != kStay && p_.max_migration < 0) return;
    Arrangement warm = stay;
    near ? improve(p_, warm, seed_) : refine(p_, warm);
    consider(std::move(warm), kWarm);
  }

  void consider(Arrangement one, std::int64_t name) {
    const std::int64_t ours = beyond(p_, one), theirs = beyond(p_, *best_);
    const std::int64_t worth = one.worth() - (name >= 0 ? p_.fee : 0);
    const bool relieves = overload(p_, one.load) < overload(p_, best_->load);
    const std::int64_t least = taken_ == kStay && !relieves ? little_ : 0;
    if (ours > theirs || (ours == theirs && worth <= worth_ + least)) return;
    best_ = std::move(one);
    worth_ = worth;
    taken_ = name;
  }

  LocalityProblem p_;
  const std::uint64_t seed_;
  const bool alike_;
  std::vector<Start> starts_;
  std::optional<Arrangement> best_;
  std::int64_t worth_ = 0;   // of the best, less its fee
  std::int64_t little_ = 0;  // not worth a round
  std::int64_t taken_ = kStay;
};

}  // namespace

Colocated colocate(LocalityProblem problem, const std::vector<std::vector<Position>>& starts,
                   bool fresh, std::uint64_t seed) {
  return Rounds(std::move(problem), starts, fresh, seed).run();
}

}  // namespace pyroute
