#include "route/router.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace pyroute {
namespace {

// The ids of a batch and the order in which they ascend; a value that comes twice and two values
// of one id are refused.
struct Sorted {
  std::vector<Key> ids;
  std::vector<std::size_t> order;

  Sorted(const Batch& values, const char* name) : ids(values.size()), order(values.size()) {
    values.ids(0, values.size(), ids.data());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return ids[a] != ids[b] ? ids[a] < ids[b] : a < b;
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (ids[order[i]] != ids[order[i - 1]]) continue;
      std::string first, second;
      values.encode(order[i - 1], first);
      values.encode(order[i], second);
      throw std::invalid_argument(
          std::string(name) + ": expected distinct keys, got " +
          (first == second ? "the value of row " : "two values of one 64-bit identity in rows ") +
          std::to_string(order[i - 1]) + (first == second ? " again in row " : " and ") +
          std::to_string(order[i]));
    }
    std::vector<Key> sorted(ids.size());
    for (std::size_t i = 0; i < order.size(); ++i) sorted[i] = ids[order[i]];
    ids = std::move(sorted);
  }
};

std::vector<TaskId> tasks_of(const Home& home) {
  std::vector<TaskId> out;
  if (const Ring* ring = std::get_if<Ring>(&home)) {
    for (const Weighted& w : ring->tasks()) out.push_back(w.task);
  } else {
    out.resize(static_cast<std::size_t>(std::get<EngineHome>(home).tasks()));
    std::iota(out.begin(), out.end(), TaskId{0});
  }
  return out;
}

// Whether a task is one of the home's, without listing the many an engine may have.
bool has_task(const Home& home, TaskId task) {
  if (const EngineHome* engine = std::get_if<EngineHome>(&home))
    return task >= 0 && task < engine->tasks();
  const auto& tasks = std::get<Ring>(home).tasks();
  const auto at = std::lower_bound(tasks.begin(), tasks.end(), task,
                                   [](const Weighted& w, TaskId t) { return w.task < t; });
  return at != tasks.end() && at->task == task;
}

std::size_t pick(Key key, std::int64_t salt, std::size_t count) noexcept {
  const Key hash = hash_int64(salt, hash_int64(static_cast<std::int64_t>(key)));
  const auto d = static_cast<std::int64_t>(count);
  const std::int64_t rest = static_cast<std::int64_t>(hash) % d;
  return static_cast<std::size_t>(rest < 0 ? rest + d : rest);
}

}  // namespace

Router::Router(std::shared_ptr<const Home> home, const Batch& table,
               std::span<const TaskId> targets, const Batch& split_values,
               std::vector<std::vector<TaskId>> split_tasks, std::int64_t version)
    : home_(std::move(home)), version_(version) {
  if (version < 0)
    throw std::invalid_argument("version: expected 0 or more, got " + std::to_string(version));
  if (table.size() > 0 && split_values.size() > 0)
    static_cast<void>(unify(table.kinds(), split_values.kinds(), "splits"));
  const Sorted rows(table, "table");
  std::vector<TaskId> sorted(targets.size());
  for (std::size_t i = 0; i < rows.order.size(); ++i) sorted[i] = targets[rows.order[i]];
  const Sorted split_rows(split_values, "splits");
  for (std::size_t i = 0; i < split_rows.order.size(); ++i)
    splits_.push_back({split_rows.ids[i], std::move(split_tasks[split_rows.order[i]])});
  if (split_values.size() > 0) split_names_ = ValueList(split_values).reordered(split_rows.order);
  ValueList names;
  if (table.size() > 0) names = ValueList(table).reordered(rows.order);
  finish(rows.ids, std::move(sorted), std::move(names));
}

void Router::finish(std::vector<Key> ids, std::vector<TaskId> targets, ValueList names) {
  ring_ = std::get_if<Ring>(home_.get());
  const auto expect_task = [&](const char* name, TaskId task) {
    if (!has_task(*home_, task))
      throw std::invalid_argument(std::string(name) + ": expected tasks of the home, got " +
                                  std::to_string(task));
  };
  for (const TaskId target : targets) expect_task("table", target);
  std::uint64_t fingerprint =
      ring_ != nullptr ? ring_->fingerprint() : std::get<EngineHome>(*home_).fingerprint();
  const auto add = [&](std::uint64_t word) {
    fingerprint = hash_int64(static_cast<std::int64_t>(word), fingerprint);
  };
  add(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    add(ids[i]);
    add(static_cast<std::uint64_t>(targets[i]));
  }
  for (const Split& split : splits_) {
    add(split.id);
    add(split.tasks.size());
    for (const TaskId task : split.tasks) {
      expect_task("splits", task);
      add(static_cast<std::uint64_t>(task));
    }
    std::vector<TaskId> distinct = split.tasks;
    std::sort(distinct.begin(), distinct.end());
    if (distinct.empty() || std::adjacent_find(distinct.begin(), distinct.end()) != distinct.end())
      throw std::invalid_argument("splits: expected distinct tasks for each key, got " +
                                  std::string(distinct.empty() ? "none" : "one twice"));
    if (std::binary_search(ids.begin(), ids.end(), split.id))
      throw std::invalid_argument("splits: expected keys that are not tabled, got one that is");
  }
  fingerprint_ = fingerprint;
  if (!splits_.empty()) {
    std::vector<std::pair<Key, TaskId>> all;
    for (std::size_t i = 0; i < ids.size(); ++i) all.emplace_back(ids[i], targets[i]);
    for (std::size_t i = 0; i < splits_.size(); ++i)
      all.emplace_back(splits_[i].id, -1 - static_cast<TaskId>(i));
    std::sort(all.begin(), all.end());
    std::vector<Key> all_ids;
    std::vector<TaskId> all_targets;
    for (const auto& [id, target] : all) {
      all_ids.push_back(id);
      all_targets.push_back(target);
    }
    lookup_ = RoutingTable(std::move(all_ids), std::move(all_targets), {});
  }
  table_ = RoutingTable(std::move(ids), std::move(targets), std::move(names));
}

void Router::route(const Batch& values, std::span<const std::int64_t> salts, bool salted,
                   std::span<TaskId> out) const {
  if (salted && salts.size() != values.size())
    throw std::invalid_argument("salt: expected " + std::to_string(values.size()) +
                                " of them, got " + std::to_string(salts.size()));
  if (!splits_.empty() && !salted)
    throw std::invalid_argument(
        "salt: expected one per record, because this router splits keys, got none");
  const EngineHome* const engine = std::get_if<EngineHome>(home_.get());
  if (engine != nullptr) engine->expect(values);
  const RoutingTable& table = splits_.empty() ? table_ : lookup_;
  values.for_each_block([&](std::size_t begin, std::span<const Key> keys) {
    TaskId* const to = out.data() + begin;
    if (engine != nullptr)
      engine->homes(values, begin, keys.size(), to);
    else
      ring_->homes(keys, to);
    table.override(keys, to);
    if (splits_.empty()) return;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (to[i] >= 0) continue;
      const Split& split = splits_[static_cast<std::size_t>(-1 - to[i])];
      to[i] = split.tasks[pick(keys[i], salts[begin + i], split.tasks.size())];
    }
  });
}

std::vector<TaskId> Router::tasks() const { return tasks_of(*home_); }

std::size_t Router::bytes_used() const noexcept {
  return table_.bytes_used() + (splits_.empty() ? 0 : lookup_.bytes_used()) +
         (ring_ != nullptr ? ring_->owners().size_bytes() : 0);
}

bool Router::operator==(const Router& other) const {
  return version_ == other.version_ && *home_ == *other.home_ &&
         std::ranges::equal(table_.ids(), other.table_.ids()) &&
         std::ranges::equal(table_.targets(), other.table_.targets()) && splits_ == other.splits_;
}

//   version varint, home u8 (0 ring, 1 engine) and its own bytes, sized; table: count varint, ids
//   u64, targets varint, values; splits: count varint, each id u64, number of tasks varint, tasks
//   varint; values
std::string Router::to_bytes(bool values) const {
  Writer to(Kernel::router, 1);
  to.varint(static_cast<std::uint64_t>(version_));
  to.u8(ring_ != nullptr ? 0 : 1);
  to.sized(std::visit([](const auto& home) { return home.to_bytes(); }, *home_));
  to.varint(table_.size());
  for (const Key id : table_.ids()) to.u64(id);
  for (const TaskId target : table_.targets()) to.varint(static_cast<std::uint64_t>(target));
  values ? table_.names().write(to) : ValueList().write(to);
  to.varint(splits_.size());
  for (const Split& split : splits_) {
    to.u64(split.id);
    to.varint(split.tasks.size());
    for (const TaskId task : split.tasks) to.varint(static_cast<std::uint64_t>(task));
  }
  values ? split_names_.write(to) : ValueList().write(to);
  return std::move(to).finish();
}

Router Router::from_bytes(std::string_view data) {
  Reader from(data, Kernel::router, 1);
  Router out;
  out.version_ = static_cast<std::int64_t>(from.varint("version", kMaxCount));
  const std::uint8_t which = from.u8();
  Reader::check(which <= 1, "home", "0 or 1");
  const std::string_view home = from.sized("home");
  out.home_ = which == 0 ? std::make_shared<const Home>(Ring::from_bytes(home))
                         : std::make_shared<const Home>(EngineHome::from_bytes(home));
  const auto ascending = [](bool first, Key last, Key next) {
    Reader::check(first || last < next, "table", "ids that ascend");
  };
  std::vector<Key> ids(from.count("table", 9));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = from.u64();
    ascending(i == 0, i == 0 ? 0 : ids[i - 1], ids[i]);
  }
  std::vector<TaskId> targets(ids.size());
  for (TaskId& target : targets) target = static_cast<TaskId>(from.varint("target", 0x7fffffff));
  ValueList names = ValueList::read(from, ids);
  std::vector<Key> split_ids;
  out.splits_.resize(from.count("splits", 10));
  for (Split& split : out.splits_) {
    split.id = from.u64();
    ascending(split_ids.empty(), split_ids.empty() ? 0 : split_ids.back(), split.id);
    split_ids.push_back(split.id);
    split.tasks.resize(from.count("tasks", 1));
    for (TaskId& task : split.tasks) task = static_cast<TaskId>(from.varint("task", 0x7fffffff));
  }
  out.split_names_ = ValueList::read(from, split_ids);
  from.end();
  try {
    out.finish(std::move(ids), std::move(targets), std::move(names));
  } catch (const std::invalid_argument& error) {
    throw FormatError(error.what());
  }
  return out;
}

}  // namespace pyroute
