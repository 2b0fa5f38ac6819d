// KeyStats: exact cost and state size of every key over the last intervals (paper 002: c(k), S(k,
// w)).
//
// Definition. In an interval each record adds its cost (1 where none is given) and its state size
// to its key. close_interval() gives a Snapshot with every key seen in the last `window` intervals,
// in the order of first sight: state size = what was added over those intervals, or 1 for every key
// where no state sizes were ever given; cost = the forecast (1 - smoothing) * cost of this interval
// + smoothing * last forecast, and the cost itself in a key's first interval. Then the oldest
// interval is forgotten, with the keys that were seen in no other.
// Keys are told apart by value, not by id: two values of one id are two keys here.
//
// Guarantees: exact (against collections.Counter, tests/test_key_stats.py), by_value.
// Cost: one hash lookup per record; memory 56 + 8 * window bytes per key and its name.
// Threads: one writer; the binding locks.
#pragma once

#include "stats/snapshot.hpp"

namespace pyroute {

class KeyStats {
 public:
  // Throws std::invalid_argument for window outside 1 to 1000 and smoothing outside [0, 1).
  KeyStats(std::int64_t window, double smoothing);

  // costs and state_sizes empty where not given (has_*: whether they were). Throws, the state
  // unchanged: TypeMismatch for values of another kind than before, std::invalid_argument for
  // lengths that differ, a cost that is negative or not finite, a negative state size.
  void observe(const Batch& values, std::span<const double> costs, bool has_costs,
               std::span<const std::int64_t> state_sizes, bool has_state_sizes);
  [[nodiscard]] Snapshot close_interval();

  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] std::int64_t window() const noexcept { return window_; }
  [[nodiscard]] double smoothing() const noexcept { return smoothing_; }
  [[nodiscard]] std::int64_t interval() const noexcept { return interval_; }
  [[nodiscard]] bool operator==(const KeyStats& other) const;

  [[nodiscard]] std::string to_bytes() const;
  [[nodiscard]] static KeyStats from_bytes(std::string_view data);

 private:
  struct Entry {
    Key id;
    Cost cost;          // of the open interval
    Cost forecast;      // negative: none yet
    std::int64_t seen;  // last interval in which it came
    [[nodiscard]] bool operator==(const Entry&) const = default;
  };
  [[nodiscard]] std::size_t find_or_add(Key id, const Batch& values, std::size_t row);
  void rebuild_index(std::size_t least);
  [[nodiscard]] StateSize* sizes_of(std::size_t entry) {
    return sizes_.data() + entry * static_cast<std::size_t>(window_);
  }

  std::int64_t window_;
  double smoothing_;
  std::int64_t interval_ = 0;
  bool has_state_sizes_ = false;
  Cost open_cost_ = 0;          // of all keys in the open interval
  StateSize state_total_ = 0;   // of all keys over the window
  std::vector<Entry> entries_;  // by first sight
  ValueList names_;
  std::vector<StateSize> sizes_;      // window_ per entry, at interval mod window_
  std::vector<std::uint32_t> index_;  // open addressing: entry + 1, or 0
};

}  // namespace pyroute
