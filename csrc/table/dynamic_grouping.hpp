// Dynamic grouping (paper 003): the split ratio as a circle of 2^bits identifiers; record n goes to
// the owner of identifier n mod 2^bits.
//
//   from_ratio       counts by apportion(), owners interleaved (trap P14: ranges and sequential ids
//                    would come in bursts). Of size identifiers task i gets gets_i. The k-th from 1
//                    goes, among the tasks with given_i * size < k * gets_i, to the one with the
//                    least ceil((given_i + 1) * size / gets_i), the last place where it would still
//                    be on time; ties to the smaller id
//   from_identifiers some identifiers are assigned; every other belongs to the first assigned one
//                    clockwise, that is at or after it (the paper's figure 4)
//   init_shards      the paper's initShards(tasks, shards): task t is assigned identifier
//                    t + s * tasks for s < shards, in this order; the rest as from_identifiers
//   reassign         the identifiers of one task go, in ascending order, to the tasks named,
//                    interleaved as in from_ratio by their weights; no other identifier changes
//   with_ratio       the fewest identifiers change (move_fewest, wanted = from_ratio, start 0)
//
// Guarantees, each a test of that name in tests/test_dynamic_grouping.py:
//   exact         each share differs from its ratio by less than 1 / 2^bits
//   interleaved   in every run of consecutive identifiers of from_ratio a task has its share of the
//                 run, up to 2
//   only_named    reassign changes the named task's identifiers only
//   fewest        with_ratio changes as few identifiers as any circle with those counts could
// Cost: one array lookup per record. Threads: immutable.
#pragma once

#include "table/circle.hpp"

namespace pyroute {

class DynamicGrouping {
 public:
  static constexpr unsigned kMostBits = 22;
  // Throws std::invalid_argument for bits outside 0 to 22 and wrong tasks (circle.hpp).
  [[nodiscard]] static DynamicGrouping from_ratio(std::span<const Weighted> ratio, unsigned bits);
  // Throws also for an identifier that is outside the circle or comes twice.
  [[nodiscard]] static DynamicGrouping from_identifiers(std::span<const std::int64_t> identifiers,
                                                        std::span<const TaskId> tasks,
                                                        unsigned bits);
  [[nodiscard]] static DynamicGrouping init_shards(std::size_t tasks, std::size_t shards,
                                                   unsigned bits);

  // Throws std::invalid_argument when `task` owns nothing, or is among `to`, or `to` is empty.
  [[nodiscard]] DynamicGrouping reassign(TaskId task, std::span<const Weighted> to) const;
  [[nodiscard]] DynamicGrouping with_ratio(std::span<const Weighted> ratio) const;

  // out[i] = owner of ids[i] mod 2^bits, the mod never negative.
  void assign(std::span<const std::int64_t> ids, TaskId* out) const noexcept;

  [[nodiscard]] std::span<const TaskId> owners() const noexcept { return owners_; }
  [[nodiscard]] unsigned bits() const noexcept { return bits_; }
  [[nodiscard]] std::uint64_t fingerprint() const noexcept;
  [[nodiscard]] bool operator==(const DynamicGrouping& other) const = default;

  [[nodiscard]] std::string to_bytes() const;
  [[nodiscard]] static DynamicGrouping from_bytes(std::string_view data);

 private:
  DynamicGrouping(unsigned bits, std::vector<TaskId> owners)
      : bits_(bits), owners_(std::move(owners)) {}

  unsigned bits_;
  std::vector<TaskId> owners_;
};

}  // namespace pyroute
