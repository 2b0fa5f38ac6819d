// PairGraph: keys of consecutive stateful operators as vertices, their pairs as edges (paper 001,
// 3.3): bipartite for two operators, k-partite for a chain or a DAG of them (C3).
//
// A vertex is one key of one operator: the same value in two operators is two vertices. Vertices
// are numbered by operator, then by ascending id, so that neither the order of the pairs nor that
// of the calls shows. A relation is an ordered pair of operators between which records are passed;
// a pair that comes twice adds up.
//   load   of a key: what its operator receives, the sum of its pairs over all relations that lead
//          to the operator. Where that is less than what it passed on in one of the relations that
//          leave the operator (as for a source, to which nothing leads), that.
//   error  count - error <= true <= count for every pair (C12)
//
// Guarantees, each a test of that name in tests/test_pair_graph.py:
//   matches_reference   equal to the plain twin
//   order_never_shows   equal graphs for pairs in any order, in any number of calls
//   same_as_top         a sketch gives the graph of its top pairs
// Cost: one hash lookup per end of a pair, a sort of the keys. Memory: 40 bytes a pair, names of
// keys once. Threads: one writer or many readers.
#pragma once

#include "plan/locality.hpp"
#include "stats/space_saving.hpp"
#include "value_list.hpp"

namespace pyroute {

class PairGraph {
 public:
  // Throws std::invalid_argument for less than 2 or more than 64 operators.
  explicit PairGraph(std::size_t operators);

  // Throws std::invalid_argument, with the graph as it was: columns of other lengths, a count below
  // 1, an error below 0 or above its count, counts that add up to 2^48 or more; TypeMismatch where
  // an operator's values were of another kind before. Precondition: in, out < operators, in != out,
  // not finished.
  void add(std::size_t in, std::size_t out, const Batch& in_values, const Batch& out_values,
           std::span<const std::int64_t> counts, std::span<const std::int64_t> errors);
  void add(std::size_t in, std::size_t out, const PairSpaceSaving& sketch);
  // Keys of an operator that may have no pair.
  void add_keys(std::size_t op, const Batch& values);
  // Numbers the vertices. Precondition: not finished.
  void finish();

  [[nodiscard]] std::size_t operators() const noexcept { return sides_.size(); }
  [[nodiscard]] std::size_t vertices() const noexcept { return offsets_.size() - 1; }
  [[nodiscard]] std::size_t pairs() const noexcept { return neighbour_.size() / 2; }
  [[nodiscard]] std::int64_t total() const noexcept { return total_; }
  // By operator: its first vertex, its ids and values.
  [[nodiscard]] std::size_t begin(std::size_t op) const noexcept { return sides_[op].begin; }
  [[nodiscard]] const std::vector<Key>& ids(std::size_t op) const noexcept {
    return sides_[op].ids;
  }
  [[nodiscard]] const ValueList& names(std::size_t op) const noexcept { return sides_[op].names; }
  // By vertex, and by edge as in LocalityProblem.
  [[nodiscard]] const std::vector<std::int64_t>& loads() const noexcept { return loads_; }
  [[nodiscard]] const std::vector<std::size_t>& offsets() const noexcept { return offsets_; }
  [[nodiscard]] const std::vector<Vertex>& neighbours() const noexcept { return neighbour_; }
  [[nodiscard]] const std::vector<std::int64_t>& counts() const noexcept { return counts_; }
  [[nodiscard]] const std::vector<std::int64_t>& errors() const noexcept { return errors_; }

  // Traffic of the pairs whose ends have the same label, not below 0: by operator * operators +
  // operator, the smaller first. assured: count - error instead of count.
  [[nodiscard]] std::vector<std::int64_t> shared(std::span<const Position> label,
                                                 bool assured) const;
  // Sum over the pairs of count * near[label * labels + label].
  [[nodiscard]] std::int64_t nearness(std::span<const Position> label,
                                      std::span<const std::int64_t> near, std::size_t labels) const;

 private:
  struct Edge {
    std::uint32_t in, out;  // positions within their operators
    std::uint16_t in_side, out_side;
    std::int64_t count, error;
  };
  // The keys of an operator in the order in which they came, behind a table of open addressing.
  struct Side {
    std::vector<Key> ids;
    ValueList names;
    Kinds kinds;
    std::vector<std::string> encoded;  // by position, where values are stored; until finish()
    std::vector<std::uint32_t> slots;  // position + 1; 0: free
    std::size_t begin = 0;

    // Says of which kinds the next values are. Throws TypeMismatch.
    [[nodiscard]] Kinds with(const Kinds& next, const char* name) const {
      return unify(kinds, next, name);
    }
    void expect(Kinds next);
    // The position of an id, and whether it is new.
    std::pair<std::uint32_t, bool> enter(Key id);
    void grow();
  };
  void check(std::size_t in, std::size_t out, std::span<const std::int64_t> counts,
             std::span<const std::int64_t> errors);
  std::uint32_t enter(std::size_t op, Key id, const Batch& batch, std::size_t row);

  std::vector<Side> sides_;
  std::vector<Edge> edges_;
  std::int64_t total_ = 0;
  std::vector<std::int64_t> loads_, counts_, errors_;
  std::vector<std::size_t> offsets_{0};
  std::vector<Vertex> neighbour_;
};

}  // namespace pyroute
