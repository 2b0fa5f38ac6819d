#include "plan/plan.hpp"

#include <limits>
#include <map>
#include <numeric>
#include <stdexcept>

#include "plan/bound.hpp"
#include "plan/discretize.hpp"
#include "plan/editor.hpp"
#include "plan/key_group.hpp"

namespace pyroute {

PlanInput::PlanInput(const Snapshot& snapshot, const RoutingTable& table,
                     std::span<const Split> splits, const ValueList& split_names, const Batch& pins,
                     std::span<const TaskId> pinned_to)
    : snapshot_(snapshot), splits_(splits) {
  const ValueList pin_names(pins);
  std::vector<Key> pin_ids(pins.size());
  pins.ids(0, pins.size(), pin_ids.data());
  kinds_ = unify(snapshot.names().kinds(), table.names().kinds(), "table");
  kinds_ = unify(kinds_, split_names.kinds(), "splits");
  if (pins.size() > 0) kinds_ = unify(kinds_, pins.kinds(), "pins");
  if ((!table.empty() && table.names().kinds().empty()) ||
      (!splits.empty() && split_names.kinds().empty()))
    kinds_.clear();

  for (const Key id : table.ids()) specials_.push_back({.id = id});
  for (const Split& split : splits) specials_.push_back({.id = split.id});
  for (const Key id : pin_ids) specials_.push_back({.id = id});
  if (!splits.empty() || !pin_ids.empty()) {
    std::sort(specials_.begin(), specials_.end(),
              [](const Special& a, const Special& b) { return a.id < b.id; });
    const auto same = [](const Special& a, const Special& b) { return a.id == b.id; };
    specials_.erase(std::unique(specials_.begin(), specials_.end(), same), specials_.end());
  }
  for (std::size_t i = 0; i < table.size(); ++i) find(table.ids()[i])->tabled = table.targets()[i];
  for (std::size_t i = 0; i < splits.size(); ++i)
    find(splits[i].id)->split = static_cast<std::int32_t>(i);
  for (std::size_t i = 0; i < pin_ids.size(); ++i) {
    Special& special = *find(pin_ids[i]);
    if (special.pinned >= 0)
      throw std::invalid_argument("pins: expected each key once, got one twice");
    special.pinned = pinned_to[i];
  }

  // Which rows of the snapshot are special. The table has most of them, and finds a block at once.
  std::vector<Key> others;
  for (const Special& special : specials_)
    if (special.tabled < 0) others.push_back(special.id);
  const std::span<const Key> ids = snapshot.ids();
  if (!specials_.empty()) {
    const RoutingTable other(others, std::vector<TaskId>(others.size()), {});
    TaskId found[kBlock];
    for (std::size_t begin = 0; begin < ids.size(); begin += kBlock) {
      const auto block = ids.subspan(begin, std::min(kBlock, ids.size() - begin));
      std::fill_n(found, block.size(), TaskId{-1});
      if (!table.empty()) table.override(block, found);
      if (!others.empty()) other.override(block, found);
      for (std::size_t i = 0; i < block.size(); ++i)
        if (found[i] >= 0)
          if (Special& special = *find(block[i]); special.row == kNone) special.row = begin + i;
    }
  }
  std::size_t missing = 0;
  for (const Special& special : specials_) missing += special.row == kNone;
  if (missing == 0) return;
  more_ids_.reserve(ids.size() + missing);
  more_ids_.assign(ids.begin(), ids.end());
  std::vector<std::size_t> pin_order(pin_ids.size());
  std::iota(pin_order.begin(), pin_order.end(), std::size_t{0});
  std::sort(pin_order.begin(), pin_order.end(),
            [&](std::size_t a, std::size_t b) { return pin_ids[a] < pin_ids[b]; });
  const auto pin_of = [&](Key id) {
    return *std::lower_bound(pin_order.begin(), pin_order.end(), id,
                             [&](std::size_t at, Key key) { return pin_ids[at] < key; });
  };
  for (Special& special : specials_) {
    if (special.row != kNone) continue;
    special.row = more_ids_.size();
    more_ids_.push_back(special.id);
    if (special.tabled >= 0) {
      const auto at = std::lower_bound(table.ids().begin(), table.ids().end(), special.id);
      more_names_.push_back(
          table.names().encoded(static_cast<std::size_t>(at - table.ids().begin()), special.id));
    } else if (special.split >= 0) {
      more_names_.push_back(
          split_names.encoded(static_cast<std::size_t>(special.split), special.id));
    } else {
      more_names_.push_back(pin_names.encoded(pin_of(special.id), special.id));
    }
  }
}

PlanInput::Special* PlanInput::find(Key id) noexcept {
  const auto at = std::lower_bound(specials_.begin(), specials_.end(), id,
                                   [](const Special& s, Key key) { return s.id < key; });
  return at == specials_.end() || at->id != id ? nullptr : &*at;
}

std::string PlanInput::encoded(std::size_t row) const {
  return row < seen() ? snapshot_.names().encoded(row, snapshot_.ids()[row])
                      : more_names_[row - seen()];
}

ValueList PlanInput::names(std::span<const std::size_t> rows) const {
  ValueList out(kinds_);
  if (out.stored())
    for (const std::size_t row : rows) out.push(encoded(row));
  return out;
}

namespace {

// Positions of task ids: an array where they are small, else a search.
class Positions {
 public:
  explicit Positions(std::span<const TaskId> tasks) : tasks_(tasks) {
    if (tasks.back() > (1 << 20)) return;
    dense_.assign(static_cast<std::size_t>(tasks.back()) + 1, kNowhere);
    for (std::size_t t = 0; t < tasks.size(); ++t)
      dense_[index(tasks[t])] = static_cast<Position>(t);
  }
  [[nodiscard]] Position operator()(TaskId task) const noexcept {
    if (!dense_.empty()) return dense_[index(task)];
    return static_cast<Position>(std::lower_bound(tasks_.begin(), tasks_.end(), task) -
                                 tasks_.begin());
  }

 private:
  std::span<const TaskId> tasks_;
  std::vector<Position> dense_;
};

// A key with several owners, before the plan or after it.
struct Shared {
  std::size_t row;
  std::vector<Position> before, after;  // one owner: not split
};

class Maker {
 public:
  Maker(const PlanInput& input, std::span<const TaskId> tasks, std::span<const TaskId> homes_before,
        std::span<const TaskId> homes_after, const PlanOptions& options,
        const std::function<double()>& clock)
      : in_(input),
        at_(tasks),
        homes_before_(homes_before),
        homes_after_(homes_after),
        options_(options),
        clock_(clock) {
    out_.tasks.assign(tasks.begin(), tasks.end());
    out_.open = options.open;
  }

  Plan make() {
    set_tasks();
    locate();
    fix_keys();
    fill_problem();
    set_bounds();
    settle();
    write_moves();
    return std::move(out_);
  }

 private:
  void set_tasks() {
    const std::size_t tasks = out_.tasks.size();
    double open = 0, capacity = 0;
    for (std::size_t t = 0; t < tasks; ++t)
      if (options_.open[t] != 0) {
        open += 1;
        capacity += options_.capacities[t];
      }
    for (std::size_t t = 0; t < tasks; ++t) {
      out_.capacities.push_back(options_.capacities[t] * (open / capacity));
      // Beyond that, loads and limits would be lost in rounding.
      if (!(out_.capacities[t] >= 1e-9 && out_.capacities[t] <= 1e9))
        throw std::invalid_argument(
            "capacities: expected each within a factor of 1e9 of their mean, got " +
            std::to_string(options_.capacities[t]) + " for task " + std::to_string(out_.tasks[t]));
    }
    p_.capacity = out_.capacities;
    p_.open = options_.open;
    p_.max_imbalance = options_.max_imbalance;
    p_.two_sided = options_.two_sided;
    p_.checkpoint = options_.checkpoint;
    p_.beta = options_.beta;
    base_.assign(tasks, 0);
    for (const Load& load : in_.snapshot().background()) base_[index(at_(load.task))] += load.cost;
    out_.loads_before = base_;
    double all = 0;
    for (std::size_t row = 0; row < in_.seen(); ++row) {
      all += in_.cost(row);
      if (__builtin_add_overflow(out_.state_total, in_.size(row), &out_.state_total))
        throw std::invalid_argument("state_sizes: expected a total below 2^63, got more");
    }
    for (std::size_t t = 0; t < tasks; ++t) all += p_.open[t] != 0 ? base_[t] : 0;
    // Loads are sums of these, so all of them are finite, a few times over.
    if (!(all * (1 + options_.max_imbalance) < std::numeric_limits<double>::max() * 1e-12))
      throw std::invalid_argument("costs: expected a finite total, got more than a double holds");
    out_.mean = all / open;
    out_.limit = (1 + options_.max_imbalance) * out_.mean;
    for (std::size_t t = 0; t < tasks; ++t)
      if (p_.open[t] != 0) most_ = std::max(most_, out_.limit * p_.capacity[t] * (1 + kTolerance));
    open_ = static_cast<std::size_t>(open);
  }

  // Where every key is, and which have several owners.
  void locate() {
    const std::size_t rows = in_.ids().size();
    current_.resize(rows);
    for (std::size_t row = 0; row < rows; ++row) current_[row] = at_(homes_before_[row]);
    for (const PlanInput::Special& special : in_.specials()) {
      Position& at = current_[special.row];
      if (special.tabled >= 0) at = at_(special.tabled);
      if (special.split < 0) continue;
      Shared key{special.row, {}, {}};
      for (const TaskId task : in_.splits()[static_cast<std::size_t>(special.split)].tasks)
        key.before.push_back(at_(task));
      const auto open = std::find_if(key.before.begin(), key.before.end(),
                                     [&](Position t) { return p_.open[index(t)] != 0; });
      at = open == key.before.end() ? key.before[0] : *open;  // where it is joined, should it be
      by_row_.emplace(special.row, std::move(key));
    }
    if (!options_.mergeable || open_ < 2) return;
    for (std::size_t row = 0; row < in_.seen(); ++row)
      if (in_.cost(row) > most_) by_row_.emplace(row, Shared{row, {current_[row]}, {}});
  }

  void fix(std::size_t row) {
    fixed_.resize(in_.ids().size());
    fixed_[row] = 1;
  }
  [[nodiscard]] bool is_fixed(std::size_t row) const { return !fixed_.empty() && fixed_[row] != 0; }

  // Which keys the planner does not get: doubles, pinned keys, and those that are split.
  void fix_keys() {
    // Two values of one id stay, all of them where the first is.
    std::map<Key, std::size_t> firsts;
    for (const std::size_t row : in_.snapshot().doubles()) firsts.emplace(in_.ids()[row], row);
    for (std::size_t row = 0; !firsts.empty() && row < in_.seen(); ++row)
      if (const auto same = firsts.find(in_.ids()[row]); same != firsts.end()) {
        same->second = std::min(same->second, row);
        current_[row] = current_[same->second];
        fix(row);
        pinned_.push_back({row, open_for(current_[row], at_(homes_after_[row]))});
      }
    for (const PlanInput::Special& special : in_.specials()) {
      if (special.pinned < 0) continue;
      if (is_fixed(special.row))
        throw std::invalid_argument(
            "pins: expected a key with an identity of its own, got one of two values of one");
      fix(special.row);
      pinned_.push_back({special.row, at_(special.pinned)});
    }
    for (const auto& [row, to] : pinned_) {
      base_[index(to)] += in_.cost(row);
      fixed_entries_ += to != at_(homes_after_[row]);
      if (to != current_[row]) fixed_migration_ += in_.size(row);
      if (const auto key = by_row_.find(row); key != by_row_.end()) key->second.after = {to};
    }
    for (auto& [row, key] : by_row_) {
      const std::size_t owners = is_fixed(row) ? 1 : wanted_owners(key);
      if (owners > 1) {
        fix(row);
        key.after.resize(owners);
      }
      shared_.push_back(key);  // one owner, not pinned: joined, and the planner says where
    }
  }

  void fill_problem() {
    const std::size_t rows = in_.ids().size();
    const std::span<const Key> ids = in_.ids();
    const std::span<const Cost> costs = in_.snapshot().costs();
    const std::span<const StateSize> sizes = in_.snapshot().state_sizes();
    if (fixed_.empty() && by_row_.empty()) {  // the usual case: every row is a record
      rows_.resize(rows);
      std::iota(rows_.begin(), rows_.end(), 0u);
      p_.id.assign(ids.begin(), ids.end());
      p_.cost.assign(costs.begin(), costs.end());
      p_.size.assign(sizes.begin(), sizes.end());
      p_.cost.resize(rows);
      p_.size.resize(rows);
      p_.current = current_;
      p_.home.resize(rows);
      for (std::size_t row = 0; row < rows; ++row) p_.home[row] = at_(homes_after_[row]);
      for (std::size_t row = 0; row < costs.size(); ++row)
        out_.loads_before[index(current_[row])] += costs[row];
      return;
    }
    for (std::size_t row = 0; row < rows; ++row) {
      const auto key = by_row_.find(row);
      const std::span<const Position> owners = key == by_row_.end()
                                                   ? std::span<const Position>(&current_[row], 1)
                                                   : std::span<const Position>(key->second.before);
      for (const Position owner : owners)
        out_.loads_before[index(owner)] += in_.cost(row) / static_cast<double>(owners.size());
      if (is_fixed(row)) continue;
      rows_.push_back(static_cast<std::uint32_t>(row));
      p_.id.push_back(ids[row]);
      p_.cost.push_back(in_.cost(row));
      p_.size.push_back(in_.size(row));
      p_.current.push_back(current_[row]);
      p_.home.push_back(at_(homes_after_[row]));
    }
  }

  // What the fixed keys leave of table and budget.
  void set_bounds() {
    p_.max_table = options_.max_table;
    p_.max_migration = options_.max_migration;
    if (p_.max_migration >= 0)
      p_.max_migration = std::max<StateSize>(0, p_.max_migration - fixed_migration_);
    if (p_.max_table < 0) return;
    p_.max_table -= fixed_entries_;
    if (p_.max_table < 0)
      throw std::invalid_argument(
          "pins: expected at most max_table = " + std::to_string(options_.max_table) +
          " keys away from their home, got " + std::to_string(fixed_entries_));
  }

  // The first of two tasks that is open, else the first open one.
  [[nodiscard]] Position open_for(Position current, Position home) const {
    for (const Position t : {current, home})
      if (p_.open[index(t)] != 0) return t;
    return static_cast<Position>(
        std::find_if(p_.open.begin(), p_.open.end(), [](std::uint8_t open) { return open != 0; }) -
        p_.open.begin());
  }
  [[nodiscard]] std::size_t wanted_owners(const Shared& key) const {
    const double cost = in_.cost(key.row);
    const std::size_t has = std::min(open_, key.before.size());
    const auto needs =
        std::min(open_, static_cast<std::size_t>(std::max(1.0, std::ceil(cost / most_))));
    // Joining moves state: it waits until the key is well below what one task may carry, and is
    // left alone where the state that moves is bounded.
    const bool keep =
        has > 1 && has >= needs && (cost > 0.8 * most_ || options_.max_migration >= 0);
    return keep || !options_.mergeable ? has : needs;
  }

  // Chooses the owners of the split keys; what the tasks carry of them and of what is fixed.
  std::vector<Cost> place_splits() {
    std::vector<Cost> base = base_, load = base_;
    if (shared_.empty()) return base;
    for (std::size_t r = 0; r < p_.records(); ++r) load[index(p_.current[r])] += p_.cost[r];
    std::vector<Shared*> order;
    for (Shared& key : shared_)
      if (key.after.size() > 1) order.push_back(&key);
    std::sort(order.begin(), order.end(), [&](const Shared* a, const Shared* b) {
      const Cost of_a = in_.cost(a->row), of_b = in_.cost(b->row);
      return of_a != of_b ? of_a > of_b : in_.ids()[a->row] < in_.ids()[b->row];
    });
    for (Shared* const key : order) {
      const std::size_t owners = key->after.size();
      key->after.clear();
      const auto is_owner = [&](Position t) {
        return std::find(key->after.begin(), key->after.end(), t) != key->after.end();
      };
      const Cost share = in_.cost(key->row) / static_cast<double>(owners);
      // Two keys that come from one task must not both stay there where it cannot hold their
      // shares: no later move could mend that.
      const bool may_leave = options_.mergeable && options_.max_migration < 0;
      const auto holds = [&](Position t) {
        return base[index(t)] + share <= out_.limit * p_.capacity[index(t)] * (1 + kTolerance);
      };
      for (const Position t : key->before)
        if (p_.open[index(t)] != 0 && key->after.size() < owners && (!may_leave || holds(t)))
          key->after.push_back(t);
      std::vector<Position> others;
      for (Position t = 0; t < std::ssize(p_.capacity); ++t)
        if (p_.open[index(t)] != 0 && !is_owner(t)) others.push_back(t);
      const std::size_t missing = owners - key->after.size();
      std::partial_sort(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(missing),
                        others.end(), [&](Position x, Position y) {
                          if (holds(x) != holds(y)) return holds(x);
                          const double of_x = load[index(x)] / p_.capacity[index(x)];
                          const double of_y = load[index(y)] / p_.capacity[index(y)];
                          return of_x != of_y ? of_x < of_y : x < y;
                        });
      key->after.insert(key->after.end(), others.begin(),
                        others.begin() + static_cast<std::ptrdiff_t>(missing));
      for (const Position t : key->after) {
        base[index(t)] += share;
        load[index(t)] += share;
      }
    }
    return base;
  }

  // Plans, with more owners for split keys as long as that helps.
  void settle() {
    constexpr int kAttempts = 8;
    bool any = false;
    double least = 0;
    for (int attempt = 0; attempt <= kAttempts; ++attempt) {
      p_.base = place_splits();
      p_.mean = -1;
      p_.mean = mean_level(p_);
      std::vector<Cost> estimated;
      Placement placed = options_.degree > 0 ? on_groups(estimated) : on_keys();
      const double level = greatest_level(p_, placed.load);
      const bool within = level <= out_.limit * (1 + kTolerance);
      const bool short_of = placed.stuck > 0 || placed.table_full;
      if (!any || level < least) {
        const bool known = options_.degree == 0 && placed.least >= 0;
        out_.least_migration = (known ? placed.least : least_migration(p_)) + fixed_migration_;
        any = true;
        least = level;
        placed_ = std::move(placed);
        out_.estimated_loads = std::move(estimated);
        kept_ = shared_;
        base_of_kept_ = p_.base;
        out_.lower_bound = bound();
      }
      if (within || !short_of || !options_.mergeable || !widen()) break;
    }
    shared_ = kept_;
    // From the placement alone: no rounding of a long history of moves.
    p_.base = base_of_kept_;
    out_.loads_after = p_.base;
    for (std::size_t r = 0; r < p_.records(); ++r)
      out_.loads_after[index(placed_.where[r])] += p_.cost[r];
    out_.stuck = placed_.stuck;
    out_.trials = placed_.trials;
    out_.table_full = placed_.table_full;
    out_.budget_spent = placed_.budget_spent;
    for (const Giant& giant : placed_.giants) {
      const std::size_t row = rows_[giant.record];
      out_.giants.push_back(
          {in_.ids()[row], out_.tasks[index(giant.task)], in_.cost(row), in_.encoded(row)});
    }
  }
  [[nodiscard]] double bound() const {
    if (!options_.mergeable) return lower_bound(p_);
    double bound = out_.mean;
    for (std::size_t t = 0; t < base_.size(); ++t)
      if (p_.open[t] != 0) bound = std::max(bound, base_[t] / p_.capacity[t]);
    return bound * (1 - 1e-12);
  }
  // A quarter more owners for the key of the greatest share; false where none can have one.
  bool widen() {
    Shared* widest = nullptr;
    double greatest = 0;
    for (Shared& key : shared_) {
      if (key.after.size() < 2 || key.after.size() >= open_) continue;
      const double share = in_.cost(key.row) / static_cast<double>(key.after.size());
      if (share > greatest) {
        greatest = share;
        widest = &key;
      }
    }
    if (widest == nullptr) return false;
    const std::size_t owners = widest->after.size();
    widest->after.resize(std::min(open_, owners + std::max<std::size_t>(1, owners / 4)));
    return true;
  }

  [[nodiscard]] Placement on_keys() const {
    return plan(p_, options_.algorithm, options_.search_moves, options_.sigma);
  }
  [[nodiscard]] Placement on_groups(std::vector<Cost>& estimated) {
    const double begun = clock_();
    const KeyGroups groups = group_keys(p_, options_.degree);
    const Problem problem = grouped_problem(p_, groups);
    out_.group_seconds += clock_() - begun;
    out_.groups = static_cast<std::int64_t>(groups.groups());
    const Placement on = plan(problem, options_.algorithm, options_.search_moves, options_.sigma);
    estimated = on.load;
    Placement out = expand(p_, groups, problem, on);
    hold_budget(p_, out);
    return out;
  }

  void write_moves() {
    struct Move {
      std::size_t row;
      Position from, to;
      StateSize size;
    };
    std::vector<Move> moves;
    std::vector<std::pair<std::size_t, Position>> targets = pinned_;
    // By row, as sort_keys() listed them.
    const auto is_shared = [&](std::size_t row) {
      const auto at =
          std::lower_bound(shared_.begin(), shared_.end(), row,
                           [](const Shared& key, std::size_t r) { return key.row < r; });
      return at != shared_.end() && at->row == row ? at : shared_.end();
    };
    for (std::size_t r = 0; r < p_.records(); ++r) {
      const Position to = placed_.where[r];
      if (to != p_.home[r]) targets.emplace_back(rows_[r], to);
      if (to != p_.current[r] && (shared_.empty() || is_shared(rows_[r]) == shared_.end()))
        moves.push_back({rows_[r], p_.current[r], to, p_.size[r]});
      if (!shared_.empty())
        if (const auto key = is_shared(rows_[r]); key != shared_.end()) key->after = {to};
    }
    for (const auto& [row, to] : pinned_) out_.pinned_moves += to != current_[row];
    for (const auto& [row, to] : pinned_)
      if (to != current_[row] && (shared_.empty() || is_shared(row) == shared_.end()))
        moves.push_back({row, current_[row], to, in_.size(row)});
    for (const Shared& key : shared_) {
      const auto has = [](const std::vector<Position>& in, Position t) {
        return std::find(in.begin(), in.end(), t) != in.end();
      };
      std::vector<Position> fresh;  // owners that it did not have; they take what has to leave
      for (const Position t : key.after)
        if (!has(key.before, t)) fresh.push_back(t);
      const auto d = static_cast<StateSize>(key.before.size());
      std::size_t next = 0;
      for (std::size_t i = 0; i < key.before.size(); ++i) {
        if (has(key.after, key.before[i])) continue;
        const Position to = fresh.empty() ? key.after[0] : fresh[next++ % fresh.size()];
        const StateSize size = in_.size(key.row);
        moves.push_back({key.row, key.before[i], to, size / d + (i == 0 ? size % d : 0)});
      }
      if (key.after.size() < 2) continue;
      Split split{in_.ids()[key.row], {}};
      for (const Position t : key.after) split.tasks.push_back(out_.tasks[index(t)]);
      out_.splits.push_back(std::move(split));
      split_rows_.push_back(key.row);
    }
    std::stable_sort(moves.begin(), moves.end(),
                     [](const Move& a, const Move& b) { return a.row < b.row; });
    std::vector<std::size_t> rows;
    for (const Move& move : moves) {
      rows.push_back(move.row);
      out_.ids.push_back(in_.ids()[move.row]);
      out_.sources.push_back(out_.tasks[index(move.from)]);
      out_.targets.push_back(out_.tasks[index(move.to)]);
      out_.state_sizes.push_back(move.size);
      out_.costs.push_back(in_.cost(move.row));
    }
    out_.names = in_.names(rows);

    std::vector<std::pair<std::size_t, Position>> tabled;
    for (const auto& [row, to] : targets)
      if (to != at_(homes_after_[row])) tabled.emplace_back(row, to);
    const auto by_id = [&](std::size_t a, std::size_t b) { return in_.ids()[a] < in_.ids()[b]; };
    std::sort(tabled.begin(), tabled.end(),
              [&](const auto& a, const auto& b) { return by_id(a.first, b.first); });
    rows.clear();
    for (const auto& [row, to] : tabled) {
      // Two values of one id have one entry.
      if (!out_.table_ids.empty() && out_.table_ids.back() == in_.ids()[row]) continue;
      rows.push_back(row);
      out_.table_ids.push_back(in_.ids()[row]);
      out_.table_targets.push_back(out_.tasks[index(to)]);
    }
    out_.table_names = in_.names(rows);
    std::vector<std::size_t> order(out_.splits.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return out_.splits[a].id < out_.splits[b].id; });
    std::vector<Split> sorted;
    rows.clear();
    for (const std::size_t i : order) {
      sorted.push_back(out_.splits[i]);
      rows.push_back(split_rows_[i]);
    }
    out_.splits = std::move(sorted);
    out_.split_names = in_.names(rows);
  }

  const PlanInput& in_;
  const Positions at_;
  const std::span<const TaskId> homes_before_, homes_after_;
  const PlanOptions& options_;
  const std::function<double()>& clock_;
  Plan out_;
  Problem p_;
  double most_ = 0;       // the greatest limit of a task
  std::size_t open_ = 0;  // open tasks
  std::vector<Cost> base_, base_of_kept_;
  std::vector<std::uint32_t> rows_;  // by record
  std::vector<Position> current_;    // by row
  std::map<std::size_t, Shared> by_row_;
  std::vector<std::uint8_t> fixed_;  // by row; empty: none is
  StateSize fixed_migration_ = 0;    // of pinned keys
  std::int64_t fixed_entries_ = 0;
  std::vector<std::pair<std::size_t, Position>> pinned_;
  std::vector<Shared> shared_, kept_;
  std::vector<std::size_t> split_rows_;
  Placement placed_;
};

// The greatest level of an open task, after the plan.
double greatest(const Plan& plan) {
  double level = 0;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t)
    if (plan.open[t] != 0) level = std::max(level, plan.loads_after[t] / plan.capacities[t]);
  return level;
}

}  // namespace

Plan make_plan(const PlanInput& input, std::span<const TaskId> tasks,
               std::span<const TaskId> homes_before, std::span<const TaskId> homes_after,
               const PlanOptions& options, const std::function<double()>& clock) {
  const auto made = [&](const PlanOptions& by) {
    return Maker(input, tasks, homes_before, homes_after, by, clock).make();
  };
  Plan plan = made(options);
  const double level = greatest(plan);
  if (!options.mergeable || plan.splits.empty() || level <= plan.limit * (1 + kTolerance))
    return plan;
  PlanOptions as_before = options;
  as_before.mergeable = false;
  Plan whole = made(as_before);
  if (greatest(whole) >= level) return plan;
  whole.lower_bound = plan.lower_bound;  // of all plans that may split
  whole.least_migration = std::min(plan.least_migration, whole.least_migration);
  return whole;
}

}  // namespace pyroute
