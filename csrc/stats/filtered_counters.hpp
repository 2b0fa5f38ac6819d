// Filtered SpaceSaving over 64-bit ids: the counters behind SpaceSaving and PairSpaceSaving.
//
// Definition. Groups in a circle; a group has 7 ways, each free or holding a monitored id with its
// count and error, and 16 filter cells. There are ceil(capacity * spread / 700) groups; the cell
// of an id is floor(low32(id) * cells / 2^32), and its group the one with that cell. (The low bits:
// a ring routes by the high ones, so a task that sees a share of the circle uses all cells.)
// `floor` starts at 0; ids whose count is at most floor may be evicted. An update (id, w), w > 0:
//   id is monitored              count += w
//   cell + w <= floor            cell += w
//   else                         id enters with count = cell + w, error = cell; the cell stays
// To enter, an id takes, in the first group from its own onward that has a way with count <= floor
// (free ways count 0), the way with the least count, the last among equals. What it evicts
// raises its own cell to its count. After every max(1, min(capacity / 4, (ways - capacity) / 2))
// entries, or when no way is left, floor becomes the capacity-th largest count (it never sinks).
// So eviction is O(1) whatever the weights are, and touches one group.
// Cells are 32 bits wide: beyond floor 2^32 - 1 they hold multiples of a unit, the least power of
// two for which floor fits, rounded up; the cell's value is then at most floor.
//
// Guarantees, for N = total weight, each a test of that name in tests/test_space_saving.py:
//   never_under   count - error <= true <= count for a monitored id; true <= its cell for others
//   error_bound   error <= floor, every cell <= floor, and floor <= N / capacity
//   merge_bound   the same after merge(), with floor <= N1 / c1 + N2 / min(c1, c2) for totals N and
//                 capacities c of the two
//   decay_bound   decay(f) keeps never_under for f times the true counts; it rounds up, so each
//                 call may add 1 to floor beyond f * N / capacity
//   any_weights   all of this for any weights
// Why floor <= N / capacity: M = sum over monitored ids of max(count - floor, 0), plus capacity *
// floor, grows by at most w in an update and never when floor rises or an id is evicted.
//
// Cost: O(1) amortised; three prefetched cache lines per update, and no branch that depends on
// whether the id is monitored. Memory: about 0.8 * spread / 2 bytes a key, see bytes_used().
// Threads: none of its own; the owner locks.
#pragma once

#include <span>
#include <vector>

#include "bytes.hpp"
#include "memory.hpp"

namespace pyroute {

// count * factor for factor in [0, 1], exactly, rounded up or down: equal on every platform.
[[nodiscard]] Count scale_up(Count count, double factor) noexcept;
[[nodiscard]] Count scale_down(Count count, double factor) noexcept;

class FilteredCounters {
 public:
  struct Entry {
    Key id;
    Count count;
    Count error;
    std::size_t slot;
  };
  struct Entered {  // an id that became monitored during a block
    std::size_t slot;
    std::size_t row;
  };

  // spread: ways per 100 keys of capacity, above 100. Throws std::invalid_argument when capacity
  // is 0 or above 2^28.
  FilteredCounters(std::size_t capacity, std::size_t spread);

  // Precondition: ids.size() <= kBlock; weights empty (all 1) or one per id, none negative; total()
  // + their sum <= kMaxCount. Ids that entered are appended to `entered`; a slot may have been
  // taken again since.
  void observe(std::span<const Key> ids, std::span<const std::int64_t> weights,
               std::vector<Entered>& entered);
  // Throws std::invalid_argument when the totals add up to more than kMaxCount.
  void merge(const FilteredCounters& other);
  void decay(double factor);
  void reset();

  [[nodiscard]] Count estimate(Key id) const noexcept;
  // All monitored ids, by (count descending, id ascending).
  [[nodiscard]] std::vector<Entry> entries() const;
  // The first `most` of them, in any order.
  [[nodiscard]] std::vector<Entry> entries_unordered(std::size_t most) const;
  [[nodiscard]] bool holds(std::size_t slot, Key id) const noexcept;
  [[nodiscard]] std::size_t find(Key id) const noexcept;  // slot, or slots() where not monitored
  [[nodiscard]] std::size_t slots() const noexcept { return groups_.size() * kWays; }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t spread() const noexcept { return spread_; }
  [[nodiscard]] std::size_t cells() const noexcept { return groups_.size() * kCells; }
  [[nodiscard]] Count total() const noexcept { return total_; }
  [[nodiscard]] Count floor() const noexcept { return floor_; }
  [[nodiscard]] Count cell(std::size_t index) const noexcept {
    const Count value = Count{groups_[index / kCells].cells[index % kCells]} << unit_bits_;
    return value < floor_ ? value : floor_;
  }
  [[nodiscard]] std::size_t bytes_used() const noexcept;
  [[nodiscard]] bool operator==(const FilteredCounters& other) const;

  void write(Writer& to) const;
  [[nodiscard]] static FilteredCounters read(Reader& from, std::size_t spread);

 private:
  static constexpr std::size_t kWays = 7;    // ids in a group: a cache line with its spill marks
  static constexpr std::size_t kCells = 16;  // filter cells in a group: a cache line

  struct alignas(64) Group {
    // [7]: bit spill_bit(id) is set for every id of this or an earlier group that went past it.
    std::uint64_t ids[kWays + 1] = {};
    Count counts[kWays + 1] = {};  // 0: the way is free; [7] takes the additions of 0
    std::uint32_t cells[kCells] = {};
  };

  static constexpr std::uint64_t spill_bit(Key id) noexcept {
    return std::uint64_t{1} << (id >> 32 & 63);
  }
  [[nodiscard]] std::size_t cell_of(Key id) const noexcept {
    return static_cast<std::size_t>((id & 0xffffffffu) * cells() >> 32);
  }
  [[nodiscard]] std::size_t after(std::size_t group) const noexcept {
    return group + 1 == groups_.size() ? 0 : group + 1;
  }
  [[nodiscard]] Count& count_ref(std::size_t slot) noexcept {
    return groups_[slot / kWays].counts[slot % kWays];
  }
  [[nodiscard]] Count count_at(std::size_t slot) const noexcept {
    return groups_[slot / kWays].counts[slot % kWays];
  }
  void set_cell(std::size_t index, Count value) noexcept;

  // weights: null where all are 1.
  template <class Match, bool kWeighted>
  void observe_with(const Key* ids, const std::int64_t* weights, std::size_t n,
                    std::vector<Entered>& entered);
  void observe_portable(const Key*, const std::int64_t*, std::size_t, std::vector<Entered>&);
  void observe_avx2(const Key*, const std::int64_t*, std::size_t, std::vector<Entered>&);
  void observe_avx512(const Key*, const std::int64_t*, std::size_t, std::vector<Entered>&);
  void observe_rest(const Key* ids, const std::int64_t* weights, std::size_t begin, std::size_t n,
                    std::vector<Entered>& entered);
  void observe_slowly(Key id, Count weight, std::size_t row, std::vector<Entered>& entered);
  std::size_t enter(Key id, Count count, Count error);
  std::size_t place(Key id, Count count, Count error);
  void raise_floor();
  void set_floor(Count floor) noexcept;
  void mark_spills() noexcept;

  std::size_t capacity_;
  std::size_t spread_;
  std::size_t step_;         // entries between two looks at the floor
  std::size_t entered_ = 0;  // since the last look
  std::size_t size_ = 0;
  unsigned unit_bits_ = 0;
  Count total_ = 0;
  Count floor_ = 0;
  std::vector<Group, LargePages<Group>> groups_;
  std::vector<Count, LargePages<Count>> errors_;  // per slot
};

}  // namespace pyroute
