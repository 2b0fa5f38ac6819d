#include "stats/cost_sketch.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "simd.hpp"

namespace pyroute {
namespace {

constexpr std::size_t kNarrowColumns = 4096;
constexpr std::size_t kMostCells = std::size_t{1} << 28;

// The compiler vectorises it where the target multiplies 64 bits.
[[gnu::always_inline]] inline void quads_loop(const Key* ids, std::size_t n, std::uint64_t seed,
                                              std::uint64_t columns, std::uint32_t* to) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t hash = xx::finish(ids[i] ^ seed);
    to[i] = static_cast<std::uint32_t>((hash >> 48) * columns >> 16);
    to[i + kBlock] = static_cast<std::uint32_t>(((hash >> 32 & 0xffff) * columns >> 16) + columns);
    to[i + 2 * kBlock] =
        static_cast<std::uint32_t>(((hash >> 16 & 0xffff) * columns >> 16) + 2 * columns);
    to[i + 3 * kBlock] =
        static_cast<std::uint32_t>(((hash & 0xffff) * columns >> 16) + 3 * columns);
  }
}

// W / F in the row of least F for each key of a block; cells are pairs F, W.
void means(const std::uint32_t* at, std::size_t n, const double* cells, double overall,
           double* out) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t best = at[i];
    double least = cells[2 * std::size_t{best}];
    for (std::size_t row = 1; row < 4; ++row) {
      const std::uint32_t next = at[i + row * kBlock];
      const double f = cells[2 * std::size_t{next}];
      best = f < least ? next : best;
      least = f < least ? f : least;
    }
    const double mean = cells[2 * std::size_t{best} + 1] / least;
    out[i] = least > 0 ? mean : overall;
  }
}

#if PYROUTE_X86
PYROUTE_AVX512 void quads_avx512(const Key* ids, std::size_t n, std::uint64_t seed,
                                 std::uint64_t columns, std::uint32_t* to) noexcept {
  quads_loop(ids, n, seed, columns, to);
}
#endif

}  // namespace

CostSketch::Shape CostSketch::shape(double epsilon, double delta) {
  if (!(epsilon > 0 && epsilon <= 3))
    throw std::invalid_argument("epsilon: expected above 0 and at most 3, got " +
                                std::to_string(epsilon));
  if (!(delta > 0 && delta < 1))
    throw std::invalid_argument("delta: expected between 0 and 1, got " + std::to_string(delta));
  const double rows = std::ceil(std::log2(1 / delta)), columns = std::ceil(std::exp(1.0) / epsilon);
  if (rows * columns > static_cast<double>(kMostCells))
    throw std::invalid_argument("epsilon: expected at most 2^28 cells, got " +
                                std::to_string(rows * columns));
  return {static_cast<std::size_t>(rows), static_cast<std::size_t>(columns)};
}

CostSketch::CostSketch(double epsilon, double delta, std::uint64_t seed)
    : epsilon_(epsilon), delta_(delta), seed_(seed) {
  const Shape size = shape(epsilon, delta);
  rows_ = size.rows;
  columns_ = size.columns;
  wide_ = columns_ > kNarrowColumns;
  cells_.resize(rows_ * columns_);
  const std::size_t rows_per_hash = wide_ ? 2 : 4;
  for (std::size_t j = 0; j * rows_per_hash < rows_; ++j)
    mixed_seeds_.push_back(xx::finish(seed + j));
}

// Eight sums that do not wait for each other, cell i in sum i % 8, and then these from the left.
CostSketch::Cell CostSketch::total() const noexcept {
  constexpr std::size_t kSums = 8;
  Cell sums[kSums];
  const auto add = [](Cell& to, const Cell& more) {
    to.frequency += more.frequency;
    to.time += more.time;
  };
  std::size_t i = 0;
  for (; i + kSums <= columns_; i += kSums)
    for (std::size_t j = 0; j < kSums; ++j) add(sums[j], cells_[i + j]);
  for (std::size_t j = 0; i + j < columns_; ++j) add(sums[j], cells_[i + j]);
  for (std::size_t j = 1; j < kSums; ++j) add(sums[0], sums[j]);
  return sums[0];
}

template <class Body>
[[gnu::always_inline]] inline void CostSketch::for_each_cell(Key key, Body&& body) const {
  std::uint64_t hash = xx::finish(key ^ mixed_seeds_[0]);
  const unsigned bits = wide_ ? 32 : 16;
  unsigned used = 0;
  std::size_t next = 1;
  for (std::size_t row = 0; row < rows_; ++row) {
    if (used == 64) {
      hash = xx::finish(hash ^ mixed_seeds_[next++]);
      used = 0;
    }
    const std::uint64_t part = hash << used >> (64 - bits);
    used += bits;
    body(row * columns_ + static_cast<std::size_t>(part * columns_ >> bits));
  }
}

void CostSketch::quads(std::span<const Key> ids, std::uint32_t* to) const noexcept {
#if PYROUTE_X86
  if (simd() == Simd::avx512)
    return quads_avx512(ids.data(), ids.size(), mixed_seeds_[0], columns_, to);
#endif
  quads_loop(ids.data(), ids.size(), mixed_seeds_[0], columns_, to);
}

// body(row of the batch, each), where each(f) calls f(cell index) for every row of the sketch.
template <class Body>
[[gnu::always_inline]] inline void CostSketch::for_each_key(const Batch& values,
                                                            Body&& body) const {
  values.for_each_block([&](std::size_t begin, std::span<const Key> ids) {
    if (!has_quads()) {
      for (std::size_t i = 0; i < ids.size(); ++i)
        body(begin + i, [&](auto&& f) { for_each_cell(ids[i], f); });
      return;
    }
    std::uint32_t at[4 * kBlock];
    quads(ids, at);
    for (std::size_t i = 0; i < ids.size(); ++i)
      body(begin + i, [&](auto&& f) __attribute__((always_inline)) {
        f(at[i]);
        f(at[i + kBlock]);
        f(at[i + 2 * kBlock]);
        f(at[i + 3 * kBlock]);
      });
  });
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
  // One addition of 16 bytes per cell.
  using Both [[gnu::vector_size(16), gnu::may_alias]] = double;
  static_assert(sizeof(Both) == sizeof(Cell));
  Both* const cells = reinterpret_cast<Both*>(cells_.data());
  for_each_key(values, [&](std::size_t row, auto&& each) __attribute__((always_inline)) {
    const Both more = {1, times[row]};
    each([&](std::size_t at) __attribute__((always_inline)) { cells[at] += more; });
  });
}

void CostSketch::frequency(const Batch& values, std::span<std::int64_t> out) const {
  const Cell* const cells = cells_.data();
  for_each_key(values, [&](std::size_t row, auto&& each) __attribute__((always_inline)) {
    double least = std::numeric_limits<double>::infinity();
    each([&](std::size_t at)
             __attribute__((always_inline)) { least = std::min(least, cells[at].frequency); });
    const auto whole = static_cast<std::int64_t>(least);
    out[row] = whole + (static_cast<double>(whole) < least ? 1 : 0);
  });
}

void CostSketch::time(const Batch& values, std::span<double> out) const {
  const Cell* const cells = cells_.data();
  for_each_key(values, [&](std::size_t row, auto&& each) __attribute__((always_inline)) {
    double least = std::numeric_limits<double>::infinity();
    each([&](std::size_t at)
             __attribute__((always_inline)) { least = std::min(least, cells[at].time); });
    out[row] = least;
  });
}

void CostSketch::mean_time(const Batch& values, std::span<double> out) const {
  const Cell all = total();
  const double overall = all.frequency > 0 ? all.time / all.frequency : 0;
  const Cell* const cells = cells_.data();
  if (has_quads()) {
    values.for_each_block([&](std::size_t begin, std::span<const Key> ids) {
      std::uint32_t at[4 * kBlock];
      quads(ids, at);
      means(at, ids.size(), &cells->frequency, overall, out.data() + begin);
    });
    return;
  }
  for_each_key(values, [&](std::size_t row, auto&& each) {
    Cell least{std::numeric_limits<double>::infinity(), 0};
    each(
        [&](std::size_t at) { least = cells[at].frequency < least.frequency ? cells[at] : least; });
    out[row] = least.frequency > 0 ? least.time / least.frequency : overall;
  });
}

void CostSketch::add(Key key, double frequency, double time) noexcept {
  for_each_cell(key, [&](std::size_t at) {
    cells_[at].frequency += frequency;
    cells_[at].time += time;
  });
}

double CostSketch::overall_mean() const noexcept {
  const Cell all = total();
  return all.frequency > 0 ? all.time / all.frequency : 0;
}

void CostSketch::mean_times(std::span<const Key> ids, double overall, double* out) const noexcept {
  std::uint32_t at[4 * kBlock];
  if (has_quads()) {
    quads(ids, at);
    means(at, ids.size(), &cells_[0].frequency, overall, out);
    return;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Cell least{std::numeric_limits<double>::infinity(), 0};
    for_each_cell(ids[i], [&](std::size_t cell) {
      least = cells_[cell].frequency < least.frequency ? cells_[cell] : least;
    });
    out[i] = least.frequency > 0 ? least.time / least.frequency : overall;
  }
}

void CostSketch::locate(std::span<const Key> ids, std::uint32_t* at) const noexcept {
  if (has_quads()) return quads(ids, at);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::size_t row = 0;
    for_each_cell(ids[i], [&](std::size_t cell) {
      at[row++ * kBlock + i] = static_cast<std::uint32_t>(cell);
    });
  }
}

double CostSketch::relative_change(const CostSketch& before) const noexcept {
  double moved = 0, all = 0;
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    const Cell &now = cells_[i], &then = before.cells_[i];
    if (!(now.frequency > 0 && then.frequency > 0)) continue;
    const double was = then.time / then.frequency;
    moved += now.frequency * std::abs(was - now.time / now.frequency);
    all += now.frequency * was;
  }
  return all > 0 ? moved / all : 0;
}

void CostSketch::merge(const CostSketch& other) {
  if (rows_ != other.rows_ || columns_ != other.columns_ || seed_ != other.seed_)
    throw std::invalid_argument("other: expected rows, columns, seed " + std::to_string(rows_) +
                                ", " + std::to_string(columns_) + ", " + std::to_string(seed_) +
                                ", got " + std::to_string(other.rows_) + ", " +
                                std::to_string(other.columns_) + ", " +
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

void CostSketch::reset() { std::fill(cells_.begin(), cells_.end(), Cell{}); }

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
  Reader::check(
      epsilon <= 3 && delta < 1 && rows * columns * 16 == static_cast<double>(from.left()),
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
