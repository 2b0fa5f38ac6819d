// SpaceSaving: the heaviest keys of a stream in bounded memory, by name, with error bounds.
// PairSpaceSaving: the same for pairs of keys (paper 001: input key, output key of an operator).
//
// The counters, their definition and their guarantees are those of filtered_counters.hpp. A pair's
// id is hash_int64(out key, seed = in key): given the in key, the out key can be computed back from
// it. top(k) gives the k first by (count descending, id ascending), at most `capacity`.
//
// Threads: one writer or many readers; the binding locks the object's mutex after it released the
// GIL.
#pragma once

#include "stats/filtered_counters.hpp"
#include "stats/names.hpp"

namespace pyroute {

class SpaceSaving {
 public:
  static constexpr std::size_t kSpread = 250;
  struct Top {
    std::vector<std::string> names;  // encoded, see value.hpp
    std::vector<std::int64_t> counts, errors;
  };

  explicit SpaceSaving(std::size_t capacity) : counters_(capacity, kSpread) {}

  // Throws, with the state unchanged: TypeMismatch when the values are of another kind than before,
  // std::invalid_argument when weights are negative, of another length, or overflow the total.
  void observe(const Batch& values, std::span<const std::int64_t> weights, bool weighted);
  // Counts a block of keys, each once: encode(row, text) appends the encoding of row's value
  // (value.hpp). Precondition: at most kBlock ids, each the key of its value; values of these
  // kinds. Throws TypeMismatch, with the state unchanged, when they are of another kind than before.
  template <class Encode>
  void observe_block(std::span<const Key> block, const Kinds& kinds, Encode&& encode) {
    names_.expect(kinds, "values");
    const bool named = !self_naming(names_.kinds());
    counters_.observe(block, {}, entered_);
    if (named)
      for (const auto& [slot, row] : entered_)
        if (counters_.holds(slot, block[row]))
          names_.add_with(block[row], [&](std::string& text) { encode(row, text); });
    entered_.clear();
    names_.retain(counters_.size(), [&](auto&& keep) {
      for (const Key id : ids()) keep(id);
    });
  }
  void merge(const SpaceSaving& other);
  void decay(double factor) { counters_.decay(factor); }
  void reset();

  [[nodiscard]] Top top(std::size_t most) const;
  void estimate(const Batch& values, std::span<std::int64_t> out) const;
  [[nodiscard]] std::size_t size() const noexcept {
    return std::min(counters_.size(), counters_.capacity());
  }
  [[nodiscard]] const FilteredCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] const Kinds& kinds() const noexcept { return names_.kinds(); }
  [[nodiscard]] std::size_t bytes_used() const noexcept {
    return counters_.bytes_used() + names_.bytes_used();
  }
  [[nodiscard]] bool operator==(const SpaceSaving& other) const;

  [[nodiscard]] std::string to_bytes() const;
  [[nodiscard]] static SpaceSaving from_bytes(std::string_view data);

 private:
  explicit SpaceSaving(FilteredCounters counters) : counters_(std::move(counters)) {}
  [[nodiscard]] std::vector<Key> ids() const;

  FilteredCounters counters_;
  Names names_;
  std::vector<FilteredCounters::Entered> entered_;  // room for one block
};

class PairSpaceSaving {
 public:
  static constexpr std::size_t kSpread = 130;  // a million pairs in 64 MB
  struct Top {
    std::vector<std::string> in_names, out_names;
    std::vector<std::int64_t> counts, errors;
  };

  explicit PairSpaceSaving(std::size_t capacity)
      : counters_(capacity, kSpread), ins_(counters_.slots()) {}

  void observe(const Batch& in_values, const Batch& out_values,
               std::span<const std::int64_t> weights, bool weighted);
  void merge(const PairSpaceSaving& other);
  void decay(double factor) { counters_.decay(factor); }
  void reset();

  [[nodiscard]] Top top(std::size_t most) const;
  // The pairs of top(capacity) without their names, in any order.
  struct Pair {
    Key in, out;
    Count count, error;
  };
  [[nodiscard]] std::vector<Pair> pairs() const;
  [[nodiscard]] const Names& in_names() const noexcept { return in_names_; }
  [[nodiscard]] const Names& out_names() const noexcept { return out_names_; }
  void estimate(const Batch& in_values, const Batch& out_values, std::span<std::int64_t> out) const;
  [[nodiscard]] std::size_t size() const noexcept {
    return std::min(counters_.size(), counters_.capacity());
  }
  [[nodiscard]] const FilteredCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] std::size_t bytes_used() const noexcept {
    return counters_.bytes_used() + ins_.size() * sizeof(Key) + in_names_.bytes_used() +
           out_names_.bytes_used();
  }
  [[nodiscard]] bool operator==(const PairSpaceSaving& other) const;

  [[nodiscard]] std::string to_bytes() const;
  [[nodiscard]] static PairSpaceSaving from_bytes(std::string_view data);

 private:
  explicit PairSpaceSaving(FilteredCounters counters)
      : counters_(std::move(counters)), ins_(counters_.slots()) {}
  void drop_unused_names();
  [[nodiscard]] std::vector<Key> in_ids() const;
  [[nodiscard]] std::vector<Key> out_ids() const;

  FilteredCounters counters_;
  std::vector<Key> ins_;  // the in key of each slot
  Names in_names_, out_names_;
};

}  // namespace pyroute
