#include "stats/cost_sketch.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "branchless.hpp"

namespace pyroute {
namespace {

// The product of 64 bits each, folded to 64.
inline std::uint64_t fold(std::uint64_t value) noexcept {
  __extension__ typedef unsigned __int128 Wide;
  const Wide product = static_cast<Wide>(value) * 0x9E3779B97F4A7C15u;
  return static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product);
}

constexpr std::size_t kNarrowColumns = 4096;
constexpr std::size_t kMostCells = std::size_t{1} << 28;

}  // namespace

CostSketch::CostSketch(double epsilon, double delta, std::uint64_t seed)
    : epsilon_(epsilon), delta_(delta), seed_(seed) {
  if (!(epsilon > 0 && epsilon <= 3))
    throw std::invalid_argument("epsilon: expected above 0 and at most 3, got " +
                                std::to_string(epsilon));
  if (!(delta > 0 && delta < 1))
    throw std::invalid_argument("delta: expected between 0 and 1, got " + std::to_string(delta));
  const double rows = std::ceil(std::log2(1 / delta)), columns = std::ceil(std::exp(1.0) / epsilon);
  if (rows * columns > static_cast<double>(kMostCells))
    throw std::invalid_argument("epsilon: expected at most 2^28 cells, got " +
                                std::to_string(rows * columns));
  rows_ = static_cast<std::size_t>(rows);
  columns_ = static_cast<std::size_t>(columns);
  wide_ = columns_ > kNarrowColumns;
  cells_.resize(rows_ * columns_);
  const std::size_t rows_per_hash = wide_ ? 2 : 4;
  for (std::size_t j = 0; j * rows_per_hash < rows_; ++j)
    mixed_seeds_.push_back(xx::finish(seed + j));
}

CostSketch::Cell CostSketch::total() const noexcept {
  Cell out;
  for (std::size_t i = 0; i < columns_; ++i) {
    out.frequency += cells_[i].frequency;
    out.time += cells_[i].time;
  }
  return out;
}

template <std::size_t kRows, class Body>
[[gnu::always_inline]] inline void CostSketch::for_each_cell(Key key, Body&& body) const {
  const std::size_t rows = kRows > 0 ? kRows : rows_;
  std::uint64_t hash = fold(key ^ mixed_seeds_[0]);
  const unsigned bits = kRows > 0 || !wide_ ? 16 : 32;  // known row counts have narrow rows
  unsigned used = 0;
  std::size_t next = 1;
  for (std::size_t row = 0; row < rows; ++row) {
    if (used == 64) {
      hash = fold(hash ^ mixed_seeds_[next++]);
      used = 0;
    }
    const std::uint64_t part = hash << used >> (64 - bits);
    used += bits;
    body(row, row * columns_ + static_cast<std::size_t>(part * columns_ >> bits));
  }
}

template <std::size_t kRows>
void CostSketch::observe_block(std::span<const Key> ids, const double* times) noexcept {
  Cell* const cells = cells_.data();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double time = times[i];
    for_each_cell<kRows>(ids[i], [&](std::size_t, std::size_t at) {
      cells[at].frequency += 1;
      cells[at].time += time;
    });
  }
}

void CostSketch::observe(const Batch& values, std::span<const double> times) {
  if (times.size() != values.size())
    throw std::invalid_argument("times: expected " + std::to_string(values.size()) +
                                " of them, got " + std::to_string(times.size()));
  // The bits of doubles that are not negative order like integers, and every other one lies above.
  std::uint64_t largest = 0;
  for (const double time : times) largest = std::max(largest, std::bit_cast<std::uint64_t>(time));
  constexpr double most = std::numeric_limits<double>::max();
  if (largest > std::bit_cast<std::uint64_t>(most))
    for (const double time : times)
      if (!(time >= 0 && time <= most))
        throw std::invalid_argument("times: expected finite numbers >= 0, got " +
                                    std::to_string(time));
  if (double sum = total().time;
      std::isinf(sum + static_cast<double>(times.size()) * std::bit_cast<double>(largest))) {
    for (const double time : times) sum += time;
    if (std::isinf(sum))
      throw std::invalid_argument("times: expected a finite total, got more than a double holds");
  }
  values.for_each_block([&](std::size_t begin, std::span<const Key> ids) {
    if (rows_ == 4 && !wide_)
      observe_block<4>(ids, times.data() + begin);
    else
      observe_block<0>(ids, times.data() + begin);
  });
}

// The cell of least F per key, without a branch: F and W of the best row so far are selected together.
template <std::size_t kRows>
void CostSketch::least(std::span<const Key> ids, Cell* out) const noexcept {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::size_t best = 0;
    std::uint64_t frequency = ~std::uint64_t{0};  // bits: they order like the numbers
    for_each_cell<kRows>(ids[i], [&](std::size_t, std::size_t at) {
      const auto f = std::bit_cast<std::uint64_t>(cells_[at].frequency);
      const std::uint64_t less = ones_if(f < frequency);
      best ^= (best ^ at) & less;
      frequency ^= (frequency ^ f) & less;
    });
    out[i] = cells_[best];
  }
}

template <class Put>
void CostSketch::estimate(const Batch& values, Put&& put) const {
  Cell found[kBlock];
  values.for_each_block([&](std::size_t begin, std::span<const Key> ids) {
    if (rows_ == 4 && !wide_)
      least<4>(ids, found);
    else
      least<0>(ids, found);
    for (std::size_t i = 0; i < ids.size(); ++i) put(begin + i, found[i]);
  });
}

void CostSketch::frequency(const Batch& values, std::span<std::int64_t> out) const {
  estimate(values, [&](std::size_t row, const Cell& cell) {
    const auto whole = static_cast<std::int64_t>(cell.frequency);
    out[row] = whole + (static_cast<double>(whole) < cell.frequency ? 1 : 0);
  });
}

void CostSketch::time(const Batch& values, std::span<double> out) const {
  const auto least_time = [&]<std::size_t kRows>(std::size_t begin, std::span<const Key> ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      double time = std::numeric_limits<double>::infinity();
      for_each_cell<kRows>(ids[i], [&](std::size_t, std::size_t at) {
        time = std::min(time, cells_[at].time);
      });
      out[begin + i] = time;
    }
  };
  values.for_each_block([&](std::size_t begin, std::span<const Key> ids) {
    rows_ == 4 && !wide_ ? least_time.operator()<4>(begin, ids)
                         : least_time.operator()<0>(begin, ids);
  });
}

void CostSketch::mean_time(const Batch& values, std::span<double> out) const {
  const Cell all = total();
  const double overall = all.frequency > 0 ? all.time / all.frequency : 0;
  estimate(values, [&](std::size_t row, const Cell& cell) {
    out[row] = cell.frequency > 0 ? cell.time / cell.frequency : overall;
  });
}

void CostSketch::merge(const CostSketch& other) {
  if (rows_ != other.rows_ || columns_ != other.columns_ || seed_ != other.seed_)
    throw std::invalid_argument(
        "other: expected rows, columns, seed " + std::to_string(rows_) + ", " +
        std::to_string(columns_) + ", " + std::to_string(seed_) + ", got " +
        std::to_string(other.rows_) + ", " + std::to_string(other.columns_) + ", " +
        std::to_string(other.seed_));
  if (std::isinf(total().time + other.total().time))
    throw std::invalid_argument("other: expected a finite total, got more than a double holds");
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    cells_[i].frequency += other.cells_[i].frequency;
    cells_[i].time += other.cells_[i].time;
  }
}

void CostSketch::decay(double factor) {
  if (!(factor >= 0 && factor <= 1))
    throw std::invalid_argument("factor: expected 0 to 1, got " + std::to_string(factor));
  for (Cell& cell : cells_) {
    cell.frequency *= factor;
    cell.time *= factor;
  }
}

void CostSketch::reset() {
  std::fill(cells_.begin(), cells_.end(), Cell{});
}

bool CostSketch::operator==(const CostSketch& other) const {
  return epsilon_ == other.epsilon_ && delta_ == other.delta_ && seed_ == other.seed_ &&
         cells_ == other.cells_;
}

//   epsilon f64, delta f64, seed u64, then F and W f64 of every cell, row after row
std::string CostSketch::to_bytes() const {
  Writer to(Kernel::cost_sketch, 1);
  to.f64(epsilon_);
  to.f64(delta_);
  to.u64(seed_);
  for (const Cell& cell : cells_) {
    to.f64(cell.frequency);
    to.f64(cell.time);
  }
  return std::move(to).finish();
}

CostSketch CostSketch::from_bytes(std::string_view data) {
  Reader from(data, Kernel::cost_sketch, 1);
  const double epsilon = from.amount("epsilon"), delta = from.amount("delta");
  const std::uint64_t seed = from.u64();
  const double rows = std::ceil(std::log2(1 / delta)), columns = std::ceil(std::exp(1.0) / epsilon);
  Reader::check(epsilon <= 3 && delta < 1 &&
                    rows * columns * 16 == static_cast<double>(from.left()),
                "epsilon", "as many cells as follow");
  CostSketch out(epsilon, delta, seed);
  for (Cell& cell : out.cells_) {
    const double frequency = from.amount("cell");
    cell = {frequency, from.amount("cell")};
  }
  from.end();
  Reader::check(!std::isinf(out.total().time), "cells", "a finite total");
  return out;
}

}  // namespace pyroute
