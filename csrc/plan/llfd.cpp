#include "plan/llfd.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace pyroute {
namespace {

// How many keys have to go for `over` to be gone.
std::uint32_t needed(Cost over, Cost each, std::uint32_t most) {
  const double n = std::ceil(over / each);
  return n < static_cast<double>(most) ? std::max(1u, static_cast<std::uint32_t>(n)) : most;
}

// How many fit into the room.
std::uint32_t fitting(Cost room, Cost each, std::uint32_t most) {
  if (!(room >= each)) return 0;
  const double n = std::floor(room / each);
  return n < static_cast<double>(most) ? static_cast<std::uint32_t>(n) : most;
}

}  // namespace

// Pieces up to `base` are there at the start of every run, later ones were split off in this run.
struct Llfd::State {
  struct Ranked {
    double rank;
    std::uint32_t piece;
  };

  const Problem& p;
  const Psi psi;
  const double beta;
  const bool grouped;

  const std::vector<double> limit;
  std::vector<Giant> giants;
  std::vector<std::uint8_t> given;        // empty: no task is
  std::size_t base = 0;                   // pieces at the start
  std::vector<Position> start;            // by piece of the start
  std::vector<std::uint32_t> start_left;  // keys of it, only where grouped
  std::vector<Cost> start_load;
  std::vector<std::uint32_t> forced;   // pieces without a start
  std::vector<std::uint32_t> entries;  // pieces that cleaning can send home, in its order
  std::int64_t entry_keys = 0, useful_keys = 0;
  std::int64_t start_away = 0;  // keys whose start is not their home
  StateSize start_migration = 0;
  std::vector<std::uint32_t> members, first;  // pieces by start task, and where each task begins

  // The pieces of a task at the start that cost something, sorted as far as it was asked for.
  struct Order {
    bool built = false;
    std::size_t sorted = 0;
    std::vector<Ranked> heap;  // a heap, then the sorted ones from the back
  };
  std::vector<Order> by_psi, by_cost;

  // Of one run. A piece that psi can still choose is ahead of the cursor in its task's order, or
  // among the arrivals of its task; never both.
  std::vector<Position> where;
  std::vector<std::uint32_t> record, left;  // only where grouped
  std::vector<std::uint8_t> placed;         // by phase III
  std::vector<Cost> load;
  std::vector<std::uint32_t> touched;
  std::vector<std::vector<Ranked>> arrivals;  // by task, heaps by psi
  std::vector<std::size_t> cursor;
  struct Eligible {  // what a candidate could displace on a task
    bool begun = false;
    Cost sum = 0;
    std::size_t cursor = 0;       // in by_cost
    std::vector<Ranked> arrived;  // pieces that by_cost does not have, the dearest at the back
  };
  std::vector<Eligible> eligible;
  std::vector<Ranked> candidates;  // a heap by cost
  std::set<std::pair<double, Position>> levels;
  std::int64_t away = 0, stuck = 0, runs = 0;
  StateSize migration = 0;

  State(const Problem& problem, Psi order, double weight)
      : p(problem),
        psi(order),
        beta(weight),
        grouped(!problem.count.empty()),
        limit(limits(problem)) {
    by_psi.resize(p.tasks());
    by_cost.resize(p.tasks());
    arrivals.resize(p.tasks());
    cursor.resize(p.tasks());
    eligible.resize(p.tasks());
    start = p.current;
    if (grouped) {
      start_left = p.count;
      record.resize(p.records());
      for (std::size_t r = 0; r < p.records(); ++r) record[r] = static_cast<std::uint32_t>(r);
    }
    const std::vector<std::uint32_t> giant_pieces = find_giants();
    base = start.size();
    start_load = p.base;
    bool simple = !grouped && giants.empty();
    for (const std::uint8_t open : p.open) simple = simple && open != 0;
    if (simple) {  // the usual case: every key starts where it is
      for (std::size_t r = 0; r < base; ++r) start_load[index(start[r])] += p.cost[r];
      for (std::size_t r = 0; r < base; ++r)
        if (start[r] != p.home[r]) entries.push_back(static_cast<std::uint32_t>(r));
      entry_keys = start_away = std::ssize(entries);
    }
    for (std::size_t piece = 0; piece < base && !simple; ++piece) begin(piece, giant_pieces);
    where = start;
    left = start_left;
    order_entries();
    placed.assign(base, 0);
  }

  [[nodiscard]] std::size_t rec(std::size_t piece) const noexcept {
    return grouped ? record[piece] : piece;
  }
  [[nodiscard]] Cost cost(std::size_t piece) const noexcept { return p.cost[rec(piece)]; }
  [[nodiscard]] Key id(std::size_t piece) const noexcept { return p.id[rec(piece)]; }
  [[nodiscard]] std::uint32_t keys(std::size_t piece) const noexcept {
    return grouped ? left[piece] : 1;
  }
  [[nodiscard]] Cost cost_of_all(std::size_t piece) const noexcept {
    return cost(piece) * static_cast<double>(keys(piece));
  }
  [[nodiscard]] bool takes(Position task) const noexcept {
    return p.open[index(task)] != 0 && (given.empty() || given[index(task)] == 0);
  }

  // The useful ones, the harmless ones, the others; each by ascending state size.
  void order_entries() {
    std::sort(entries.begin(), entries.end(), [&](std::uint32_t a, std::uint32_t b) {
      const StateSize of_a = p.size[rec(a)], of_b = p.size[rec(b)];
      return of_a != of_b ? of_a < of_b : id(a) < id(b);
    });
    std::vector<Cost> room(p.tasks());  // below 0: over the limit
    for (std::size_t t = 0; t < p.tasks(); ++t) room[t] = limit[t] - start_load[t];
    const auto useful = [&](std::uint32_t piece) {
      const Cost c = cost_of_all(piece);
      Cost &from = room[index(start[piece])], &home = room[index(p.home[rec(piece)])];
      if (c > -from || c > home) return false;
      from += c;
      home -= c;
      useful_keys += keys(piece);
      return true;
    };
    const auto harmless = [&](std::uint32_t piece) {
      Cost& home = room[index(p.home[rec(piece)])];
      const bool fits = cost_of_all(piece) <= home;
      if (fits) home -= cost_of_all(piece);
      return fits;
    };
    const auto others = std::stable_partition(entries.begin(), entries.end(), useful);
    std::stable_partition(others, entries.end(), harmless);
  }

  // Settles where a piece starts and counts it.
  void begin(std::size_t piece, const std::vector<std::uint32_t>& giant_pieces) {
    const std::size_t r = rec(piece);
    const std::uint32_t n = grouped ? start_left[piece] : 1;
    const bool giant = !giant_pieces.empty() && std::find(giant_pieces.begin(), giant_pieces.end(),
                                                          piece) != giant_pieces.end();
    Position& at = start[piece];
    if (!giant && p.open[index(at)] == 0) at = takes(p.home[r]) ? p.home[r] : kNowhere;
    if (at == kNowhere) {
      forced.push_back(static_cast<std::uint32_t>(piece));
      return;
    }
    if (at != p.current[r]) start_migration += p.size[r] * n;
    start_load[index(at)] += p.cost[r] * static_cast<double>(n);
    if (at == p.home[r]) return;
    start_away += n;
    if (giant || !takes(p.home[r])) return;
    entries.push_back(static_cast<std::uint32_t>(piece));
    entry_keys += n;
  }

  // Gives tasks away, puts the giants there; their pieces.
  std::vector<std::uint32_t> find_giants() {
    double most = 0;
    std::size_t open = 0;
    for (std::size_t t = 0; t < p.tasks(); ++t)
      if (p.open[t] != 0) {
        most = std::max(most, limit[t]);
        ++open;
      }
    std::vector<std::uint32_t> found, pieces;
    for (std::size_t r = 0; r < p.records(); ++r)
      if (p.cost[r] > most) found.push_back(static_cast<std::uint32_t>(r));
    if (found.empty() || open < 2) return pieces;
    std::sort(found.begin(), found.end(), dearest_first(p));
    given.assign(p.tasks(), 0);
    // Loads without the giants that have their task already.
    std::vector<Cost> rest = p.base;
    for (std::size_t r = 0; r < p.records(); ++r)
      rest[index(p.current[r])] += p.cost[r] * static_cast<double>(p.keys_of(r));
    for (const std::uint32_t r : found)
      for (std::uint32_t n = p.keys_of(r); n > 0 && giants.size() + 1 < open; --n) {
        rest[index(p.current[r])] -= p.cost[r];
        const Position best = takes(p.current[r]) ? p.current[r] : roomiest(rest);
        given[index(best)] = 1;
        giants.push_back({r, best});
        if (grouped && start_left[r] > 1) {
          --start_left[r];
          start_left.push_back(1);
          record.push_back(r);
          start.push_back(best);
          pieces.push_back(static_cast<std::uint32_t>(start.size() - 1));
        } else {
          start[r] = best;
          pieces.push_back(r);
        }
      }
    if (giants.empty()) given.clear();
    return pieces;
  }

  // The greatest capacity, then the least level of what is given, among the tasks that take keys.
  [[nodiscard]] Position roomiest(const std::vector<Cost>& rest) const {
    Position best = kNowhere;
    for (Position t = 0; t < std::ssize(p.capacity); ++t) {
      if (!takes(t)) continue;
      const double room = p.capacity[index(t)];
      const double most = best == kNowhere ? -1 : p.capacity[index(best)];
      if (room > most || (room == most && rest[index(t)] / room < rest[index(best)] / most))
        best = t;
    }
    return best;
  }

  [[nodiscard]] Ranked ranked(std::uint32_t piece) const {
    return {psi == Psi::cost ? cost(piece) : priority(p, rec(piece), beta), piece};
  }
  // Heap order: the greatest rank on top, of equal ones the smallest id.
  [[nodiscard]] auto below() const {
    return [this](const Ranked& a, const Ranked& b) {
      return a.rank != b.rank ? a.rank < b.rank : id(a.piece) > id(b.piece);
    };
  }
  void push(std::vector<Ranked>& heap, Ranked entry) {
    heap.push_back(entry);
    std::push_heap(heap.begin(), heap.end(), below());
  }
  void pop(std::vector<Ranked>& heap) {
    std::pop_heap(heap.begin(), heap.end(), below());
    heap.pop_back();
  }

  void list_members() {
    if (!first.empty()) return;
    first.assign(p.tasks() + 1, 0);
    for (const Position at : start)
      if (at != kNowhere) ++first[index(at) + 1];
    for (std::size_t t = 0; t < p.tasks(); ++t) first[t + 1] += first[t];
    members.resize(first.back());
    std::vector<std::uint32_t> next(first.begin(), first.end() - 1);
    for (std::size_t piece = 0; piece < base; ++piece)
      if (start[piece] != kNowhere)
        members[next[index(start[piece])]++] = static_cast<std::uint32_t>(piece);
  }
  Order& built(std::vector<Order>& orders, std::size_t task) {
    Order& order = orders[task];
    if (order.built) return order;
    order.built = true;
    list_members();
    order.heap.reserve(first[task + 1] - first[task]);
    for (std::size_t i = first[task]; i < first[task + 1]; ++i)
      if (const std::uint32_t piece = members[i]; cost(piece) > 0)
        order.heap.push_back(&orders == &by_psi ? ranked(piece) : Ranked{cost(piece), piece});
    std::make_heap(order.heap.begin(), order.heap.end(), below());
    return order;
  }
  Order& psi_order(std::size_t task) { return built(by_psi, task); }
  Order& cost_order(std::size_t task) { return built(psi == Psi::cost ? by_psi : by_cost, task); }
  // The i-th of an order; null beyond its end.
  const Ranked* at(Order& order, std::size_t i) {
    const std::size_t n = order.heap.size();
    if (i >= n) return nullptr;
    for (; order.sorted <= i; ++order.sorted)
      std::pop_heap(order.heap.begin(),
                    order.heap.end() - static_cast<std::ptrdiff_t>(order.sorted), below());
    return &order.heap[n - 1 - i];
  }

  [[nodiscard]] bool is_on(std::uint32_t piece, std::size_t task) const {
    return where[piece] == static_cast<Position>(task) && placed[piece] == 0;
  }
  struct Next {
    Ranked entry;
    bool arrived;
  };
  // The first key of a task in the order psi that is still there; false where there is none.
  bool peek(std::size_t task, Next& out) {
    Order& order = psi_order(task);
    const Ranked* own = at(order, cursor[task]);
    while (own != nullptr && !is_on(own->piece, task)) own = at(order, ++cursor[task]);
    auto& came = arrivals[task];
    while (!came.empty() && !is_on(came.front().piece, task)) pop(came);
    if (own == nullptr && came.empty()) return false;
    const bool arrived = own == nullptr || (!came.empty() && below()(*own, came.front()));
    out = {arrived ? came.front() : *own, arrived};
    return true;
  }
  void pass(std::size_t task, const Next& next) {
    if (next.arrived)
      pop(arrivals[task]);
    else
      ++cursor[task];
  }

  // A piece of n keys of this one, on the same task: the piece itself where that is all of it.
  std::uint32_t split(std::uint32_t piece, std::uint32_t n) {
    if (n == keys(piece)) return piece;
    touched.push_back(piece);
    left[piece] -= n;
    record.push_back(record[piece]);
    left.push_back(n);
    where.push_back(where[piece]);
    placed.push_back(placed[piece]);
    return static_cast<std::uint32_t>(record.size() - 1);
  }
  void put(std::uint32_t piece, Position to) {
    where[piece] = to;
    touched.push_back(piece);
  }

  void reset() {
    for (const std::uint32_t piece : touched)
      if (piece < base) {
        where[piece] = start[piece];
        placed[piece] = 0;
        if (grouped) left[piece] = start_left[piece];
      }
    touched.clear();
    where.resize(base);
    placed.resize(base);
    if (grouped) {
      record.resize(base);
      left.resize(base);
    }
    load = start_load;
    for (std::size_t t = 0; t < p.tasks(); ++t) {
      arrivals[t].clear();
      cursor[t] = 0;
      eligible[t].begun = false;
      eligible[t].arrived.clear();
    }
    stuck = 0;
    candidates.clear();
    for (const std::uint32_t piece : forced) push(candidates, {cost(piece), piece});
  }

  // Phase I.
  void clean(std::int64_t n) {
    for (std::size_t i = 0; i < entries.size() && n > 0; ++i) {
      const std::uint32_t whole = entries[i];
      const auto take = static_cast<std::uint32_t>(
          std::min<std::int64_t>(n, static_cast<std::int64_t>(keys(whole))));
      const Position from = where[whole], home = p.home[rec(whole)];
      const std::uint32_t piece = split(whole, take);
      load[index(from)] -= cost_of_all(piece);
      load[index(home)] += cost_of_all(piece);
      put(piece, home);
      if (cost(piece) > 0) push(arrivals[index(home)], ranked(piece));
      n -= take;
    }
  }

  void take_off(std::uint32_t piece, std::size_t task) {
    load[task] -= cost_of_all(piece);
    put(piece, kNowhere);
  }

  // Phase II for a task that was given away.
  void clear_for(const Giant& giant) {
    const std::size_t t = index(giant.task);
    const Cost tolerated = p.max_imbalance * p.cost[giant.record];
    std::int64_t least =
        p.max_table < 0 ? std::numeric_limits<std::int64_t>::max()
                        : std::max<std::int64_t>(p.max_table - start_away, 0) / std::ssize(giants);
    Cost rest = 0;
    std::vector<Ranked> others;
    list_members();
    for (std::size_t i = first[t]; i < first[t + 1]; ++i) {
      const std::uint32_t piece = members[i];
      if (!(cost(piece) > 0) || rec(piece) == giant.record || !is_on(piece, t)) continue;
      others.push_back({cost(piece), piece});
      rest += cost_of_all(piece);
    }
    std::make_heap(others.begin(), others.end(), below());
    while (!others.empty() && (least > 0 || rest > tolerated)) {
      const std::uint32_t whole = others.front().piece;
      pop(others);
      const std::uint32_t for_cost =
          rest > tolerated ? needed(rest - tolerated, cost(whole), keys(whole)) : 0;
      const std::uint32_t piece =
          split(whole, std::max(for_cost, static_cast<std::uint32_t>(std::clamp<std::int64_t>(
                                              least, 0, static_cast<std::int64_t>(keys(whole))))));
      rest -= cost_of_all(piece);
      least -= keys(piece);
      take_off(piece, t);
      push(candidates, {cost(piece), piece});
    }
  }

  // What a gentle run holds for dear.
  [[nodiscard]] Cost dear() const {
    Cost room = 0;
    for (std::size_t t = 0; t < p.tasks(); ++t)
      if (takes(static_cast<Position>(t))) room = std::max(room, limit[t] - load[t]);
    return room;
  }

  // Phase II.
  void prepare(std::size_t t) {
    std::vector<std::uint32_t> taken;
    for (Next next; load[t] > limit[t] && peek(t, next);)
      if (take(t, next.entry.piece, taken)) pass(t, next);
    put_back(t, taken);
  }
  // As many keys of a piece as have to go; whether that is all of it.
  bool take(std::size_t t, std::uint32_t whole, std::vector<std::uint32_t>& taken) {
    taken.push_back(split(whole, needed(load[t] - limit[t], cost(whole), keys(whole))));
    take_off(taken.back(), t);
    return taken.back() == whole;
  }
  void put_back(std::size_t t, const std::vector<std::uint32_t>& taken) {
    for (std::size_t i = taken.size(); i-- > 0;) {
      const std::uint32_t piece = taken[i];
      const std::uint32_t n = fitting(limit[t] - load[t], cost(piece), keys(piece));
      if (n < keys(piece)) push(candidates, {cost(piece), piece});
      if (n == 0) continue;
      const std::uint32_t back = split(piece, n);
      load[t] += cost_of_all(back);
      put(back, static_cast<Position>(t));
      push(arrivals[t], ranked(back));
    }
  }

  void prepare_gently(std::size_t t, Cost dear) {
    constexpr std::size_t kPassed = 1024;
    std::vector<std::uint32_t> taken;
    std::vector<Ranked> passed;
    for (Next next; load[t] > limit[t] && passed.size() < kPassed && peek(t, next);) {
      const std::uint32_t whole = next.entry.piece;
      const std::uint32_t n =
          cost(whole) > dear ? 0 : fitting(load[t] - limit[t], cost(whole), keys(whole));
      pass(t, next);
      if (n > 0) {
        taken.push_back(split(whole, n));
        take_off(taken.back(), t);
      }
      if (n == 0 || taken.back() != whole) passed.push_back(next.entry);
    }
    while (load[t] > limit[t] && !passed.empty()) {
      const Cost over = load[t] - limit[t];
      std::size_t best = passed.size();
      const auto better = [&](std::size_t i) {
        // Enough by itself and not dear; enough by itself; the earliest.
        const auto kind = [&](std::size_t j) {
          const Cost c = cost(passed[j].piece);
          return c < over ? 2 : c > dear ? 1 : 0;
        };
        if (best == passed.size()) return true;
        if (kind(i) != kind(best)) return kind(i) < kind(best);
        return kind(i) < 2 && p.size[rec(passed[i].piece)] < p.size[rec(passed[best].piece)];
      };
      for (std::size_t i = 0; i < passed.size(); ++i)
        if (better(i)) best = i;
      if (take(t, passed[best].piece, taken))
        passed.erase(passed.begin() + static_cast<std::ptrdiff_t>(best));
    }
    for (const Ranked& entry : passed) push(arrivals[t], entry);
    put_back(t, taken);
  }

  // Phase III.
  void assign() {
    levels.clear();
    for (std::size_t t = 0; t < p.tasks(); ++t)
      if (takes(static_cast<Position>(t))) levels.emplace(level(t), static_cast<Position>(t));
    while (!candidates.empty()) {
      const std::uint32_t top = candidates.front().piece;
      if (keys(top) == 1) pop(candidates);
      const std::uint32_t piece = split(top, 1);
      const Cost c = cost(piece);
      Position to = kNowhere;
      Cost displaced = 0;
      for (const auto& [_, task] : levels) {
        const std::size_t t = index(task);
        if (load[t] + c > limit[t] && (displaced = adjust(t, c)) == 0) continue;
        to = task;
        break;
      }
      if (to == kNowhere) {
        to = levels.begin()->second;
        ++stuck;
      }
      const std::size_t t = index(to);
      levels.erase({level(t), to});
      load[t] += c - displaced;
      levels.emplace(level(t), to);
      put(piece, to);
      placed[piece] = 1;
    }
  }
  [[nodiscard]] double level(std::size_t t) const { return load[t] / p.capacity[t]; }

  // Cost of the keys on a task that are cheaper than c; c never grows in a run.
  Cost cheaper(std::size_t t, Cost c) {
    Eligible& e = eligible[t];
    if (!e.begun) {
      e.begun = true;
      e.cursor = 0;
      e.sum = 0;
      Order& order = cost_order(t);
      for (const Ranked& entry : order.heap)
        if (is_on(entry.piece, t)) e.sum += cost_of_all(entry.piece);
      for (const Ranked& entry : arrivals[t]) {
        if (!is_on(entry.piece, t)) continue;
        if (entry.piece < base && start[entry.piece] == static_cast<Position>(t)) continue;
        e.arrived.push_back({cost(entry.piece), entry.piece});
        e.sum += cost_of_all(entry.piece);
      }
      std::sort(e.arrived.begin(), e.arrived.end(), below());
    }
    Order& order = cost_order(t);
    for (const Ranked* entry = at(order, e.cursor); entry != nullptr && entry->rank >= c;
         entry = at(order, ++e.cursor))
      if (is_on(entry->piece, t)) e.sum -= cost_of_all(entry->piece);
    for (; !e.arrived.empty() && e.arrived.back().rank >= c; e.arrived.pop_back())
      if (is_on(e.arrived.back().piece, t)) e.sum -= cost_of_all(e.arrived.back().piece);
    return e.sum;
  }

  // Takes an exchangeable set off a task so that a candidate of cost c fits: its cost, 0 where
  // there is none. The caller changes the load.
  Cost adjust(std::size_t t, Cost c) {
    // The sum is rounded: a little more than it says may be there.
    if (load[t] + c - cheaper(t, c) * (1 + kTolerance) > limit[t]) return 0;
    struct Member {
      Next next;
      std::uint32_t keys;
    };
    std::vector<Member> set;
    Cost now = load[t] + c;
    for (Next next; now > limit[t] && peek(t, next);) {
      const std::uint32_t piece = next.entry.piece;
      pass(t, next);
      if (!(cost(piece) < c)) continue;  // nor will a later candidate be dearer
      const std::uint32_t n = needed(now - limit[t], cost(piece), keys(piece));
      now -= cost(piece) * static_cast<double>(n);
      set.push_back({next, n});
    }
    const bool found = now <= limit[t];
    Cost out = 0;
    for (std::size_t i = set.size(); i-- > 0;) {
      auto& [next, n] = set[i];
      const Cost each = cost(next.entry.piece);
      const std::uint32_t spared = found ? fitting(limit[t] - now, each, n) : n;
      now += each * static_cast<double>(spared);
      n -= spared;
    }
    for (const auto& [next, n] : set) {
      const std::uint32_t whole = next.entry.piece;
      if (n < keys(whole)) push(arrivals[t], next.entry);  // the rest can be chosen again
      if (n == 0) continue;
      const std::uint32_t piece = split(whole, n);
      out += cost_of_all(piece);
      put(piece, kNowhere);
      push(candidates, {cost(piece), piece});
    }
    eligible[t].sum -= out;
    return out;
  }

  void count() {
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    away = start_away;
    migration = start_migration;
    for (const std::uint32_t piece : touched) {
      const std::size_t r = rec(piece);
      const auto n = static_cast<std::int64_t>(keys(piece));
      if (where[piece] != p.home[r]) away += n;
      if (where[piece] != p.current[r]) migration += p.size[r] * n;
      if (piece >= base || start[piece] == kNowhere) continue;
      const std::int64_t was = grouped ? start_left[piece] : 1;
      if (start[piece] != p.home[r]) away -= was;
      if (start[piece] != p.current[r]) migration -= p.size[r] * was;
    }
  }
};

Llfd::Llfd(const Problem& problem, Psi psi, double beta)
    : state_(std::make_unique<State>(problem, psi, beta)) {}
Llfd::~Llfd() = default;

std::int64_t Llfd::entries() const noexcept { return state_->entry_keys; }
std::int64_t Llfd::useful() const noexcept { return state_->useful_keys; }
std::int64_t Llfd::table_size() const noexcept { return state_->away; }
StateSize Llfd::migration() const noexcept { return state_->migration; }
std::int64_t Llfd::stuck() const noexcept { return state_->stuck; }
std::int64_t Llfd::trials() const noexcept { return state_->runs; }

void Llfd::run(std::int64_t clean, bool gently) {
  State& s = *state_;
  s.p.may_stop();
  s.reset();
  s.clean(clean);
  for (const Giant& giant : s.giants) s.clear_for(giant);
  const Cost dear = s.dear();
  for (std::size_t t = 0; t < s.p.tasks(); ++t)
    if (s.takes(static_cast<Position>(t)) && s.load[t] > s.limit[t])
      gently ? s.prepare_gently(t, dear) : s.prepare(t);
  s.assign();
  s.count();
  ++s.runs;
}

Placement Llfd::placement() const {
  const State& s = *state_;
  Placement out;
  out.where = s.where;
  out.record = s.record;
  out.count = s.left;
  out.load = s.load;
  out.giants = s.giants;
  out.given = s.given;
  out.stuck = s.stuck;
  out.trials = s.runs;
  out.away = s.away;
  out.migration = s.migration;
  return out;
}

}  // namespace pyroute
