#include "table/dynamic_grouping.hpp"

#include <algorithm>
#include <numeric>
#include <queue>
#include <stdexcept>

namespace pyroute {
namespace {

std::size_t circle_size(unsigned bits) {
  if (bits > DynamicGrouping::kMostBits)
    throw std::invalid_argument("bits: expected 0 to 22, got " + std::to_string(bits));
  return std::size_t{1} << bits;
}

// All tasks in turn, task i gets[i] times, each within its share of every run (Tijdeman's
// schedule): a task is released for its next turn when it is behind its share, and the earliest
// deadline goes first.
std::vector<TaskId> interleave(std::span<const Weighted> tasks, std::span<const std::size_t> gets) {
  const std::size_t size = std::accumulate(gets.begin(), gets.end(), std::size_t{0});
  struct Turn {
    std::size_t when;  // release or deadline
    std::size_t task;
    std::size_t given;
    bool operator>(const Turn& other) const {
      return when != other.when ? when > other.when : task > other.task;
    }
  };
  using Queue = std::priority_queue<Turn, std::vector<Turn>, std::greater<>>;
  Queue waiting, ready;
  const auto wait = [&](std::size_t task, std::size_t given) {
    if (given < gets[task]) waiting.push({given * size / gets[task] + 1, task, given});
  };
  for (std::size_t i = 0; i < gets.size(); ++i) wait(i, 0);
  std::vector<TaskId> out;
  out.reserve(size);
  for (std::size_t k = 1; k <= size; ++k) {
    for (; !waiting.empty() && waiting.top().when <= k; waiting.pop()) {
      const auto& [release, task, given] = waiting.top();
      ready.push({((given + 1) * size + gets[task] - 1) / gets[task], task, given});
    }
    const Turn turn = ready.top();
    ready.pop();
    out.push_back(tasks[turn.task].task);
    wait(turn.task, turn.given + 1);
  }
  return out;
}

}  // namespace

DynamicGrouping DynamicGrouping::from_ratio(std::span<const Weighted> ratio, unsigned bits) {
  const std::size_t size = circle_size(bits);
  const std::vector<Weighted> tasks = checked_tasks(ratio, "ratio");
  return {bits, interleave(tasks, apportion(tasks, size))};
}

DynamicGrouping DynamicGrouping::from_identifiers(std::span<const std::int64_t> identifiers,
                                                  std::span<const TaskId> tasks, unsigned bits) {
  const std::size_t size = circle_size(bits);
  if (identifiers.empty())
    throw std::invalid_argument("identifiers: expected at least one, got none");
  std::vector<TaskId> owners(size, -1);
  for (std::size_t i = 0; i < identifiers.size(); ++i) {
    if (identifiers[i] < 0 || static_cast<std::uint64_t>(identifiers[i]) >= size)
      throw std::invalid_argument("identifiers: expected 0 to " + std::to_string(size - 1) +
                                  ", got " + std::to_string(identifiers[i]));
    TaskId& owner = owners[static_cast<std::size_t>(identifiers[i])];
    if (owner != -1)
      throw std::invalid_argument("identifiers: expected distinct ones, got " +
                                  std::to_string(identifiers[i]) + " twice");
    if (tasks[i] < 0)
      throw std::invalid_argument("tasks: expected ids from 0 up, got " + std::to_string(tasks[i]));
    owner = tasks[i];
  }
  // Backwards twice around, so that each takes what the next assigned identifier has.
  TaskId ahead = -1;
  for (std::size_t step = 0; step < 2 * size; ++step) {
    TaskId& owner = owners[size - 1 - step % size];
    if (owner == -1)
      owner = ahead;
    else
      ahead = owner;
  }
  return {bits, std::move(owners)};
}

DynamicGrouping DynamicGrouping::init_shards(std::size_t tasks, std::size_t shards, unsigned bits) {
  const std::size_t size = circle_size(bits);
  if (tasks == 0 || shards == 0 || tasks > size || shards > size / tasks)
    throw std::invalid_argument("tasks: expected 1 to " + std::to_string(size) +
                                " identifiers in all, got " + std::to_string(tasks) + " times " +
                                std::to_string(shards));
  std::vector<std::int64_t> identifiers;
  std::vector<TaskId> owners;
  for (std::size_t i = 0; i < tasks * shards; ++i) {
    identifiers.push_back(static_cast<std::int64_t>(i));
    owners.push_back(static_cast<TaskId>(i % tasks));
  }
  return from_identifiers(identifiers, owners, bits);
}

DynamicGrouping DynamicGrouping::reassign(TaskId task, std::span<const Weighted> to) const {
  const std::vector<Weighted> tasks = checked_tasks(to, "to");
  for (const Weighted& w : tasks)
    if (w.task == task)
      throw std::invalid_argument("to: expected other tasks than " + std::to_string(task) +
                                  ", got it too");
  const auto owned = static_cast<std::size_t>(std::count(owners_.begin(), owners_.end(), task));
  if (owned == 0)
    throw std::invalid_argument("task: expected one that owns identifiers, got " +
                                std::to_string(task));
  const std::vector<TaskId> heirs = interleave(tasks, apportion(tasks, owned));
  std::vector<TaskId> owners = owners_;
  std::size_t next = 0;
  for (TaskId& owner : owners)
    if (owner == task) owner = heirs[next++];
  return {bits_, std::move(owners)};
}

DynamicGrouping DynamicGrouping::with_ratio(std::span<const Weighted> ratio) const {
  const std::vector<Weighted> tasks = checked_tasks(ratio, "ratio");
  const std::vector<std::size_t> gets = apportion(tasks, owners_.size());
  return {bits_, move_fewest(owners_, tasks, gets, interleave(tasks, gets), 0)};
}

void DynamicGrouping::assign(std::span<const std::int64_t> ids, TaskId* out) const noexcept {
  const std::uint64_t mask = owners_.size() - 1;
  for (std::size_t i = 0; i < ids.size(); ++i)
    out[i] = owners_[static_cast<std::uint64_t>(ids[i]) & mask];
}

std::uint64_t DynamicGrouping::fingerprint() const noexcept { return hash_owners(owners_, kSeed); }

std::string DynamicGrouping::to_bytes() const {
  Writer to(Kernel::dynamic_grouping, 1);
  to.u8(static_cast<std::uint8_t>(bits_));
  write_owners(to, owners_);
  return std::move(to).finish();
}

DynamicGrouping DynamicGrouping::from_bytes(std::string_view data) {
  Reader from(data, Kernel::dynamic_grouping, 1);
  const std::uint8_t bits = from.u8();
  Reader::check(bits <= kMostBits, "bits", "0 to 22");
  std::vector<TaskId> owners = read_owners(from, std::size_t{1} << bits);
  from.end();
  return {bits, std::move(owners)};
}

}  // namespace pyroute
