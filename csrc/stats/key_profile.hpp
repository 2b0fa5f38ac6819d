// KeyProfile: what a report says of a stream after one pass: its hot keys by name, with bounds, and
// the load of every identifier of a ring's circle.
//
// Definition. The circle has 2^bits identifiers; the identifier of a key is its top `bits` bits, as
// in ring.hpp. A table monitors up to `capacity` keys. A record of a monitored key adds to that
// key's sums (records, cost, state size), any other record to the sums of its identifier. So a
// key's identifier bounds what the table did not see of it, and the load of an identifier is its
// own sums and those of its monitored keys, exactly.
//   While the table has room, a key enters it with its first record.
//   Of the first kFilling records all, then those of every 16th block of 512 (in an order without a
//   period) that are not of a monitored key go to a sketch, the scout (filtered_counters.hpp).
//   From row 2^12 on, eight times while the rows double and at least every 2^21 rows, keys of the
//   scout take the places of monitored keys that are surely lighter; those return their sums to
//   their identifiers.
// A key that enters takes from its identifier what the scout has surely seen of it (records alone:
// where there are costs the scout counts in another unit, and nothing is taken); what is left in
// the identifier is the key's error.
// Beside it 2^12 registers count distinct keys (HyperLogLog).
//
// Guarantees, each a test of that name in tests/test_key_profile.py:
//   between       records <= true <= records + error for a monitored key, and the same for cost
//   others        a key that is not monitored has at most the sums of its identifier
//   circle_exact  the loads of identifiers are exact
//   exact_if_few  up to `capacity` keys: all are monitored, with errors of 0, and `distinct` is
//                 their number
//   any_split     batches may be cut anywhere
//   merge_between all but the last two after merge()
// Cost: a record of the fast path costs its hash, two loads to look it up and one addition per sum,
// none of them a branch that depends on the key. Memory: 8 * (2^bits + 4 * capacity) per sum.
// Threads: one writer or many readers; the binding locks.
#pragma once

#include "stats/filtered_counters.hpp"
#include "stats/names.hpp"

namespace pyroute {

class KeyProfile {
 public:
  static constexpr std::size_t kFilling = std::size_t{1} << 16;
  static constexpr unsigned kRegisterBits = 12;

  struct Hot {  // by cost (records where there are none) descending, then id ascending
    std::vector<std::string> names;
    std::vector<Key> ids;
    std::vector<std::int64_t> records, record_errors;
    std::vector<double> costs, cost_errors;  // empty where no costs were seen
    std::vector<double> states;              // empty where no state sizes were seen
  };

  // Throws std::invalid_argument when capacity is 0 or above 2^20, or bits is not 1 to 22.
  KeyProfile(std::size_t capacity, unsigned bits);

  struct Input {
    std::span<const std::int64_t> records;  // per row; empty: 1 each
    std::span<const double> costs, states;  // per row; empty: none
    bool costed = false, stated = false;    // whether the stream has them at all
  };
  // Throws, with nothing changed: TypeMismatch when the values are of another kind than before,
  // std::invalid_argument when an array is of another length, has a number that is negative or not
  // finite, or is there in one call and missing in another.
  void observe(const Batch& values, const Input& input);
  // Throws std::invalid_argument for other parameters.
  void merge(const KeyProfile& other);
  // Forgets all sums; the monitored keys stay, so that a next interval knows them from its start.
  void restart();

  [[nodiscard]] Hot hot(std::size_t most) const;
  // Per identifier, what no monitored key accounts for.
  [[nodiscard]] std::vector<double> rest(bool cost) const;
  // out[i]: whether the key of row i is monitored.
  void find(const Batch& values, std::span<std::uint8_t> out) const;
  [[nodiscard]] std::uint64_t records() const noexcept { return records_; }
  [[nodiscard]] double cost() const noexcept;
  [[nodiscard]] bool costed() const noexcept { return costed_; }
  [[nodiscard]] double distinct() const;
  // Whether every key is monitored, without error.
  [[nodiscard]] bool exact() const noexcept { return all_here_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] unsigned bits() const noexcept { return 64 - shift_; }
  [[nodiscard]] std::size_t bytes_used() const noexcept;

 private:
  using Sums = std::vector<double, LargePages<double>>;
  struct Part;    // consecutive rows of one block
  struct Placed;  // a monitored key with its sums

  [[nodiscard]] std::size_t first_of(Key id) const noexcept { return id & mask_; }
  [[nodiscard]] std::size_t second_of(Key id) const noexcept { return slots_ + (id >> 20 & mask_); }
  [[nodiscard]] std::size_t cell_of(Key id) const noexcept {
    return 2 * slots_ + static_cast<std::size_t>(id >> shift_);
  }
  [[nodiscard]] Key nobody(std::size_t slot) const noexcept;
  [[nodiscard]] bool taken(std::size_t slot) const noexcept { return ids_[slot] != nobody(slot); }
  [[nodiscard]] std::size_t place_of(Key id) const noexcept;
  [[nodiscard]] static bool sampled(std::uint64_t row) noexcept;

  void check(const Batch& values, const Input& input) const;
  void observe_part(const Batch& values, const Part& part);
  void fill(const Batch& values, const Part& part, std::uint32_t* places);
  void locate(const Key* ids, std::size_t count, std::uint32_t* places) const noexcept;
  void add(const Part& part, const std::uint32_t* places);
  void scout(const Batch& values, const Part& part, const std::uint32_t* places);
  void count_distinct(const Part& part, const std::uint32_t* places);
  void mark_distinct(Key id) noexcept;
  void refresh();
  [[nodiscard]] double measure(std::size_t place) const noexcept;
  [[nodiscard]] Placed take(std::size_t slot);
  [[nodiscard]] bool enter(Placed key);
  void pour(const Placed& key);
  void clear_table();
  [[nodiscard]] std::vector<Placed> placed() const;
  [[nodiscard]] bool before(const Placed& a, const Placed& b) const noexcept;
  [[nodiscard]] double most_of(const Placed& key) const noexcept;
  void forget_names();

  std::size_t capacity_;
  unsigned shift_;     // 64 - bits
  std::size_t slots_;  // of each of two tables, a power of two
  std::size_t mask_;
  std::vector<Key, LargePages<Key>> ids_;                        // first table, second table
  std::vector<std::uint64_t, LargePages<std::uint64_t>> count_;  // both tables, then identifiers
  Sums costs_, states_;
  std::vector<std::uint64_t> record_errors_;  // per slot
  std::vector<double> cost_errors_;
  std::size_t size_ = 0;
  bool all_here_ = true;
  bool costed_ = false, stated_ = false, begun_ = false;
  double unit_ = 0;  // of the scout's weights, where there are costs
  std::uint64_t records_ = 0;
  std::uint64_t rows_ = 0;  // of batches; fewer than records where rows stand for several
  FilteredCounters scout_;
  Names names_;
  std::vector<std::uint8_t> registers_;
  Key unmarked_ = 0;  // a key with one of these bits set cannot raise a register
};

}  // namespace pyroute
