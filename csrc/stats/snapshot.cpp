#include "stats/snapshot.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "memory.hpp"

namespace pyroute {
namespace {

bool amount(double v) noexcept { return v >= 0 && !std::isinf(v); }

[[noreturn]] void wrong(const std::string& name, const std::string& expected,
                        const std::string& got) {
  throw std::invalid_argument(name + ": expected " + expected + ", got " + got);
}

}  // namespace

Snapshot::Snapshot(const Batch& values, std::vector<Cost> costs, std::vector<StateSize> state_sizes,
                   std::vector<Load> background, std::int64_t interval)
    : ids_(values.size()),
      names_(values),
      costs_(std::move(costs)),
      state_sizes_(std::move(state_sizes)),
      background_(std::move(background)),
      interval_(interval) {
  values.ids(0, values.size(), ids_.data());
  if (state_sizes_.empty()) state_sizes_.assign(values.size(), 1);
  std::sort(background_.begin(), background_.end(),
            [](const Load& a, const Load& b) { return a.task < b.task; });
  check();
}

Snapshot::Snapshot(std::vector<Key> ids, ValueList names, std::vector<Cost> costs,
                   std::vector<StateSize> state_sizes, std::int64_t interval)
    : ids_(std::move(ids)),
      names_(std::move(names)),
      costs_(std::move(costs)),
      state_sizes_(std::move(state_sizes)),
      interval_(interval) {
  find_doubles();
}

void Snapshot::check() {
  const std::size_t n = ids_.size();
  if (costs_.size() != n)
    wrong("costs", std::to_string(n) + " of them", std::to_string(costs_.size()));
  if (state_sizes_.size() != n)
    wrong("state_sizes", std::to_string(n) + " of them", std::to_string(state_sizes_.size()));
  for (const Cost cost : costs_)
    if (!amount(cost)) wrong("costs", "finite numbers >= 0", std::to_string(cost));
  for (const StateSize size : state_sizes_)
    if (size < 0) wrong("state_sizes", "none below 0", std::to_string(size));
  for (std::size_t i = 0; i < background_.size(); ++i) {
    const Load& load = background_[i];
    if (load.task < 0) wrong("background", "task ids from 0 up", std::to_string(load.task));
    if (i > 0 && background_[i - 1].task == load.task)
      wrong("background", "a task once", std::to_string(load.task) + " twice");
    if (!amount(load.cost)) wrong("background", "finite loads >= 0", std::to_string(load.cost));
  }
  if (interval_ < 0) wrong("interval", "0 or more", std::to_string(interval_));
  find_doubles();
  // Two values may share an id (that is for a table to refuse), one value may not come twice.
  for (const std::size_t row : doubles_)
    for (std::size_t first = 0; first < row; ++first)
      if (ids_[first] == ids_[row] &&
          names_.encoded(first, ids_[first]) == names_.encoded(row, ids_[row]))
        wrong("values", "each value once",
              "the value of row " + std::to_string(first) + " again in row " + std::to_string(row));
}

void Snapshot::find_doubles() {
  // Open addressing on the ids themselves; 0 marks a free slot and is told apart by a flag.
  const std::size_t n = ids_.size();
  const auto bits = static_cast<unsigned>(std::bit_width(std::max<std::size_t>(n, 4)));
  std::vector<Key, LargePages<Key>> slots(std::size_t{2} << bits);
  const std::size_t mask = slots.size() - 1;
  // Spread again: ids that came as they are may be in order.
  const auto slot_of = [&](Key id) {
    return static_cast<std::size_t>(id * 0x9E3779B97F4A7C15u >> (63 - bits));
  };
  constexpr std::size_t ahead = 16;
  bool zero = false;
  for (std::size_t i = 0; i < n; ++i) {
    if (i + ahead < n) __builtin_prefetch(&slots[slot_of(ids_[i + ahead])], 1);
    const Key id = ids_[i];
    if (id == 0) {
      if (std::exchange(zero, true)) doubles_.push_back(i);
      continue;
    }
    std::size_t at = slot_of(id);
    while (slots[at] != 0 && slots[at] != id) at = (at + 1) & mask;
    if (slots[at] == id) doubles_.push_back(i);
    slots[at] = id;
  }
}

//   interval varint, count varint, ids u64, values, costs f64, state sizes varint,
//   number of background loads varint, each task varint and cost f64
std::string Snapshot::to_bytes() const {
  Writer to(Kernel::snapshot, 1);
  to.varint(static_cast<std::uint64_t>(interval_));
  to.varint(ids_.size());
  for (const Key id : ids_) to.u64(id);
  names_.write(to);
  for (const Cost cost : costs_) to.f64(cost);
  for (const StateSize size : state_sizes_) to.varint(static_cast<std::uint64_t>(size));
  to.varint(background_.size());
  for (const Load& load : background_) {
    to.varint(static_cast<std::uint64_t>(load.task));
    to.f64(load.cost);
  }
  return std::move(to).finish();
}

Snapshot Snapshot::from_bytes(std::string_view data) {
  Reader from(data, Kernel::snapshot, 1);
  Snapshot out;
  out.interval_ = static_cast<std::int64_t>(from.varint("interval", kMaxCount));
  const std::size_t n = from.count("count", 17);
  out.ids_.resize(n);
  for (Key& id : out.ids_) id = from.u64();
  out.names_ = ValueList::read(from, out.ids_);
  out.costs_.resize(n);
  for (Cost& cost : out.costs_) cost = from.amount("cost");
  out.state_sizes_.resize(n);
  for (StateSize& size : out.state_sizes_)
    size = static_cast<StateSize>(from.varint("state size", kMaxCount));
  out.background_.resize(from.count("background", 9));
  for (Load& load : out.background_) {
    load.task = static_cast<TaskId>(from.varint("task", 0x7fffffff));
    load.cost = from.amount("load");
  }
  from.end();
  try {
    out.check();
  } catch (const std::invalid_argument& error) {
    throw FormatError(error.what());
  }
  for (std::size_t i = 1; i < out.background_.size(); ++i)
    Reader::check(out.background_[i - 1].task < out.background_[i].task, "background",
                  "ascending tasks");
  return out;
}

}  // namespace pyroute
