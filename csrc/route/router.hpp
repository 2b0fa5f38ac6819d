// Router: a routing table over a home, at one version: which task gets a record.
//
//   task(key) = split  -> tasks[pmod(hash(key, salt), d)], d the number of its tasks in the order
//                      given, where
//                         hash(key, salt) = xxhash64 of the two bigints key and salt, as Spark
//                         computes it, and pmod of its signed value
//             | tabled -> its target
//             | else   -> its home
// A router is a value: immutable, versioned and fingerprinted. The fingerprint is a hash of home,
// table and splits, not of the version or of names; equal fingerprints route alike.
//
// Guarantees, each a test of that name in tests/test_router.py:
//   total        every key gets a task of the router, whatever the table holds
//   matches_dict equal to a dict over the home's answers
//   salted       a split key's records go to its tasks alone, the same salt always to the same
// Cost: hash + one array lookup + one slot of the table. Memory of a call: none beyond its output.
// Threads: immutable.
#pragma once

#include <memory>
#include <variant>

#include "table/engine_home.hpp"
#include "table/ring.hpp"
#include "table/routing_table.hpp"
#include "table/split.hpp"

namespace pyroute {

using Home = std::variant<Ring, EngineHome>;

class Router {
 public:
  // Throws std::invalid_argument: values of the table or the splits that come twice or share an id,
  // a target that is not a task of the home, a split with fewer than one or equal tasks, a key both
  // tabled and split, a negative version. TypeMismatch when table and splits are of different
  // kinds.
  Router(std::shared_ptr<const Home> home, const Batch& table, std::span<const TaskId> targets,
         const Batch& split_values, std::vector<std::vector<TaskId>> split_tasks,
         std::int64_t version);

  // Precondition: out.size() == values.size(); salts empty or one per value. Throws
  // std::invalid_argument where the router has splits and there are no salts; TypeMismatch or
  // std::invalid_argument where an engine's home cannot hash a value.
  void route(const Batch& values, std::span<const std::int64_t> salts, bool salted,
             std::span<TaskId> out) const;
  // Precondition of both: the home is a Ring and there are no splits (one_record()). At most kBlock
  // keys.
  [[nodiscard]] TaskId route_one(Key key) const noexcept {
    return table_.find(key, ring_->home(key));
  }
  void route_keys(std::span<const Key> keys, TaskId* out) const noexcept {
    ring_->homes(keys, out);
    table_.override(keys, out);
  }
  [[nodiscard]] bool one_record() const noexcept { return ring_ != nullptr && splits_.empty(); }

  [[nodiscard]] const std::shared_ptr<const Home>& home() const noexcept { return home_; }
  [[nodiscard]] const RoutingTable& table() const noexcept { return table_; }
  [[nodiscard]] std::span<const Split> splits() const noexcept { return splits_; }
  [[nodiscard]] const ValueList& split_names() const noexcept { return split_names_; }
  [[nodiscard]] std::vector<TaskId> tasks() const;  // ascending
  [[nodiscard]] std::int64_t version() const noexcept { return version_; }
  [[nodiscard]] std::uint64_t fingerprint() const noexcept { return fingerprint_; }
  [[nodiscard]] std::size_t bytes_used() const noexcept;
  // The same but for names and kinds.
  [[nodiscard]] bool operator==(const Router& other) const;

  // values = false leaves the names of tabled and split keys out.
  [[nodiscard]] std::string to_bytes(bool values) const;
  [[nodiscard]] static Router from_bytes(std::string_view data);

 private:
  Router() = default;
  void finish(std::vector<Key> ids, std::vector<TaskId> targets, ValueList names);

  std::shared_ptr<const Home> home_;
  const Ring* ring_ = nullptr;  // where the home is one
  RoutingTable table_;
  RoutingTable lookup_;  // where there are splits: table and split keys, those as -1 - position
  std::vector<Split> splits_;  // ascending by id
  ValueList split_names_;
  std::int64_t version_ = 0;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace pyroute
