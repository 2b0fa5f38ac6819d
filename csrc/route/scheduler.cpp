#include "route/scheduler.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "branchless.hpp"
#include "simd.hpp"
#if PYROUTE_X86
#include <immintrin.h>
#endif

namespace pyroute {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kLanes = 4;
constexpr std::size_t kMostRows = 64;
constexpr std::size_t kMostTasks = std::size_t{1} << 16;
// Requests of a task that wait for an answer; then the older half is given up.
constexpr std::size_t kMostSegments = 64;
constexpr std::uint64_t kEvery = 8;
constexpr std::uint64_t kNever = std::uint64_t{1} << 62;
constexpr double kPatience = 64;  // mean times
constexpr double kKeep = 0.95;    // of the sums of a speed, per report
constexpr double kOddSpeed = 0.05, kOddNoise = 3;
constexpr double kOddResidual = 0.1, kOddUsual = 1.5;
constexpr std::uint64_t kOddInARow = 3;
constexpr double kShrink = 0.04;  // variance of a quotient of the sums by that of one ratio
constexpr double kMostWeight = 1e12;

// The tasks of a pooled scheduler as the inner loop sees them, one entry each, padded to whole
// vectors.
struct Rows {
  double* finish;
  double* open_sum;
  const double* speed;
  const double* latency;
  const double* base;
  double* scratch;
  double* open_floor;
  std::size_t tasks, padded;
};

// One record: the first task of least max(finish, now + wait) + cost, where wait is the greater of
// latency and base + open_sum, and cost is estimate * speed. That is its finish from now on, and its
// open_sum grows by its cost.
std::size_t take_portable(const Rows& rows, double now, double estimate) noexcept {
  std::size_t best = 0;
  double least = kInfinity;
  for (std::size_t i = 0; i < rows.tasks; ++i) {
    const double wait = std::max(rows.latency[i], rows.base[i] + rows.open_sum[i]);
    const double done = std::max(rows.finish[i], now + wait) + estimate * rows.speed[i];
    best = done < least ? i : best;
    least = done < least ? done : least;
  }
  if (least < kInfinity) rows.finish[best] = least;
  rows.open_sum[best] += estimate * rows.speed[best];
  return best;
}

#if PYROUTE_X86
alignas(32) constexpr std::int64_t kNumbers[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                   8, 9, 10, 11, 12, 13, 14, 15};

[[gnu::always_inline]] PYROUTE_AVX2 inline __m256d least_of(__m256d all) noexcept {
  all = _mm256_min_pd(all, _mm256_permute2f128_pd(all, all, 1));
  return _mm256_min_pd(all, _mm256_permute_pd(all, 5));
}

// All ones in the lane that is number `lane` of a vector that begins with number 4 * vector.
[[gnu::always_inline]] PYROUTE_AVX2 inline __m256d only(std::size_t lane,
                                                        std::size_t vector) noexcept {
  const __m256i numbers =
      _mm256_load_si256(reinterpret_cast<const __m256i*>(kNumbers + kLanes * vector));
  return _mm256_castsi256_pd(
      _mm256_cmpeq_epi64(numbers, _mm256_set1_epi64x(static_cast<long long>(lane))));
}

struct Ends {
  __m256d done, cost;
};

[[gnu::always_inline]] PYROUTE_AVX2 inline Ends ends_of(const Rows& rows, std::size_t i,
                                                        __m256d finish, __m256d sum, __m256d now,
                                                        __m256d estimate) noexcept {
  const __m256d cost = _mm256_mul_pd(estimate, _mm256_loadu_pd(rows.speed + i));
  const __m256d late = _mm256_add_pd(_mm256_loadu_pd(rows.base + i), sum);
  const __m256d wait = _mm256_max_pd(_mm256_loadu_pd(rows.latency + i), late);
  const __m256d begin = _mm256_max_pd(_mm256_add_pd(now, wait), finish);
  return {_mm256_add_pd(begin, cost), cost};
}

// Up to 16 tasks: what changes with every record stays in registers, and nothing waits for the
// number of the chosen task, unless two are equal.
template <std::size_t kVectors>
class Few {
 public:
  PYROUTE_AVX2 explicit Few(const Rows& rows) noexcept : rows_(rows) { read(); }

  [[gnu::always_inline]] PYROUTE_AVX2 inline void read() noexcept {
    for (std::size_t v = 0; v < kVectors; ++v) {
      finish_[v] = _mm256_loadu_pd(rows_.finish + kLanes * v);
      sum_[v] = _mm256_loadu_pd(rows_.open_sum + kLanes * v);
    }
  }
  [[gnu::always_inline]] PYROUTE_AVX2 inline void write() const noexcept {
    for (std::size_t v = 0; v < kVectors; ++v) {
      _mm256_storeu_pd(rows_.finish + kLanes * v, finish_[v]);
      _mm256_storeu_pd(rows_.open_sum + kLanes * v, sum_[v]);
    }
  }
  [[gnu::always_inline]] PYROUTE_AVX2 inline std::size_t take(double now,
                                                              double estimate) noexcept {
    const __m256d at = _mm256_set1_pd(now), times = _mm256_set1_pd(estimate);
    Ends ends[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v)
      ends[v] = ends_of(rows_, kLanes * v, finish_[v], sum_[v], at, times);
    __m256d least = ends[0].done;
    for (std::size_t v = 1; v < kVectors; ++v) least = _mm256_min_pd(least, ends[v].done);
    least = least_of(least);
    if (!(_mm256_cvtsd_f64(least) < kInfinity)) [[unlikely]] {
      write();
      const std::size_t best = take_portable(rows_, now, estimate);
      read();
      return best;
    }
    __m256d chosen[kVectors];
    unsigned mask = 0;
    for (std::size_t v = 0; v < kVectors; ++v) {
      chosen[v] = _mm256_cmp_pd(ends[v].done, least, _CMP_EQ_OQ);
      mask |= static_cast<unsigned>(_mm256_movemask_pd(chosen[v])) << (kLanes * v);
    }
    const auto best = static_cast<std::size_t>(std::countr_zero(mask));
    if ((mask & (mask - 1)) != 0)
      for (std::size_t v = 0; v < kVectors; ++v) chosen[v] = only(best, v);
    for (std::size_t v = 0; v < kVectors; ++v) {
      finish_[v] = _mm256_blendv_pd(finish_[v], least, chosen[v]);
      sum_[v] = _mm256_add_pd(sum_[v], _mm256_and_pd(chosen[v], ends[v].cost));
    }
    return best;
  }

 private:
  const Rows rows_;
  __m256d finish_[kVectors], sum_[kVectors];
};

// Any number of tasks, padded to a multiple of 16.
[[gnu::always_inline]] PYROUTE_AVX2 inline std::size_t take_many(const Rows& rows, double now,
                                                                 double estimate) noexcept {
  const __m256d at = _mm256_set1_pd(now), times = _mm256_set1_pd(estimate);
  const __m256d infinity = _mm256_set1_pd(kInfinity);
  __m256d least[4] = {infinity, infinity, infinity, infinity};
  for (std::size_t i = 0; i < rows.padded; i += 4 * kLanes)
    for (std::size_t v = 0; v < 4; ++v) {
      const std::size_t j = i + kLanes * v;
      const __m256d finish = _mm256_loadu_pd(rows.finish + j);
      const __m256d sum = _mm256_loadu_pd(rows.open_sum + j);
      const __m256d done = ends_of(rows, j, finish, sum, at, times).done;
      _mm256_storeu_pd(rows.scratch + j, done);
      least[v] = _mm256_min_pd(least[v], done);
    }
  const __m256d first =
      least_of(_mm256_min_pd(_mm256_min_pd(least[0], least[1]), _mm256_min_pd(least[2], least[3])));
  if (!(_mm256_cvtsd_f64(first) < kInfinity)) [[unlikely]]
    return take_portable(rows, now, estimate);
  std::uint64_t mask = 0;
  std::size_t best = 0;
  for (std::size_t i = 0; mask == 0; i += 64) {
    best = i;
    for (std::size_t j = i; j < std::min(i + 64, rows.padded); j += kLanes) {
      const __m256d equal = _mm256_cmp_pd(_mm256_loadu_pd(rows.scratch + j), first, _CMP_EQ_OQ);
      mask |= static_cast<std::uint64_t>(_mm256_movemask_pd(equal)) << (j - i);
    }
  }
  best += static_cast<std::size_t>(std::countr_zero(mask));
  // Whole vectors are written: a single number would not be there yet for the next vector load.
  const std::size_t i = best / kLanes * kLanes;
  const __m256d chosen = only(best - i, 0);
  const __m256d cost = _mm256_mul_pd(times, _mm256_loadu_pd(rows.speed + i));
  const __m256d finish = _mm256_loadu_pd(rows.finish + i);
  const __m256d sum = _mm256_loadu_pd(rows.open_sum + i);
  _mm256_storeu_pd(rows.finish + i, _mm256_blendv_pd(finish, first, chosen));
  _mm256_storeu_pd(rows.open_sum + i, _mm256_add_pd(sum, _mm256_and_pd(chosen, cost)));
  return best;
}
#endif

// Each record in turn: asks(record, task) is whether it asks, request(record, task) then follows.
template <class Asks, class Request>
void take_all_portable(const Rows& rows, std::span<const double> estimates,
                       std::span<const double> now, const Asks& asks, const Request& request) {
  const bool one_time = now.size() == 1;
  for (std::size_t i = 0; i < estimates.size(); ++i) {
    const double time = one_time ? now[0] : now[i], estimate = estimates[i];
    const std::size_t at = take_portable(rows, time, estimate);
    const double cost = estimate * rows.speed[at];
    rows.open_floor[at] = std::max(rows.open_floor[at], time + rows.latency[at]) + cost;
    if (asks(i, at)) request(i, at);
  }
}
#if PYROUTE_X86
// The arguments are copies, which no store can change.
template <std::size_t kVectors, class Asks, class Request>
PYROUTE_AVX2 void take_few_records(const Rows rows, std::span<const double> estimates,
                                   std::span<const double> now, const Asks asks,
                                   const Request request) {
  const bool one_time = now.size() == 1;
  Few<kVectors> few(rows);
  for (std::size_t i = 0; i < estimates.size(); ++i) {
    const double time = one_time ? now[0] : now[i], estimate = estimates[i];
    const std::size_t at = few.take(time, estimate);
    const double cost = estimate * rows.speed[at];
    rows.open_floor[at] = std::max(rows.open_floor[at], time + rows.latency[at]) + cost;
    if (!asks(i, at)) continue;
    few.write();
    request(i, at);
    few.read();
  }
  few.write();
}

template <class Asks, class Request>
PYROUTE_AVX2 void take_many_records(const Rows rows, std::span<const double> estimates,
                                    std::span<const double> now, const Asks asks,
                                    const Request request) {
  const bool one_time = now.size() == 1;
  for (std::size_t i = 0; i < estimates.size(); ++i) {
    const double time = one_time ? now[0] : now[i], estimate = estimates[i];
    const std::size_t at = take_many(rows, time, estimate);
    const double cost = estimate * rows.speed[at];
    rows.open_floor[at] = std::max(rows.open_floor[at], time + rows.latency[at]) + cost;
    if (asks(i, at)) request(i, at);
  }
}
#endif

}  // namespace

const char* Scheduler::name(State state) noexcept {
  constexpr const char* names[] = {"ROUND_ROBIN", "SEND_ALL", "WAIT_ALL", "RUN"};
  return names[static_cast<std::size_t>(state)];
}

const char* Scheduler::name(Event event) noexcept {
  constexpr const char* names[] = {"complete", "early", "sketch", "sent", "answered", "due"};
  return names[static_cast<std::size_t>(event)];
}

Scheduler::Scheduler(std::span<const TaskId> tasks, std::span<const double> latencies,
                     const Options& options)
    : options_(options), tasks_(tasks.begin(), tasks.end()), now_(-kInfinity) {
  if (tasks.empty()) throw std::invalid_argument("tasks: expected at least one, got none");
  if (tasks.size() > kMostTasks)
    throw std::invalid_argument("tasks: expected at most 65536, got " +
                                std::to_string(tasks.size()));
  if (!latencies.empty() && latencies.size() != tasks.size())
    throw std::invalid_argument("latencies: expected " + std::to_string(tasks.size()) +
                                " of them, got " + std::to_string(latencies.size()));
  if (!latencies.empty() && options.mode == Mode::posg)
    throw std::invalid_argument("latencies: expected none in mode posg, got some");
  for (const double latency : latencies)
    if (!(latency >= 0 && std::isfinite(latency)))
      throw std::invalid_argument("latencies: expected finite numbers >= 0, got " +
                                  std::to_string(latency));
  if (!(options.memory > 0 && std::isfinite(options.memory)))
    throw std::invalid_argument("memory: expected a finite number above 0, got " +
                                std::to_string(options.memory));
  if (options.mode == Mode::posg && options.prompt)
    throw std::invalid_argument("prompt: expected mode pooled, got posg");
  if (options.mode == Mode::pooled && options.resync == 0)
    throw std::invalid_argument("resync: expected at least 1 in mode pooled, got 0");

  const std::size_t whole = tasks.size() <= 4 * kLanes ? kLanes : 4 * kLanes;
  const std::size_t padded = (tasks.size() + whole - 1) / whole * whole;
  finish_.assign(padded, kInfinity);
  speed_.assign(padded, 1);
  latency_.assign(padded, 0);
  scratch_.assign(padded, 0);
  open_sum_.assign(padded, 0);
  open_floor_.assign(padded, -kInfinity);
  added_.assign(padded, 0);
  std::fill_n(finish_.begin(), tasks.size(), 0.0);
  std::vector<std::size_t> order(tasks.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return tasks[a] < tasks[b]; });
  for (std::size_t i = 0; i < order.size(); ++i) {
    tasks_[i] = tasks[order[i]];
    if (!latencies.empty()) latency_[i] = latencies[order[i]];
  }
  if (tasks_[0] < 0)
    throw std::invalid_argument("tasks: expected ids from 0 up, got " + std::to_string(tasks_[0]));
  if (const auto twice = std::adjacent_find(tasks_.begin(), tasks_.end()); twice != tasks_.end())
    throw std::invalid_argument("tasks: expected distinct ids, got " + std::to_string(*twice) +
                                " twice");
  base_.assign(padded, -kInfinity);
  of_.resize(tasks.size());
  shape_ = CostSketch::shape(options.epsilon, options.delta);
  if (options.mode == Mode::pooled) {
    sketches_.emplace_back(CostSketch(options.epsilon, options.delta, options.seed));
    means_.assign(1, 0);
  } else {
    if (shape_.rows > kMostRows)
      throw std::invalid_argument("delta: expected at most 64 rows, got " +
                                  std::to_string(shape_.rows));
    sketches_.resize(tasks.size());
    means_.assign(tasks.size(), 0);
  }
}

Scheduler Scheduler::from_sketch(std::span<const TaskId> tasks, const CostSketch& sketch) {
  if (!(sketch.total_frequency() > 0))
    throw std::invalid_argument("sketch: expected one that observed records, got an empty one");
  Options options;
  options.mode = Mode::pooled;
  options.epsilon = sketch.epsilon();
  options.delta = sketch.delta();
  options.seed = sketch.seed();
  options.prompt = true;
  Scheduler out(tasks, {}, options);
  out.sketches_[0] = sketch;
  out.means_[0] = sketch.overall_mean();
  out.step(Event::early);
  return out;
}

Scheduler Scheduler::offline(std::uint64_t rotation) const {
  if (state_ == State::round_robin)
    throw std::invalid_argument(
        "scheduler: expected one that has received reports, got one in ROUND_ROBIN");
  const std::size_t size = tasks_.size();
  Scheduler out(tasks_, options_.mode == Mode::posg ? std::span<const double>() : latencies(),
                {options_.mode, options_.epsilon, options_.delta, options_.seed, options_.source,
                 options_.mode == Mode::posg ? 0 : kNever, options_.memory, false});
  out.sketches_ = sketches_;
  out.means_ = means_;
  out.speed_ = speed_;
  out.cells_ = cells_;
  out.weight_ = weight_;
  out.noise_ = noise_;
  out.usual_ = usual_;
  out.window_ = window_;
  out.state_ = State::run;
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t at = (i + rotation % size) % size;
    const double mean = means_[options_.mode == Mode::posg ? at : 0];
    out.finish_[at] = mean * static_cast<double>(i) / (1000 * static_cast<double>(size));
    out.of_[at].since = 1;  // the next request is kNever records away
  }
  return out;
}

void Scheduler::step(Event event) {
  for (const Transition& transition : kTransitions)
    if (transition.from == state_ && transition.event == event) {
      state_ = transition.to;
      return;
    }
}

void Scheduler::begin_epoch(Event event) {
  step(event);
  ++epoch_;
  sent_ = replies_ = scheduled_ = 0;
  for (Task& task : of_) task.answered = false;
}

std::size_t Scheduler::find(TaskId task) const {
  const auto at = std::lower_bound(tasks_.begin(), tasks_.end(), task);
  if (at == tasks_.end() || *at != task)
    throw std::invalid_argument("task: expected one of this scheduler, got " +
                                std::to_string(task));
  return static_cast<std::size_t>(at - tasks_.begin());
}

void Scheduler::clock(std::span<const double> now, std::size_t size) {
  if (now.size() != 1 && now.size() != size)
    throw std::invalid_argument("now: expected one time or " + std::to_string(size) + ", got " +
                                std::to_string(now.size()));
  double last = now_;
  for (const double time : now) {
    check_now(time, last);
    last = time;
  }
  if (size == 0) return;
  if (turn_ == 0 && state_ == State::round_robin) first_ = now[0];
  now_ = last;
}

bool Scheduler::fits(const CostSketch& sketch) const noexcept {
  return CostSketch::Shape{sketch.rows(), sketch.columns()} == shape_ &&
         sketch.seed() == options_.seed;
}

std::size_t Scheduler::in_turn() { return static_cast<std::size_t>(turn_++ % tasks_.size()); }

void Scheduler::schedule(const Batch& values, std::span<const double> now, std::span<TaskId> out) {
  clock(now, values.size());
  requests_.clear();
  std::vector<std::uint32_t> at;
  double estimates[kBlock];
  values.for_each_block([&](std::size_t begin, std::span<const Key> ids) {
    TaskId* const to = out.data() + begin;
    if (state_ == State::round_robin) return blindly(ids.size(), begin, to);
    if (options_.mode == Mode::pooled) {
      sketches_[0]->mean_times(ids, means_[0], estimates);
      const std::span<const double> all(estimates, ids.size());
      return run_pooled(all, now.size() == 1 ? now : now.subspan(begin, ids.size()), begin, to);
    }
    at.resize(shape_.rows * kBlock);
    sketches_[0]->locate(ids, at.data());
    for (std::size_t i = 0; i < ids.size();) {
      if (state_ == State::send_all) {
        to[i] = tasks_[ask(at.data() + i, begin + i)];
        ++i;
      } else {
        i += run_posg(at.data() + i, ids.size() - i, to + i);
      }
    }
  });
}

TaskId Scheduler::schedule_one(Key key, double now) {
  clock({&now, 1}, 1);
  requests_.clear();
  TaskId out;
  const std::span<const Key> ids(&key, 1);
  if (state_ == State::round_robin) {
    blindly(1, 0, &out);
  } else if (options_.mode == Mode::pooled) {
    double estimate;
    sketches_[0]->mean_times(ids, means_[0], &estimate);
    run_pooled({&estimate, 1}, {&now, 1}, 0, &out);
  } else {
    std::uint32_t at[kMostRows * kBlock];
    sketches_[0]->locate(ids, at);
    if (state_ == State::send_all || run_posg(at, 1, &out) == 0) out = tasks_[ask(at, 0)];
  }
  return out;
}

// ROUND_ROBIN.
void Scheduler::blindly(std::size_t count, std::size_t position, TaskId* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = in_turn();
    out[i] = tasks_[at];
    if (options_.mode == Mode::posg) continue;
    Task& task = of_[at];
    ++task.blind;
    if (!task.segments.empty()) ++task.segments.back().blind;
    if (task.since == 0) request(at, position + i);
    if (++task.since == options_.resync.value_or(kEvery)) task.since = 0;
  }
}

namespace {

// W / F in the row of least F, the first of equals. `at` strides by kBlock. Without branches: as
// many keys have their least F in one row as in another. Numbers from 0 up are in the order of
// their bits.
template <class Cell>
[[gnu::always_inline]] inline double mean_of(const Cell* cells, const std::uint32_t* at,
                                             std::size_t rows) noexcept {
  struct Bits {
    std::int64_t frequency;
    std::uint64_t mean;
  };
  const auto cell = [&](std::size_t row) __attribute__((always_inline)) {
    return std::bit_cast<Bits>(cells[at[row * kBlock]]);
  };
  const auto lesser = [](Bits a, Bits b) __attribute__((always_inline)) {
    replace_unless_less(b.frequency, b.mean, a.frequency, a.frequency, a.mean);
    return b;
  };
  if (rows == 4)  // the default, in two steps instead of three
    return std::bit_cast<double>(lesser(lesser(cell(0), cell(1)), lesser(cell(2), cell(3))).mean);
  Bits least = cell(0);
  for (std::size_t row = 1; row < rows; ++row) least = lesser(least, cell(row));
  return std::bit_cast<double>(least.mean);
}

// An integer that is less where the number is; those that are equal have one.
[[gnu::always_inline]] inline std::int64_t in_order(double number) noexcept {
  const auto bits = std::bit_cast<std::int64_t>(number + 0.0);
  return bits ^ static_cast<std::int64_t>(static_cast<std::uint64_t>(bits >> 63) >> 1);
}

}  // namespace

std::size_t Scheduler::ask(const std::uint32_t* at, std::size_t position) {
  const auto task = static_cast<std::size_t>(sent_++);
  requests_.push_back({options_.source, tasks_[task], epoch_, epoch_, position, false});
  finish_[task] += mean_of(cells_.data() + task * shape_.rows * shape_.columns, at, shape_.rows);
  added_[task] = 0;
  if (sent_ == tasks_.size()) step(Event::sent);
  return task;
}

std::size_t Scheduler::run_posg(const std::uint32_t* at, std::size_t count, TaskId* out) {
  const std::uint64_t resync = options_.resync.value_or(tasks_.size() * window_);
  if (resync > 0) {
    if (scheduled_ >= resync) {
      begin_epoch(Event::due);
      return 0;
    }
    count = static_cast<std::size_t>(std::min<std::uint64_t>(count, resync - scheduled_));
  }
  // A tournament: a leaf for each task, and above every two nodes the one of less finish time, the
  // left one where they are equal. After a record the matches on the way up from its task are
  // played again. The others' results are there already, so that only comparisons of integers wait
  // for each other.
  const std::size_t size = tasks_.size(), stride = shape_.rows * shape_.columns;
  const std::size_t leaves = std::bit_ceil(size);
  tree_.assign(2 * leaves, {std::numeric_limits<std::int64_t>::max() - 1, 0});
  for (std::size_t i = 0; i < size; ++i) tree_[leaves + i] = {in_order(finish_[i]), i};
  for (std::size_t i = leaves; --i > 0;)
    tree_[i] = tree_[2 * i + 1].finish < tree_[2 * i].finish ? tree_[2 * i + 1] : tree_[2 * i];
  Node* const nodes = tree_.data();
  std::uint64_t task = nodes[1].task;
  for (std::size_t i = 0; i < count; ++i) {
    const double estimate = mean_of(cells_.data() + task * stride, at + i, shape_.rows);
    const double finish = finish_[task] + estimate;
    finish_[task] = finish;
    added_[task] += estimate;
    out[i] = tasks_[task];
    std::size_t node = leaves + task;
    std::int64_t best = in_order(finish);
    nodes[node].finish = best;
    while (node > 1) {
      const Node other = nodes[node ^ 1];
      const std::int64_t limit = other.finish + static_cast<std::int64_t>(~node & 1);
      replace_unless_less(best, task, limit, other.finish, other.task);
      node >>= 1;
      nodes[node] = {best, task};
    }
  }
  scheduled_ += count;
  return count;
}

void Scheduler::run_pooled(std::span<const double> estimates, std::span<const double> now,
                           std::size_t position, TaskId* out) {
  const Rows rows{finish_.data(),  open_sum_.data(),   speed_.data(), latency_.data(), base_.data(),
                  scratch_.data(), open_floor_.data(), tasks_.size(), finish_.size()};
  const std::uint64_t every = options_.resync.value_or(kEvery);
  const auto asks = [out, every, ids = tasks_.data(), of = of_.data()](std::size_t i,
                                                                       std::size_t at) {
    out[i] = ids[at];
    std::uint64_t& since = of[at].since;
    const bool due = since == 0;
    since = since + 1 == every ? 0 : since + 1;
    return due;
  };
  const auto ask = [this, position](std::size_t i, std::size_t at) { request(at, position + i); };
#if PYROUTE_X86
  if (simd() != Simd::portable) {
    const std::size_t vectors = rows.padded / kLanes;
    if (vectors == 1) return take_few_records<1>(rows, estimates, now, asks, ask);
    if (vectors == 2) return take_few_records<2>(rows, estimates, now, asks, ask);
    if (vectors == 3) return take_few_records<3>(rows, estimates, now, asks, ask);
    if (vectors == 4) return take_few_records<4>(rows, estimates, now, asks, ask);
    return take_many_records(rows, estimates, now, asks, ask);
  }
#endif
  take_all_portable(rows, estimates, now, asks, ask);
}

void Scheduler::close_open(std::size_t at) {
  auto& segments = of_[at].segments;
  if (segments.empty()) return;
  segments.back().sum = open_sum_[at];
  segments.back().floor = open_floor_[at];
}

// The last segment is the one that grows.
void Scheduler::open(std::size_t at) {
  auto& task = of_[at];
  task.closed = 0;
  for (std::size_t i = 0; i + 1 < task.segments.size(); ++i) task.closed += task.segments[i].sum;
  open_sum_[at] = task.segments.empty() ? 0 : task.segments.back().sum;
  open_floor_[at] = task.segments.empty() ? -kInfinity : task.segments.back().floor;
  wait_for(at);
}

// With prompt answers the oldest request without one bounds the finish time from below.
void Scheduler::wait_for(std::size_t at) {
  const bool waits = options_.prompt && !of_[at].segments.empty();
  base_[at] = waits ? of_[at].closed - of_[at].lag : -kInfinity;
}

void Scheduler::request(std::size_t at, std::size_t position) {
  Task& task = of_[at];
  requests_.push_back({options_.source, tasks_[at], 0, ++task.requests, position, options_.prompt});
  close_open(at);
  if (task.segments.size() == kMostSegments) {
    task.segments.erase(task.segments.begin(), task.segments.begin() + kMostSegments / 2);
    open(at);
  }
  if (!task.segments.empty()) task.closed += task.segments.back().sum;
  task.segments.push_back({task.requests, 0, -kInfinity, 0, finish_[at]});
  open_sum_[at] = 0;
  open_floor_[at] = -kInfinity;
  wait_for(at);
}

bool Scheduler::receive(const Report& report, double now) {
  check_now(now, now_);
  const std::size_t at = find(report.task);
  if (report.mode != options_.mode)
    throw std::invalid_argument(std::string("report: expected one of mode ") +
                                name_of(options_.mode) + ", got " + name_of(report.mode));
  if (report.sketch && !fits(*report.sketch))
    throw std::invalid_argument(
        "report: expected a sketch of rows, columns, seed " + std::to_string(shape_.rows) + ", " +
        std::to_string(shape_.columns) + ", " + std::to_string(options_.seed) + ", got " +
        std::to_string(report.sketch->rows()) + ", " + std::to_string(report.sketch->columns()) +
        ", " + std::to_string(report.sketch->seed()));
  now_ = now;
  // A tracker that was started again counts from 1.
  if (report.number <= of_[at].reports && report.number != 1) return false;
  of_[at].reports = report.number;
  window_ = report.window;
  if (options_.mode == Mode::posg)
    receive_posg(at, report);
  else
    receive_pooled(at, report);
  return true;
}

void Scheduler::receive_posg(std::size_t at, const Report& report) {
  for (const Answer& answer : report.answers) {
    if (answer.source != options_.source || answer.epoch != epoch_ || at >= sent_) continue;
    if (of_[at].answered || (state_ != State::send_all && state_ != State::wait_all)) continue;
    of_[at].answered = true;
    of_[at].answer = answer.finish;
    ++replies_;
  }
  if (state_ == State::wait_all && replies_ == tasks_.size()) {
    for (std::size_t i = 0; i < tasks_.size(); ++i) finish_[i] = of_[i].answer + added_[i];
    step(Event::answered);
  }
  if (!report.sketch) return;
  sketches_[at] = report.sketch;
  means_[at] = report.sketch->overall_mean();
  tabulate(at);
  if (state_ != State::round_robin)
    begin_epoch(Event::sketch);
  else if (std::all_of(sketches_.begin(), sketches_.end(), [](auto& s) { return s.has_value(); }))
    begin_epoch(Event::complete);
}

// F and W / F of a task's sketch; the overall mean where F is 0.
void Scheduler::tabulate(std::size_t at) {
  const std::size_t stride = shape_.rows * shape_.columns;
  cells_.resize(stride * tasks_.size());
  Cell* to = cells_.data() + at * stride;
  sketches_[at]->for_each([&](double frequency, double time) {
    *to++ = {frequency, frequency > 0 ? time / frequency : means_[at]};
  });
}

void Scheduler::receive_pooled(std::size_t at, const Report& report) {
  of_[at].lag = std::max(0.0, now_ - report.now);
  if (!report.items.empty()) learn(at, report);
  if (state_ == State::round_robin && !report.items.empty()) start(means_[0]);
  for (const Answer& answer : report.answers)
    if (answer.source == options_.source) apply(at, answer);
  wait_for(at);  // the lag is another one
  if (options_.prompt && state_ == State::run) give_up_overdue();
}

void Scheduler::give_up_overdue() {
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    auto& segments = of_[i].segments;
    const double since = now_ - kPatience * means_[0] * speed_[i];
    if (segments.empty() || segments.front().expected >= since) continue;
    close_open(i);
    segments.erase(segments.begin());
    open(i);
    of_[i].since = 0;  // the next record asks again
  }
}

// What was sent blindly counts as records of mean time.
void Scheduler::start(double mean) {
  const double begin = turn_ > 0 ? first_ : now_;
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    Task& task = of_[i];
    finish_[i] = (task.answered ? task.answer : begin + latency_[i]) +
                 static_cast<double>(task.blind) * mean;
    close_open(i);
    for (Segment& segment : task.segments) {
      segment.sum += static_cast<double>(segment.blind) * mean;
      segment.blind = 0;
      segment.expected = now_;
    }
    task.blind = 0;
    open(i);
  }
  step(Event::early);
}

void Scheduler::apply(std::size_t at, const Answer& answer) {
  auto& segments = of_[at].segments;
  const auto from = std::find_if(segments.begin(), segments.end(), [&](const Segment& segment) {
    return segment.number == answer.number;
  });
  if (from == segments.end()) return;
  if (state_ == State::round_robin) {
    of_[at].answered = true;
    of_[at].answer = answer.finish;
    of_[at].blind = 0;
    for (auto segment = from; segment != segments.end(); ++segment) of_[at].blind += segment->blind;
    segments.erase(segments.begin(), from + 1);
    return;
  }
  close_open(at);
  double finish = answer.finish;
  for (auto segment = from; segment != segments.end(); ++segment)
    finish = std::max(finish + segment->sum, segment->floor);
  finish_[at] = finish;
  segments.erase(segments.begin(), from + 1);
  open(at);
}

void Scheduler::learn(std::size_t at, const Report& report) {
  CostSketch& sketch = *sketches_[0];
  constexpr double unknown = -1;
  double executed = 0, expected = 0, frequency = 0;
  std::vector<double> estimates(report.items.size());
  for (std::size_t i = 0; i < report.items.size(); ++i) {
    const Item& item = report.items[i];
    const double times = static_cast<double>(item.frequency);
    frequency += times;
    sketch.mean_times({&item.key, 1}, unknown, &estimates[i]);
    if (estimates[i] == unknown) continue;
    estimates[i] *= times;
    executed += item.time;
    expected += estimates[i];
  }
  if (executed > 0 && expected > 0 && std::isfinite(expected)) {
    double off = 0;
    const double ratio = executed / expected;
    for (std::size_t i = 0; i < estimates.size(); ++i)
      if (estimates[i] != unknown) off += std::abs(report.items[i].time - ratio * estimates[i]);
    if (surprises(off / executed)) {
      sketch.reset();
      weight_ = 1;
      ++resets_;
    } else {
      learn_speed(at, executed, expected);
    }
  }
  weight_ *= 1 + frequency / options_.memory;
  if (weight_ > kMostWeight) {
    sketch.decay(1 / weight_);
    weight_ = 1;
  }
  for (const Item& item : report.items)
    if (const double time = weight_ * item.time / speed_[at]; std::isfinite(time))
      sketch.add(item.key, weight_ * static_cast<double>(item.frequency), time);
  means_[0] = sketch.overall_mean();
}

// Whether the costs of items have changed: too many large residuals in a row.
bool Scheduler::surprises(double residual) {
  if (usual_ >= 0 && residual > kOddResidual + kOddUsual * usual_) {
    if (++odd_ < kOddInARow) return false;
    usual_ = -1;
    odd_ = 0;
    return true;
  }
  odd_ = 0;
  usual_ = usual_ < 0 ? residual : kKeep * usual_ + (1 - kKeep) * residual;
  return false;
}

void Scheduler::learn_speed(std::size_t at, double executed, double expected) {
  Task& task = of_[at];
  const double speed = task.expected > 0 ? task.executed / task.expected : speed_[at];
  const double deviation = executed / expected / speed - 1;
  const double large = kOddSpeed + kOddNoise * noise_;
  const int odd = deviation > large ? 1 : deviation < -large ? -1 : 0;
  if (odd != 0 && odd == task.odd) {
    task.executed = task.odd_executed;
    task.expected = task.odd_expected;
  }
  task.executed = kKeep * task.executed + executed;
  task.expected = kKeep * task.expected + expected;
  task.odd = odd;
  task.odd_executed = executed;
  task.odd_expected = expected;
  noise_ = kKeep * noise_ + (1 - kKeep) * std::min(std::abs(deviation), large);
  update_speeds();
}

void Scheduler::update_speeds() {
  double centre = 0;
  std::size_t known = 0;
  for (const Task& task : of_)
    if (task.expected > 0) {
      centre += task.executed / task.expected;
      ++known;
    }
  centre /= static_cast<double>(known);
  for (std::size_t i = 0; i < of_.size(); ++i) {
    speed_[i] = centre;
    if (!(of_[i].expected > 0)) continue;
    const double off = of_[i].executed / of_[i].expected / centre - 1;
    const double noise = kShrink * noise_ * noise_;
    if (off != 0) speed_[i] = centre * (1 + off * (off * off / (off * off + noise)));
  }
}

void Scheduler::estimates(const Batch& values, TaskId task, std::span<double> out) const {
  const std::size_t at = find(task);
  const std::size_t which = options_.mode == Mode::pooled ? 0 : at;
  if (!sketches_[which]) {
    std::fill(out.begin(), out.end(), 0.0);
    return;
  }
  values.for_each_block([&](std::size_t begin, std::span<const Key> ids) {
    sketches_[which]->mean_times(ids, means_[which], out.data() + begin);
  });
  if (options_.mode == Mode::pooled)
    for (double& estimate : out) estimate *= speed_[at];
}

bool Scheduler::operator==(const Scheduler& other) const { return to_bytes() == other.to_bytes(); }

//   mode u8, epsilon, delta f64, seed u64, source varint, resync varint (0: default, else n + 1),
//   memory f64, prompt u8, tasks count then each (id varint, latency f64), state u8, epoch, turn, sent,
//   replies, scheduled, window varints, whether there was a time yet u8, now f64, first f64,
//   weight, noise f64, usual f64, odd, resets varints, then for each task finish, speed f64,
//   reports, requests, since, blind varints, answered u8, answer, added, lag, executed, expected f64,
//   odd u8 (sign + 1), odd executed, odd expected f64, segments count then each (number varint,
//   sum f64, whether it has a floor u8, floor f64, blind varint, expected f64); then the sketches, sized
std::string Scheduler::to_bytes() const {
  Writer to(Kernel::scheduler, 1);
  to.u8(static_cast<std::uint8_t>(options_.mode));
  to.f64(options_.epsilon);
  to.f64(options_.delta);
  to.u64(options_.seed);
  to.varint(options_.source);
  to.varint(options_.resync ? *options_.resync + 1 : 0);
  to.f64(options_.memory);
  to.u8(options_.prompt);
  to.varint(tasks_.size());
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    to.varint(static_cast<std::uint64_t>(tasks_[i]));
    to.f64(latency_[i]);
  }
  to.u8(static_cast<std::uint8_t>(state_));
  for (const std::uint64_t n : {epoch_, turn_, sent_, replies_, scheduled_, window_}) to.varint(n);
  to.u8(std::isfinite(now_));
  to.f64(std::isfinite(now_) ? now_ : 0);
  for (const double v : {first_, weight_, noise_, usual_}) to.f64(v);
  to.varint(odd_);
  to.varint(resets_);
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    const Task& task = of_[i];
    to.f64(finish_[i]);
    to.f64(speed_[i]);
    for (const std::uint64_t n : {task.reports, task.requests, task.since, task.blind})
      to.varint(n);
    to.u8(task.answered);
    for (const double v : {task.answer, added_[i], task.lag, task.executed, task.expected})
      to.f64(v);
    to.u8(static_cast<std::uint8_t>(task.odd + 1));
    to.f64(task.odd_executed);
    to.f64(task.odd_expected);
    to.varint(task.segments.size());
    for (const Segment& segment : task.segments) {
      const bool grows = &segment == &task.segments.back();
      const double floor = grows ? open_floor_[i] : segment.floor;
      to.varint(segment.number);
      to.f64(grows ? open_sum_[i] : segment.sum);
      to.u8(std::isfinite(floor));
      to.f64(std::isfinite(floor) ? floor : 0);
      to.varint(segment.blind);
      to.f64(segment.expected);
    }
  }
  for (const auto& sketch : sketches_) write_sketch(to, sketch);
  return std::move(to).finish();
}

Scheduler Scheduler::from_bytes(std::string_view data) {
  Reader from(data, Kernel::scheduler, 1);
  Options options;
  options.mode = read_mode(from);
  options.epsilon = from.amount("epsilon");
  options.delta = from.amount("delta");
  options.seed = from.u64();
  options.source = from.varint("source");
  if (const std::uint64_t resync = from.varint("resync"); resync > 0) options.resync = resync - 1;
  options.memory = from.amount("memory");
  const std::uint8_t prompt = from.u8();
  Reader::check(prompt <= 1, "prompt", "0 or 1");
  options.prompt = prompt == 1;
  const std::size_t size = from.count("tasks", 9);
  std::vector<TaskId> tasks;
  std::vector<double> latencies;
  bool any = false;
  for (std::size_t i = 0; i < size; ++i) {
    tasks.push_back(read_task(from));
    latencies.push_back(from.amount("latency"));
    any = any || latencies.back() > 0;
    Reader::check(i == 0 || tasks[i - 1] < tasks[i], "tasks", "ascending ids");
  }
  if (!any) latencies.clear();
  // A sketch is as large as the bytes that follow, so nothing is allocated that is not there.
  Reader::check(options.mode == Mode::posg || std::ceil(std::log2(1 / options.delta)) *
                                                      std::ceil(std::exp(1.0) / options.epsilon) *
                                                      16 <=
                                                  static_cast<double>(from.left()),
                "epsilon", "as many cells as follow");
  std::optional<Scheduler> made;
  try {
    made.emplace(tasks, latencies, options);
  } catch (const std::invalid_argument& error) {
    throw FormatError(error.what());
  }
  Scheduler& out = *made;
  const std::uint8_t state = from.u8();
  Reader::check(state <= 3, "state", "0 to 3");
  out.state_ = static_cast<State>(state);
  for (std::uint64_t* n :
       {&out.epoch_, &out.turn_, &out.sent_, &out.replies_, &out.scheduled_, &out.window_})
    *n = from.varint("count");
  Reader::check(out.sent_ <= size && out.replies_ <= out.sent_, "sent", "no more than tasks");
  Reader::check(out.state_ != State::send_all || out.sent_ < size, "sent", "fewer than tasks");
  Reader::check(out.window_ <= std::uint64_t{1} << 24, "window", "at most 2^24");
  const std::uint8_t started = from.u8();
  const double now = read_number(from, "now");
  Reader::check(started <= 1 && (started == 1 || now == 0), "now", "a time, or none");
  if (started == 1) out.now_ = now;
  out.first_ = read_number(from, "first");
  out.weight_ = from.amount("weight");
  out.noise_ = from.amount("noise");
  out.usual_ = read_number(from, "usual");
  Reader::check(out.weight_ >= 1 && out.weight_ <= kMostWeight, "weight", "1 to 1e12");
  Reader::check(out.usual_ >= 0 || out.usual_ == -1, "usual", "at least 0, or -1");
  out.odd_ = from.varint("odd", kOddInARow);
  out.resets_ = from.varint("resets");
  for (std::size_t i = 0; i < size; ++i) {
    Task& task = out.of_[i];
    out.finish_[i] = read_number(from, "finish");
    out.speed_[i] = from.amount("speed");
    Reader::check(out.speed_[i] > 0, "speed", "above 0");
    for (std::uint64_t* n : {&task.reports, &task.requests, &task.since, &task.blind})
      *n = from.varint("count");
    const std::uint8_t answered = from.u8();
    Reader::check(answered <= 1, "answered", "0 or 1");
    task.answered = answered == 1;
    task.answer = read_number(from, "answer");
    out.added_[i] = from.amount("added");
    task.lag = from.amount("lag");
    task.executed = from.amount("executed");
    task.expected = from.amount("expected");
    const std::uint8_t odd = from.u8();
    Reader::check(odd <= 2, "odd", "0 to 2");
    task.odd = odd - 1;
    task.odd_executed = from.amount("odd executed");
    task.odd_expected = from.amount("odd expected");
    const std::size_t segments = from.count("segments", 27);
    Reader::check(segments <= kMostSegments, "segments", "at most 64");
    for (std::size_t j = 0; j < segments; ++j) {
      Segment segment;
      segment.number = from.varint("number");
      segment.sum = from.amount("sum");
      const std::uint8_t floored = from.u8();
      const double floor = read_number(from, "floor");
      Reader::check(floored <= 1 && (floored == 1 || floor == 0), "floor", "a time, or none");
      segment.floor = floored == 1 ? floor : -kInfinity;
      segment.blind = from.varint("blind");
      segment.expected = read_number(from, "expected");
      task.segments.push_back(segment);
    }
    out.open(i);
  }
  bool all = true;
  for (std::size_t i = 0; i < out.sketches_.size(); ++i) {
    std::optional<CostSketch> sketch = read_sketch(from);
    if (!sketch) {
      Reader::check(options.mode == Mode::posg, "sketch", "one");
      all = false;
      continue;
    }
    Reader::check(out.fits(*sketch), "sketch", "one shape");
    out.sketches_[i] = std::move(sketch);
    out.means_[i] = out.sketches_[i]->overall_mean();
    if (options.mode == Mode::posg) out.tabulate(i);
  }
  Reader::check(all || out.state_ == State::round_robin, "sketch", "one of every task");
  from.end();
  return std::move(out);
}

}  // namespace pyroute
