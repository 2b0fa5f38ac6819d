#include "table/circle.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

namespace pyroute {
namespace {

std::vector<TaskId> distinct(std::span<const TaskId> owners) {
  std::vector<TaskId> out(owners.begin(), owners.end());
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::size_t position(std::span<const TaskId> sorted, TaskId task) {
  return static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), task) -
                                  sorted.begin());
}

}  // namespace

std::vector<Weighted> checked_tasks(std::span<const Weighted> tasks, const char* name) {
  const auto wrong = [&](const std::string& expected, const std::string& got) {
    return std::invalid_argument(std::string(name) + ": expected " + expected + ", got " + got);
  };
  if (tasks.empty()) throw wrong("at least one task", "none");
  std::vector<Weighted> out(tasks.begin(), tasks.end());
  std::sort(out.begin(), out.end(),
            [](const Weighted& a, const Weighted& b) { return a.task < b.task; });
  double sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i].task < 0) throw wrong("ids from 0 up", std::to_string(out[i].task));
    if (i > 0 && out[i].task == out[i - 1].task)
      throw wrong("distinct ids", std::to_string(out[i].task) + " twice");
    if (!(out[i].weight >= 0) || std::isinf(out[i].weight))
      throw wrong("finite weights >= 0",
                  std::to_string(out[i].weight) + " for task " + std::to_string(out[i].task));
    sum += out[i].weight;
  }
  if (!(sum > 0)) throw wrong("a weight above 0", "only zeros");
  if (std::isinf(sum)) throw wrong("weights with a finite sum", "more");
  return out;
}

std::vector<std::size_t> apportion(std::span<const Weighted> tasks, std::size_t identifiers) {
  double sum = 0;
  for (const Weighted& w : tasks) sum += w.weight;
  // Share i is weight * identifiers / sum; its remainder, times sum, without rounding error: ties
  // between equal weights must be ties.
  std::vector<std::size_t> gets(tasks.size());
  std::vector<double> rest(tasks.size());
  std::size_t given = 0;
  const auto n = static_cast<double>(identifiers);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const double product = tasks[i].weight * n;
    const double lost = std::fma(tasks[i].weight, n, -product);
    double whole = std::floor(product / sum);
    const auto left = [&] { return std::fma(-whole, sum, product) + lost; };
    while (whole > 0 && left() < 0) whole -= 1;
    while (left() >= sum) whole += 1;
    gets[i] = static_cast<std::size_t>(whole);
    rest[i] = left();
    given += gets[i];
  }
  std::vector<std::size_t> order(tasks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rest[a] > rest[b]; });
  // The remainders add up to what is left, but for rounding: the loops end after a pass at most.
  for (std::size_t i = 0; given < identifiers; i = (i + 1) % order.size()) {
    if (tasks[order[i]].weight == 0) continue;
    ++gets[order[i]];
    ++given;
  }
  for (std::size_t i = order.size(); given > identifiers; i = i == 1 ? order.size() : i - 1) {
    if (gets[order[i - 1]] == 0) continue;
    --gets[order[i - 1]];
    --given;
  }
  return gets;
}

std::vector<TaskId> move_fewest(std::span<const TaskId> owners, std::span<const Weighted> tasks,
                                std::span<const std::size_t> gets, std::span<const TaskId> wanted,
                                std::size_t start) {
  std::vector<TaskId> ids;
  for (const Weighted& w : tasks) ids.push_back(w.task);
  for (const TaskId owner : distinct(owners))
    if (!std::binary_search(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(tasks.size()),
                            owner))
      ids.push_back(owner);
  std::sort(ids.begin(), ids.end());
  std::vector<std::size_t> has(ids.size()), room(ids.size());
  for (const TaskId owner : owners) ++has[position(ids, owner)];
  for (std::size_t i = 0; i < tasks.size(); ++i) room[position(ids, tasks[i].task)] = gets[i];
  std::vector<std::size_t> surplus(ids.size()), deficit(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    surplus[i] = has[i] > room[i] ? has[i] - room[i] : 0;
    deficit[i] = room[i] > has[i] ? room[i] - has[i] : 0;
  }
  std::vector<TaskId> out(owners.begin(), owners.end());
  const auto walk = [&](auto&& next_owner) {
    for (std::size_t step = 0; step < out.size(); ++step) {
      const std::size_t at = (start + step) % out.size();
      const std::size_t from = position(ids, out[at]);
      if (surplus[from] == 0) continue;
      const std::size_t to = next_owner(at);
      if (to == ids.size() || deficit[to] == 0) continue;
      --surplus[from];
      --deficit[to];
      out[at] = ids[to];
    }
  };
  walk([&](std::size_t at) {
    const std::size_t to = position(ids, wanted[at]);
    return to < ids.size() && ids[to] == wanted[at] ? to : ids.size();
  });
  std::size_t smallest = 0;
  walk([&](std::size_t) {
    while (smallest < ids.size() && deficit[smallest] == 0) ++smallest;
    return smallest;
  });
  return out;
}

void write_tasks(Writer& to, std::span<const Weighted> tasks) {
  to.varint(tasks.size());
  for (const Weighted& w : tasks) {
    to.varint(static_cast<std::uint64_t>(w.task));
    to.f64(w.weight);
  }
}

std::vector<Weighted> read_tasks(Reader& from) {
  std::vector<Weighted> out(from.count("tasks", 9));
  for (Weighted& w : out) {
    w.task = static_cast<TaskId>(from.varint("task", 0x7fffffff));
    w.weight = from.amount("weight");
  }
  try {
    if (checked_tasks(out, "tasks") != out) throw Reader::bad("tasks", "ascending order");
  } catch (const std::invalid_argument& error) {
    throw FormatError(error.what());
  }
  return out;
}

//   number of owners, each as the difference to the last; form u8; then
//   form 0: runs of (position, length), varints     form 1: positions, packed low bits first
void write_owners(Writer& to, std::span<const TaskId> owners) {
  const std::vector<TaskId> ids = distinct(owners);
  to.varint(ids.size());
  TaskId last = 0;
  for (const TaskId id : ids) {
    to.varint(static_cast<std::uint64_t>(id - last));
    last = id;
  }
  Writer runs;
  for (std::size_t i = 0; i < owners.size();) {
    std::size_t end = i;
    while (end < owners.size() && owners[end] == owners[i]) ++end;
    runs.varint(position(ids, owners[i]));
    runs.varint(end - i);
    i = end;
  }
  const auto width = static_cast<std::size_t>(std::bit_width(ids.size() - 1));
  if (runs.payload().size() <= (owners.size() * width + 7) / 8) {
    to.u8(0);
    to.bytes(runs.payload());
    return;
  }
  to.u8(1);
  std::uint64_t pending = 0;
  std::size_t bits = 0;
  for (const TaskId owner : owners) {
    pending |= static_cast<std::uint64_t>(position(ids, owner)) << bits;
    for (bits += width; bits >= 8; bits -= 8, pending >>= 8)
      to.u8(static_cast<std::uint8_t>(pending));
  }
  if (bits > 0) to.u8(static_cast<std::uint8_t>(pending));
}

std::vector<TaskId> read_owners(Reader& from, std::size_t identifiers) {
  std::vector<TaskId> ids(from.count("owners", 1));
  Reader::check(!ids.empty() && ids.size() <= identifiers, "owners", "one for each identifier");
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t step = from.varint("owner", 0x7fffffff - last);
    Reader::check(i == 0 || step > 0, "owners", "distinct ids");
    last += step;
    ids[i] = static_cast<TaskId>(last);
  }
  const auto at = [&](std::uint64_t index) {
    Reader::check(index < ids.size(), "owner", "one of the owners");
    return ids[static_cast<std::size_t>(index)];
  };
  std::vector<TaskId> out;
  const std::uint8_t form = from.u8();
  Reader::check(form <= 1, "form", "0 or 1");
  if (form == 0) {
    while (out.size() < identifiers) {
      const TaskId owner = at(from.varint("owner"));
      const std::uint64_t length = from.varint("run", identifiers - out.size());
      Reader::check(length > 0, "run", "at least 1");
      out.insert(out.end(), static_cast<std::size_t>(length), owner);
    }
  } else {
    const auto width = static_cast<std::size_t>(std::bit_width(ids.size() - 1));
    const std::string_view data = from.bytes((identifiers * width + 7) / 8);
    out.reserve(identifiers);
    std::uint64_t pending = 0;
    std::size_t bits = 0, next = 0;
    for (std::size_t i = 0; i < identifiers; ++i) {
      for (; bits < width; bits += 8)
        pending |= static_cast<std::uint64_t>(static_cast<unsigned char>(data[next++])) << bits;
      out.push_back(at(pending & ((std::uint64_t{1} << width) - 1)));
      pending >>= width;
      bits -= width;
    }
  }
  Reader::check(distinct(out) == ids, "owners", "each of them used");
  return out;
}

std::uint64_t hash_owners(std::span<const TaskId> owners, std::uint64_t seed) noexcept {
  return hash_bytes(reinterpret_cast<const char*>(owners.data()), owners.size_bytes(), seed);
}

}  // namespace pyroute
