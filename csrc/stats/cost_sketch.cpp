#include "stats/cost_sketch.hpp"

#include <cmath>
#include <stdexcept>

#include "branchless.hpp"

namespace pyroute {
namespace {

constexpr std::uint64_t kNextHash = 0x9E3779B97F4A7C15u;
constexpr std::size_t kNarrowColumns = 4096;
constexpr std::size_t kMostCells = std::size_t{1} << 28;

}  // namespace

CostSketch::CostSketch(double epsilon, double delta, std::uint64_t seed)
    : epsilon_(epsilon), delta_(delta), seed_(seed), mixed_seed_(xx::finish(seed)) {
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
}

template <std::size_t kRows, class Body>
[[gnu::always_inline]] inline void CostSketch::for_each_cell(Key key, Body&& body) const {
  const std::size_t rows = kRows > 0 ? kRows : rows_;
  std::uint64_t hash = xx::finish(key ^ mixed_seed_);
  const unsigned bits = kRows > 0 || !wide_ ? 16 : 32;  // known row counts have narrow rows
  unsigned used = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    if (used == 64) {
      hash = xx::finish(hash + kNextHash);
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
    total_.time += time;
  }
  total_.frequency += static_cast<double>(ids.size());
}

void CostSketch::observe(const Batch& values, std::span<const double> times) {
  if (times.size() != values.size())
    throw std::invalid_argument("times: expected " + std::to_string(values.size()) +
                                " of them, got " + std::to_string(times.size()));
  double total = total_.time;
  for (const double time : times) {
    if (!(time >= 0 && time <= std::numeric_limits<double>::max()))
      throw std::invalid_argument("times: expected finite numbers >= 0, got " +
                                  std::to_string(time));
    total += time;
  }
  if (std::isinf(total))
    throw std::invalid_argument("times: expected a finite total, got more than a double holds");
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
    double frequency = std::numeric_limits<double>::infinity();
    for_each_cell<kRows>(ids[i], [&](std::size_t, std::size_t at) {
      const double f = cells_[at].frequency;
      best ^= (best ^ at) & ones_if(f < frequency);
      frequency = std::min(frequency, f);
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
    out[row] = static_cast<std::int64_t>(std::ceil(cell.frequency));
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
  const double overall = total_.frequency > 0 ? total_.time / total_.frequency : 0;
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
  if (std::isinf(total_.time + other.total_.time))
    throw std::invalid_argument("other: expected a finite total, got more than a double holds");
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    cells_[i].frequency += other.cells_[i].frequency;
    cells_[i].time += other.cells_[i].time;
  }
  total_.frequency += other.total_.frequency;
  total_.time += other.total_.time;
}

void CostSketch::decay(double factor) {
  if (!(factor >= 0 && factor <= 1))
    throw std::invalid_argument("factor: expected 0 to 1, got " + std::to_string(factor));
  for (Cell& cell : cells_) {
    cell.frequency *= factor;
    cell.time *= factor;
  }
  total_.frequency *= factor;
  total_.time *= factor;
}

void CostSketch::reset() {
  std::fill(cells_.begin(), cells_.end(), Cell{});
  total_ = {};
}

bool CostSketch::operator==(const CostSketch& other) const {
  return epsilon_ == other.epsilon_ && delta_ == other.delta_ && seed_ == other.seed_ &&
         total_ == other.total_ && cells_ == other.cells_;
}

//   epsilon f64, delta f64, seed u64, total F and W f64, then F and W f64 of every cell, row after row
std::string CostSketch::to_bytes() const {
  Writer to(Kernel::cost_sketch, 1);
  to.f64(epsilon_);
  to.f64(delta_);
  to.u64(seed_);
  to.f64(total_.frequency);
  to.f64(total_.time);
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
                    rows * columns * 16 + 16 == static_cast<double>(from.left()),
                "epsilon", "as many cells as follow");
  CostSketch out(epsilon, delta, seed);
  out.total_ = {from.amount("total"), from.amount("total")};
  for (Cell& cell : out.cells_) {
    const double frequency = from.amount("cell");
    cell = {frequency, from.amount("cell")};
  }
  from.end();
  return out;
}

}  // namespace pyroute
