#include "stats/key_stats.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace pyroute {

KeyStats::KeyStats(std::int64_t window, double smoothing)
    : window_(window), smoothing_(smoothing), index_(1024) {
  if (window < 1 || window > 1000)
    throw std::invalid_argument("window: expected 1 to 1000 intervals, got " +
                                std::to_string(window));
  if (!(smoothing >= 0 && smoothing < 1))
    throw std::invalid_argument("smoothing: expected 0 to below 1, got " +
                                std::to_string(smoothing));
}

void KeyStats::rebuild_index(std::size_t least) {
  index_.assign(std::bit_ceil(std::max<std::size_t>(1024, 2 * least)), 0);
  const std::size_t mask = index_.size() - 1;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    std::size_t at = entries_[i].id & mask;
    while (index_[at] != 0) at = (at + 1) & mask;
    index_[at] = static_cast<std::uint32_t>(i + 1);
  }
}

std::size_t KeyStats::find_or_add(Key id, const Batch& values, std::size_t row) {
  const std::size_t mask = index_.size() - 1;
  std::size_t at = id & mask;
  for (; index_[at] != 0; at = (at + 1) & mask) {
    const std::size_t entry = index_[at] - 1;
    if (entries_[entry].id == id && (!names_.stored() || values.equals(row, names_.at(entry))))
      return entry;
  }
  const std::size_t entry = entries_.size();
  if (entry >= std::uint32_t(-2))
    throw std::length_error("values: expected below 2^32 keys, got more");
  entries_.push_back({id, 0, -1, interval_});
  if (names_.stored()) {
    std::string encoded;
    values.encode(row, encoded);
    names_.push(encoded);
  }
  sizes_.resize(sizes_.size() + static_cast<std::size_t>(window_));
  index_[at] = static_cast<std::uint32_t>(entry + 1);
  if (2 * entries_.size() > index_.size()) rebuild_index(2 * entries_.size());
  return entry;
}

void KeyStats::observe(const Batch& values, std::span<const double> costs, bool has_costs,
                       std::span<const std::int64_t> state_sizes, bool has_state_sizes) {
  const auto check_length = [&](const char* name, std::size_t got) {
    if (got != values.size())
      throw std::invalid_argument(std::string(name) + ": expected " +
                                  std::to_string(values.size()) + " of them, got " +
                                  std::to_string(got));
  };
  if (has_costs) check_length("costs", costs.size());
  if (has_state_sizes) check_length("state_sizes", state_sizes.size());
  // No key can hold more than all together: where the totals fit, every sum does.
  Cost cost_total = open_cost_;
  StateSize size_total = state_total_;
  for (const double cost : costs) {
    if (!(cost >= 0) || std::isinf(cost))
      throw std::invalid_argument("costs: expected finite numbers >= 0, got " +
                                  std::to_string(cost));
    cost_total += cost;
  }
  if (std::isinf(cost_total))
    throw std::invalid_argument("costs: expected a finite total, got more than a double holds");
  for (const std::int64_t size : state_sizes) {
    if (size < 0)
      throw std::invalid_argument("state_sizes: expected none below 0, got " +
                                  std::to_string(size));
    if (__builtin_add_overflow(size_total, size, &size_total))
      throw std::invalid_argument("state_sizes: expected a total below 2^63, got more");
  }
  if (values.size() == 0) return;
  const Kinds kinds = unify(names_.kinds(), values.kinds(), "values");
  if (kinds != names_.kinds()) {
    // Only nulls were seen until now: their names, if any, are written again under the full kinds.
    const ValueList old = names_;
    names_ = ValueList(kinds);
    for (std::size_t i = 0; i < entries_.size(); ++i) names_.push(old.encoded(i, entries_[i].id));
  }
  has_state_sizes_ = has_state_sizes_ || has_state_sizes;
  open_cost_ = cost_total;
  state_total_ = size_total;
  const auto slot = static_cast<std::size_t>(interval_ % window_);
  values.for_each_block([&](std::size_t begin, std::span<const Key> ids) {
    constexpr std::size_t ahead = 12;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i + ahead < ids.size()) __builtin_prefetch(&index_[ids[i + ahead] & (index_.size() - 1)]);
      const std::size_t row = begin + i;
      const std::size_t entry = find_or_add(ids[i], values, row);
      entries_[entry].cost += has_costs ? costs[row] : 1;
      entries_[entry].seen = interval_;
      if (has_state_sizes) sizes_of(entry)[slot] += state_sizes[row];
    }
  });
}

Snapshot KeyStats::close_interval() {
  const auto w = static_cast<std::size_t>(window_);
  std::vector<Key> ids;
  std::vector<Cost> costs;
  std::vector<StateSize> totals;
  ids.reserve(entries_.size());
  costs.reserve(entries_.size());
  totals.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    entry.forecast = entry.forecast < 0
                         ? entry.cost
                         : (1 - smoothing_) * entry.cost + smoothing_ * entry.forecast;
    entry.cost = 0;
    ids.push_back(entry.id);
    costs.push_back(entry.forecast);
    const StateSize* const sizes = sizes_of(i);
    totals.push_back(has_state_sizes_ ? std::accumulate(sizes, sizes + w, StateSize{0}) : 1);
  }
  Snapshot out(std::move(ids), names_, std::move(costs), std::move(totals), interval_);
  ++interval_;
  open_cost_ = 0;
  const auto oldest = static_cast<std::size_t>(interval_ % window_);
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    state_total_ -= sizes_of(i)[oldest];
    sizes_of(i)[oldest] = 0;
    if (entries_[i].seen > interval_ - window_) kept.push_back(i);
  }
  if (kept.size() == entries_.size()) return out;
  names_ = names_.reordered(kept);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    entries_[i] = entries_[kept[i]];
    std::copy_n(sizes_of(kept[i]), w, sizes_of(i));
  }
  entries_.resize(kept.size());
  sizes_.resize(kept.size() * w);
  rebuild_index(2 * kept.size());
  return out;
}

bool KeyStats::operator==(const KeyStats& other) const {
  return window_ == other.window_ && smoothing_ == other.smoothing_ &&
         interval_ == other.interval_ && has_state_sizes_ == other.has_state_sizes_ &&
         entries_ == other.entries_ && names_ == other.names_ && sizes_ == other.sizes_;
}

//   window varint, smoothing f64, interval varint, whether state sizes were given u8, count varint,
//   ids u64, values, then per key cost f64, forecast f64 (negative: none), intervals since it was
//   seen varint, window state sizes varint
std::string KeyStats::to_bytes() const {
  Writer to(Kernel::key_stats, 1);
  to.varint(static_cast<std::uint64_t>(window_));
  to.f64(smoothing_);
  to.varint(static_cast<std::uint64_t>(interval_));
  to.u8(has_state_sizes_ ? 1 : 0);
  to.varint(entries_.size());
  for (const Entry& entry : entries_) to.u64(entry.id);
  names_.write(to);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    to.f64(entries_[i].cost);
    to.f64(entries_[i].forecast);
    to.varint(static_cast<std::uint64_t>(interval_ - entries_[i].seen));
    for (std::size_t s = 0; s < static_cast<std::size_t>(window_); ++s)
      to.varint(static_cast<std::uint64_t>(sizes_[i * static_cast<std::size_t>(window_) + s]));
  }
  return std::move(to).finish();
}

KeyStats KeyStats::from_bytes(std::string_view data) {
  Reader from(data, Kernel::key_stats, 1);
  const auto window = static_cast<std::int64_t>(from.varint("window", 1000));
  const double smoothing = from.amount("smoothing");
  Reader::check(window > 0 && smoothing < 1, "window", "1 to 1000, smoothing below 1");
  KeyStats out(window, smoothing);
  out.interval_ = static_cast<std::int64_t>(from.varint("interval", kMaxCount / 2));
  const std::uint8_t has = from.u8();
  Reader::check(has <= 1, "state sizes", "0 or 1");
  out.has_state_sizes_ = has == 1;
  const std::size_t n = from.count("count", 25 + static_cast<std::size_t>(window));
  std::vector<Key> ids(n);
  for (Key& id : ids) id = from.u64();
  out.names_ = ValueList::read(from, ids);
  for (const Key id : ids) {
    Entry entry{id, from.amount("cost"), from.f64(), 0};
    Reader::check(entry.forecast == -1 || (entry.forecast >= 0 && !std::isinf(entry.forecast)),
                  "forecast", "a finite number, or -1");
    entry.seen = out.interval_ -
                 static_cast<std::int64_t>(from.varint(
                     "seen", static_cast<std::uint64_t>(std::min(window, out.interval_ + 1) - 1)));
    out.entries_.push_back(entry);
    out.open_cost_ += entry.cost;
    Reader::check(!std::isinf(out.open_cost_), "cost", "a finite total");
    for (std::int64_t s = 0; s < window; ++s) {
      out.sizes_.push_back(static_cast<StateSize>(from.varint("state size", kMaxCount)));
      Reader::check(!__builtin_add_overflow(out.state_total_, out.sizes_.back(), &out.state_total_),
                    "state size", "a total below 2^63");
    }
  }
  from.end();
  out.rebuild_index(2 * n);
  const std::size_t mask = out.index_.size() - 1;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t at = ids[i] & mask; out.index_[at] != 0; at = (at + 1) & mask) {
      const std::size_t other = out.index_[at] - 1;
      Reader::check(other == i || ids[other] != ids[i] ||
                        (out.names_.stored() && out.names_.at(other) != out.names_.at(i)),
                    "values", "each value once");
    }
  }
  return out;
}

}  // namespace pyroute
