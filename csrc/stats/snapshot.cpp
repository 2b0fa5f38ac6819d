#include "stats/snapshot.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

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
      interval_(interval) {}

void Snapshot::check() const {
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
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return ids_[a] != ids_[b] ? ids_[a] < ids_[b] : a < b;
  });
  // Two values may share an id (that is for a table to refuse), one value may not come twice.
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i + 1; j < n && ids_[order[j]] == ids_[order[i]]; ++j)
      if (names_.encoded(order[i], ids_[order[i]]) == names_.encoded(order[j], ids_[order[j]]))
        wrong("values", "each value once",
              "the value of row " + std::to_string(order[i]) + " again in row " +
                  std::to_string(order[j]));
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
