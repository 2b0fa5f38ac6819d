#include "plan/group_report.hpp"

#include <bit>

namespace pyroute {
namespace {

constexpr std::uint64_t kMostTask = 0x7fffffff, kMostCount = 0xffffffff;

TaskId read_task(Reader& from, const char* name) {
  return static_cast<TaskId>(from.varint(name, kMostTask));
}
std::uint32_t read_count(Reader& from, const char* name) {
  return static_cast<std::uint32_t>(from.varint(name, kMostCount));
}

}  // namespace

//   task varint, version varint, fingerprint u64, degree varint, background f64, load f64, greatest
//   f64, number of groups varint, each: home varint, cost f64, size varint, count varint, id u64
std::string GroupReport::to_bytes() const {
  Writer to(Kernel::group_report, 1);
  to.varint(static_cast<std::uint64_t>(task));
  to.varint(static_cast<std::uint64_t>(version));
  to.u64(fingerprint);
  to.varint(static_cast<std::uint64_t>(degree));
  to.f64(background);
  to.f64(load);
  to.f64(greatest);
  to.varint(id.size());
  for (std::size_t i = 0; i < id.size(); ++i) {
    to.varint(static_cast<std::uint64_t>(home[i]));
    to.f64(cost[i]);
    to.varint(static_cast<std::uint64_t>(size[i]));
    to.varint(count[i]);
    to.u64(id[i]);
  }
  return std::move(to).finish();
}

GroupReport GroupReport::from_bytes(std::string_view data) {
  Reader from(data, Kernel::group_report, 1);
  GroupReport out;
  out.task = read_task(from, "task");
  out.version = static_cast<std::int64_t>(from.varint("version", kMaxCount));
  out.fingerprint = from.u64();
  out.degree = static_cast<std::int64_t>(from.varint("degree", std::uint64_t{1} << 30));
  Reader::check(std::has_single_bit(static_cast<std::uint64_t>(out.degree)), "degree",
                "a power of two");
  out.background = from.amount("background");
  out.load = from.amount("load");
  out.greatest = from.amount("greatest");
  const std::size_t groups = from.count("groups", 19);
  for (std::size_t i = 0; i < groups; ++i) {
    out.home.push_back(read_task(from, "home"));
    out.cost.push_back(from.amount("cost"));
    out.size.push_back(static_cast<StateSize>(from.varint("size", kMaxCount)));
    out.count.push_back(read_count(from, "count"));
    Reader::check(out.count.back() > 0, "count", "at least 1");
    out.id.push_back(from.u64());
  }
  from.end();
  return out;
}

//   task varint, number of orders varint, each: group varint, count varint, target varint
std::string GroupOrders::to_bytes() const {
  Writer to(Kernel::group_orders, 1);
  to.varint(static_cast<std::uint64_t>(task));
  to.varint(group.size());
  for (std::size_t i = 0; i < group.size(); ++i) {
    to.varint(group[i]);
    to.varint(count[i]);
    to.varint(static_cast<std::uint64_t>(target[i]));
  }
  return std::move(to).finish();
}

GroupOrders GroupOrders::from_bytes(std::string_view data) {
  Reader from(data, Kernel::group_orders, 1);
  GroupOrders out;
  out.task = read_task(from, "task");
  const std::size_t orders = from.count("orders", 3);
  for (std::size_t i = 0; i < orders; ++i) {
    out.group.push_back(read_count(from, "group"));
    out.count.push_back(read_count(from, "count"));
    out.target.push_back(read_task(from, "target"));
  }
  from.end();
  return out;
}

}  // namespace pyroute
