// Dual Count-Min sketch (paper 004): how often a key came, F, and the time it took in all, W.
//
// Definition. rows = ceil(log2(1 / delta)), columns = ceil(e / epsilon) (traps O2 to O4). A cell
// holds (F, W); an observation (key, time) adds (1, time) to one cell of every row. The column in
// row i is floor(bits_i * columns / 2^b), where bits_i is the i-th group of b bits, from the top,
// of h_0, h_1, ...; h_0 = mix(key ^ mix(seed)), h_j+1 = mix(h_j ^ mix(seed + j + 1 modulo 2^64)),
// mix is the finisher of XXH64, and b is 16 up to 4096 columns, else 32 (trap O17: separate bits of
// one hash).
//   frequency(key)  the least F over the rows, rounded up
//   time(key)       the least W over the rows
//   mean_time(key)  W / F in the row of least F (the first of equals); total W / total F where F is
//                   0, the totals being the sums over the first row, which every observation meets
//                   once
//
// Guarantees, each a test of that name in tests/test_cost_sketch.py, for N observations of total
// time T:
//   never_under     true <= frequency and true <= time (time up to the rounding of its additions,
//                   relative 1e-12), for every key
//   over_estimate   frequency <= true + epsilon * N and time <= true + epsilon * T, each with
//                   probability 1 - delta over the seeds
//   like_universal  errors like those of rows with 2-universal hashes, on Zipf and adversarial keys
// F and W are doubles, so that one 16-byte addition updates a cell: F is exact up to 2^53.
// Cost: rows cells per key, all in the first-level cache at the default size; no branch depends on
// the data. Threads: one writer or many readers; the binding locks.
#pragma once

#include <algorithm>

#include "column.hpp"

namespace pyroute {

class CostSketch {
 public:
  // Throws std::invalid_argument unless 0 < epsilon <= 3, 0 < delta < 1, and rows * columns <=
  // 2^28.
  CostSketch(double epsilon, double delta, std::uint64_t seed);

  // Rows and columns for these parameters; throws as the constructor does, and allocates nothing.
  struct Shape {
    std::size_t rows, columns;
    [[nodiscard]] bool operator==(const Shape&) const = default;
  };
  [[nodiscard]] static Shape shape(double epsilon, double delta);

  // Throws std::invalid_argument, the state unchanged, when times differ in length from the values,
  // or one is negative, infinite or NaN.
  void observe(const Batch& values, std::span<const double> times);
  // Throws std::invalid_argument unless other has the same parameters and seed.
  void merge(const CostSketch& other);
  void decay(double factor);
  void reset();

  void frequency(const Batch& values, std::span<std::int64_t> out) const;
  void time(const Batch& values, std::span<double> out) const;
  void mean_time(const Batch& values, std::span<double> out) const;

  // For kernels that hold sketches, one key or block of keys at a time.
  // Adds to F and W of a key. Precondition: both finite and not negative.
  void add(Key key, double frequency, double time) noexcept;
  // total W / total F; 0 where nothing was observed. Costs a pass over the first row.
  [[nodiscard]] double overall_mean() const noexcept;
  // mean_time, with the overall mean given. Precondition: at most kBlock ids.
  void mean_times(std::span<const Key> ids, double overall, double* out) const noexcept;
  // The cells of at most kBlock keys, alike in every sketch of the same shape and seed:
  // at[row * kBlock + i].
  void locate(std::span<const Key> ids, std::uint32_t* at) const noexcept;
  // body(F, W) of every cell, in the order of locate().
  template <class Body>
  void for_each(Body&& body) const {
    for (const Cell& cell : cells_) body(cell.frequency, cell.time);
  }
  // How far the means have moved, weighted by frequency: the sum of F * |W' / F' - W / F| over the
  // sum of F * W' / F', over the cells that both occupy, primes for `before`; 0 where the second
  // sum is 0. Precondition: same shape.
  [[nodiscard]] double relative_change(const CostSketch& before) const noexcept;
  [[nodiscard]] bool same_shape(const CostSketch& other) const noexcept {
    return rows_ == other.rows_ && columns_ == other.columns_ && seed_ == other.seed_;
  }

  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::size_t columns() const noexcept { return columns_; }
  [[nodiscard]] double epsilon() const noexcept { return epsilon_; }
  [[nodiscard]] double delta() const noexcept { return delta_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  [[nodiscard]] double total_frequency() const noexcept { return total().frequency; }
  [[nodiscard]] double total_time() const noexcept { return total().time; }
  [[nodiscard]] bool operator==(const CostSketch& other) const;

  [[nodiscard]] std::string to_bytes() const;
  [[nodiscard]] static CostSketch from_bytes(std::string_view data);

 private:
  struct alignas(16) Cell {
    double frequency = 0;
    double time = 0;
    [[nodiscard]] bool operator==(const Cell&) const = default;
  };
  [[nodiscard]] Cell total() const noexcept;
  // body(cell index) for each row of a key.
  template <class Body>
  void for_each_cell(Key key, Body&& body) const;
  // body(position in the batch, the four or more cell indices of its key).
  template <class Body>
  void for_each_key(const Batch& values, Body&& body) const;
  // The cells of keys in a sketch of four narrow rows, the default: quads[4 * i + row].
  void quads(std::span<const Key> ids, std::uint32_t* quads) const noexcept;
  [[nodiscard]] bool has_quads() const noexcept { return rows_ == 4 && !wide_; }

  double epsilon_, delta_;
  std::uint64_t seed_;
  std::vector<std::uint64_t> mixed_seeds_;  // mix(seed + j) for each hash that the rows need
  std::size_t rows_, columns_;
  bool wide_;                // 32 bits of hash per row instead of 16
  std::vector<Cell> cells_;  // row after row
};

}  // namespace pyroute
