#include "table/ring.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace pyroute {
namespace {

struct Point {
  std::uint64_t position;
  std::uint32_t task;  // position in the sorted list
};

std::uint64_t salted(std::uint64_t salt) noexcept {
  return hash_int64(static_cast<std::int64_t>(salt));
}

std::vector<Point> points_of(std::span<const Weighted> tasks, unsigned replicas,
                             std::uint64_t salt) {
  double sum = 0;
  std::size_t owning = 0;
  for (const Weighted& w : tasks) {
    sum += w.weight;
    owning += w.weight > 0 ? 1 : 0;
  }
  const double mean = sum / static_cast<double>(owning);
  std::vector<Point> points;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].weight == 0) continue;
    // A task of most of the weight needs no more points than there are identifiers.
    const double wish = std::round(static_cast<double>(replicas) * (tasks[i].weight / mean));
    const auto count = static_cast<std::int64_t>(std::clamp(wish, 1.0, 4194304.0));
    const Key seed = hash_int64(tasks[i].task, salted(salt));
    for (std::int64_t j = 0; j < count; ++j)
      points.push_back({hash_int64(j, seed), static_cast<std::uint32_t>(i)});
  }
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
    return a.position != b.position ? a.position < b.position : a.task < b.task;
  });
  return points;
}

std::vector<TaskId> owners_of(std::span<const Weighted> tasks, unsigned bits, unsigned replicas,
                              std::uint64_t salt) {
  const std::size_t identifiers = std::size_t{1} << bits;
  std::vector<std::size_t> room = apportion(tasks, identifiers);
  const std::vector<Point> points = points_of(tasks, replicas, salt);
  // next[p]: a point at or after p; follow it until one whose task has room (paths are halved).
  std::vector<std::uint32_t> next(points.size());
  std::iota(next.begin(), next.end(), 0u);
  const auto with_room = [&](std::size_t p) {
    for (;;) {
      if (next[p] != p) {
        next[p] = next[next[p]];
        p = next[p];
      } else if (room[points[p].task] == 0) {
        p = next[p] = static_cast<std::uint32_t>(p + 1 == points.size() ? 0 : p + 1);
      } else {
        return p;
      }
    }
  };
  std::vector<TaskId> owners(identifiers);
  std::size_t first = 0;
  for (std::size_t i = 0; i < identifiers; ++i) {
    const std::uint64_t from = static_cast<std::uint64_t>(i) << (64 - bits);
    while (first < points.size() && points[first].position < from) ++first;
    const std::uint32_t task = points[with_room(first == points.size() ? 0 : first)].task;
    --room[task];
    owners[i] = tasks[task].task;
  }
  return owners;
}

unsigned checked_bits(std::size_t tasks, std::optional<unsigned> wish) {
  unsigned bits = Ring::kMostBits;
  if (wish) {
    bits = *wish;
    if (bits < 3 || bits > Ring::kMostBits)
      throw std::invalid_argument("bits: expected 3 to 22, got " + std::to_string(bits));
  } else if (tasks <= std::size_t{1} << 16) {
    bits = std::clamp(static_cast<unsigned>(std::bit_width(64 * tasks - 1)), 16u, Ring::kMostBits);
  }
  if (tasks > (std::size_t{1} << bits) / 8)
    throw std::invalid_argument("tasks: expected at most " +
                                std::to_string((std::size_t{1} << bits) / 8) + " on " +
                                std::to_string(bits) + " bits, got " + std::to_string(tasks));
  return bits;
}

}  // namespace

Ring::Ring(std::span<const Weighted> tasks, std::optional<unsigned> bits, unsigned replicas,
           std::uint64_t salt)
    : tasks_(checked_tasks(tasks, "tasks")),
      bits_(checked_bits(tasks_.size(), bits)),
      replicas_(replicas),
      salt_(salt) {
  if (replicas == 0 || replicas > 65536)
    throw std::invalid_argument("replicas: expected 1 to 65536, got " + std::to_string(replicas));
  owners_ = owners_of(tasks_, bits_, replicas_, salt_);
  fingerprint_ = hash_owners(owners_, kSeed);
}

Ring::Ring(std::vector<Weighted> tasks, unsigned bits, unsigned replicas, std::uint64_t salt,
           std::vector<TaskId> owners)
    : tasks_(std::move(tasks)),
      bits_(bits),
      replicas_(replicas),
      salt_(salt),
      owners_(std::move(owners)),
      fingerprint_(hash_owners(owners_, kSeed)) {}

Ring Ring::with_tasks(std::span<const Weighted> tasks) const {
  std::vector<Weighted> sorted = checked_tasks(tasks, "tasks");
  checked_bits(sorted.size(), bits_);
  const std::vector<std::size_t> gets = apportion(sorted, owners_.size());
  const std::vector<TaskId> wanted = owners_of(sorted, bits_, replicas_, salt_);
  const auto start = static_cast<std::size_t>(hash_int64(1, salted(salt_)) >> (64 - bits_));
  std::vector<TaskId> owners = move_fewest(owners_, sorted, gets, wanted, start);
  return {std::move(sorted), bits_, replicas_, salt_, std::move(owners)};
}

void Ring::homes(std::span<const Key> keys, TaskId* out) const noexcept {
  const TaskId* const owners = owners_.data();
  const unsigned shift = 64 - bits_;
  for (std::size_t i = 0; i < keys.size(); ++i) out[i] = owners[keys[i] >> shift];
}

bool Ring::operator==(const Ring& other) const {
  return tasks_ == other.tasks_ && bits_ == other.bits_ && replicas_ == other.replicas_ &&
         salt_ == other.salt_ && owners_ == other.owners_;
}

//   bits u8, replicas varint, salt u64, tasks and weights, owners (circle.hpp)
std::string Ring::to_bytes() const {
  Writer to(Kernel::ring, 1);
  to.u8(static_cast<std::uint8_t>(bits_));
  to.varint(replicas_);
  to.u64(salt_);
  write_tasks(to, tasks_);
  write_owners(to, owners_);
  return std::move(to).finish();
}

Ring Ring::from_bytes(std::string_view data) {
  Reader from(data, Kernel::ring, 1);
  const std::uint8_t bits = from.u8();
  Reader::check(bits >= 3 && bits <= kMostBits, "bits", "3 to 22");
  const auto replicas = static_cast<unsigned>(from.varint("replicas", 65536));
  Reader::check(replicas > 0, "replicas", "at least 1");
  const std::uint64_t salt = from.u64();
  std::vector<Weighted> tasks = read_tasks(from);
  Reader::check(tasks.size() <= (std::size_t{1} << bits) / 8, "tasks", "at most 2^bits / 8");
  std::vector<TaskId> owners = read_owners(from, std::size_t{1} << bits);
  from.end();
  const std::vector<std::size_t> gets = apportion(tasks, owners.size());
  std::vector<std::size_t> has(tasks.size());
  for (const TaskId owner : owners) {
    const auto at = std::lower_bound(tasks.begin(), tasks.end(), owner,
                                     [](const Weighted& w, TaskId task) { return w.task < task; });
    Reader::check(at != tasks.end() && at->task == owner, "owners", "tasks");
    ++has[static_cast<std::size_t>(at - tasks.begin())];
  }
  Reader::check(has == gets, "owners", "the shares of the weights");
  return {std::move(tasks), bits, replicas, salt, std::move(owners)};
}

}  // namespace pyroute
