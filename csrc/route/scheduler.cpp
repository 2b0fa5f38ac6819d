#include "route/scheduler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "simd.hpp"

namespace pyroute {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kLanes = 4;
constexpr std::size_t kMostRows = 64;
constexpr std::size_t kMostTasks = std::size_t{1} << 16;
constexpr std::size_t kMostSegments = 64;  // requests of a task that wait for an answer
constexpr std::uint64_t kEvery = 8;
constexpr double kKeep = 0.95;  // of the sums of a speed, per report
constexpr double kOddSpeed = 0.05, kOddNoise = 3;
constexpr double kOddResidual = 0.1, kOddUsual = 1.5;
constexpr std::uint64_t kOddInARow = 3;
constexpr double kShrink = 0.04;  // variance of a quotient of the sums by that of one ratio
constexpr double kMostWeight = 1e12;

using Lanes [[gnu::vector_size(32), gnu::may_alias, gnu::aligned(8)]] = double;

// The first index of the least value; padded to whole lanes with infinities.
[[gnu::always_inline]] inline std::size_t first_least(const double* v, std::size_t padded) {
  Lanes least = *reinterpret_cast<const Lanes*>(v);
  for (std::size_t i = kLanes; i < padded; i += kLanes) {
    const Lanes next = *reinterpret_cast<const Lanes*>(v + i);
    least = next < least ? next : least;
  }
  double best = least[0];
  for (std::size_t lane = 1; lane < kLanes; ++lane) best = least[lane] < best ? least[lane] : best;
  std::size_t at = 0;
  while (at < padded && v[at] != best) ++at;
  return at;
}

// scratch[i] = max(finish[i], now + latency[i]) + estimate * speed[i], then as above.
[[gnu::always_inline]] inline std::size_t first_done(const double* finish, const double* latency,
                                                     const double* speed, double now,
                                                     double estimate, std::size_t padded,
                                                     double* scratch) {
  for (std::size_t i = 0; i < padded; i += kLanes) {
    const Lanes done = *reinterpret_cast<const Lanes*>(finish + i);
    const Lanes there = *reinterpret_cast<const Lanes*>(latency + i) + now;
    const Lanes begin = done < there ? there : done;
    *reinterpret_cast<Lanes*>(scratch + i) =
        begin + estimate * *reinterpret_cast<const Lanes*>(speed + i);
  }
  return first_least(scratch, padded);
}

using Least = std::size_t (*)(const double*, std::size_t);
using Done = std::size_t (*)(const double*, const double*, const double*, double, double,
                             std::size_t, double*);

std::size_t least_portable(const double* v, std::size_t padded) { return first_least(v, padded); }
std::size_t done_portable(const double* finish, const double* latency, const double* speed,
                          double now, double estimate, std::size_t padded, double* scratch) {
  return first_done(finish, latency, speed, now, estimate, padded, scratch);
}
#if PYROUTE_X86
PYROUTE_AVX2 std::size_t least_avx2(const double* v, std::size_t padded) {
  return first_least(v, padded);
}
PYROUTE_AVX2 std::size_t done_avx2(const double* finish, const double* latency, const double* speed,
                                   double now, double estimate, std::size_t padded,
                                   double* scratch) {
  return first_done(finish, latency, speed, now, estimate, padded, scratch);
}
#endif

Least least() noexcept {
#if PYROUTE_X86
  if (simd() != Simd::portable) return least_avx2;
#endif
  return least_portable;
}

Done done() noexcept {
#if PYROUTE_X86
  if (simd() != Simd::portable) return done_avx2;
#endif
  return done_portable;
}

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
  if (options.mode == Mode::pooled && options.resync == 0)
    throw std::invalid_argument("resync: expected at least 1 in mode pooled, got 0");

  const std::size_t padded = (tasks.size() + kLanes - 1) / kLanes * kLanes;
  finish_.assign(padded, kInfinity);
  speed_.assign(padded, 1);
  latency_.assign(padded, 0);
  scratch_.assign(padded, 0);
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
  if (!std::isfinite(now_)) first_ = now[0];
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
  const bool one_time = now.size() == 1;
  std::vector<std::uint32_t> at;
  double estimates[kBlock];
  values.for_each_block([&](std::size_t begin, std::span<const Key> ids) {
    if (state_ == State::round_robin && options_.mode == Mode::posg) {
      for (std::size_t i = 0; i < ids.size(); ++i) out[begin + i] = tasks_[in_turn()];
      return;
    }
    if (options_.mode == Mode::pooled) {
      sketches_[0]->mean_times(ids, means_[0], estimates);
      for (std::size_t i = 0; i < ids.size(); ++i)
        out[begin + i] =
            tasks_[choose_pooled(estimates[i], one_time ? now[0] : now[begin + i], begin + i)];
      return;
    }
    at.resize(sketches_[0]->rows() * kBlock);
    sketches_[0]->locate(ids, at.data());
    for (std::size_t i = 0; i < ids.size(); ++i)
      out[begin + i] = tasks_[choose_posg(at.data() + i, begin + i)];
  });
}

TaskId Scheduler::schedule_one(Key key, double now) {
  clock({&now, 1}, 1);
  requests_.clear();
  const std::span<const Key> ids(&key, 1);
  if (options_.mode == Mode::pooled) {
    double estimate = 0;
    if (state_ != State::round_robin) sketches_[0]->mean_times(ids, means_[0], &estimate);
    return tasks_[choose_pooled(estimate, now, 0)];
  }
  if (state_ == State::round_robin) return tasks_[in_turn()];
  std::uint32_t at[kMostRows * kBlock];
  sketches_[0]->locate(ids, at);
  return tasks_[choose_posg(at, 0)];
}

std::size_t Scheduler::choose_posg(const std::uint32_t* at, std::size_t position) {
  const std::uint64_t resync = options_.resync.value_or(tasks_.size() * window_);
  if (state_ != State::send_all && resync > 0 && scheduled_ >= resync) begin_epoch(Event::due);
  std::size_t task;
  const bool asks = state_ == State::send_all;
  if (asks) {
    task = static_cast<std::size_t>(sent_++);
    requests_.push_back({options_.source, tasks_[task], epoch_, epoch_, position});
  } else {
    task = among(least()(finish_.data(), finish_.size()));
    ++scheduled_;
  }
  const double estimate = sketches_[task]->mean_at(at, means_[task]);
  finish_[task] += estimate;
  of_[task].added = asks ? 0 : of_[task].added + estimate;
  if (asks && sent_ == tasks_.size()) step(Event::sent);
  return task;
}

std::size_t Scheduler::choose_pooled(double estimate, double now, std::size_t position) {
  std::size_t at;
  const bool blind = state_ == State::round_robin;
  if (blind) {
    at = in_turn();
    ++of_[at].blind;
    if (!of_[at].segments.empty()) ++of_[at].segments.back().blind;
  } else {
    at = among(done()(finish_.data(), latency_.data(), speed_.data(), now, estimate, finish_.size(),
                      scratch_.data()));
    finish_[at] = scratch_[at];
    if (auto& segments = of_[at].segments; !segments.empty()) {
      Segment& last = segments.back();
      const double cost = estimate * speed_[at];
      last.sum += cost;
      last.floor = std::max(last.floor, now + latency_[at]) + cost;
    }
  }
  Task& task = of_[at];
  if (task.since == 0) {
    requests_.push_back({options_.source, tasks_[at], 0, ++task.requests, position});
    if (task.segments.size() == kMostSegments) task.segments.erase(task.segments.begin());
    task.segments.push_back({task.requests, 0, -kInfinity, 0});
  }
  if (++task.since == options_.resync.value_or(kEvery)) task.since = 0;
  return at;
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
    for (std::size_t i = 0; i < tasks_.size(); ++i) finish_[i] = of_[i].answer + of_[i].added;
    step(Event::answered);
  }
  if (!report.sketch) return;
  sketches_[at] = report.sketch;
  means_[at] = report.sketch->overall_mean();
  if (state_ != State::round_robin)
    begin_epoch(Event::sketch);
  else if (std::all_of(sketches_.begin(), sketches_.end(), [](auto& s) { return s.has_value(); }))
    begin_epoch(Event::complete);
}

void Scheduler::receive_pooled(std::size_t at, const Report& report) {
  if (!report.items.empty()) learn(at, report);
  if (state_ == State::round_robin && !report.items.empty()) start(means_[0]);
  for (const Answer& answer : report.answers)
    if (answer.source == options_.source) apply(at, answer);
}

// What was sent blindly counts as records of mean time.
void Scheduler::start(double mean) {
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    finish_[i] = first_ + latency_[i] + static_cast<double>(of_[i].blind) * mean;
    for (Segment& segment : of_[i].segments) {
      segment.sum += static_cast<double>(segment.blind) * mean;
      segment.blind = 0;
    }
    of_[i].blind = 0;
  }
  step(Event::early);
}

void Scheduler::apply(std::size_t at, const Answer& answer) {
  auto& segments = of_[at].segments;
  const auto from = std::find_if(segments.begin(), segments.end(), [&](const Segment& segment) {
    return segment.number == answer.number;
  });
  if (from == segments.end() || state_ == State::round_robin) return;
  double finish = answer.finish;
  for (auto segment = from; segment != segments.end(); ++segment)
    finish = std::max(finish + segment->sum, segment->floor);
  finish_[at] = finish;
  segments.erase(segments.begin(), from + 1);
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
//   memory f64, tasks count then each (id varint, latency f64), state u8, epoch, turn, sent,
//   replies, scheduled, window varints, whether there was a time yet u8, now f64, first f64,
//   weight, noise f64, usual f64, odd, resets varints, then for each task finish, speed f64,
//   reports, requests, since, blind varints, answered u8, answer, added, executed, expected f64,
//   odd u8 (sign + 1), odd executed, odd expected f64, segments count then each (number varint,
//   sum f64, whether it has a floor u8, floor f64, blind varint); then the sketches, sized
std::string Scheduler::to_bytes() const {
  Writer to(Kernel::scheduler, 1);
  to.u8(static_cast<std::uint8_t>(options_.mode));
  to.f64(options_.epsilon);
  to.f64(options_.delta);
  to.u64(options_.seed);
  to.varint(options_.source);
  to.varint(options_.resync ? *options_.resync + 1 : 0);
  to.f64(options_.memory);
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
    for (const double v : {task.answer, task.added, task.executed, task.expected}) to.f64(v);
    to.u8(static_cast<std::uint8_t>(task.odd + 1));
    to.f64(task.odd_executed);
    to.f64(task.odd_expected);
    to.varint(task.segments.size());
    for (const Segment& segment : task.segments) {
      to.varint(segment.number);
      to.f64(segment.sum);
      to.u8(std::isfinite(segment.floor));
      to.f64(std::isfinite(segment.floor) ? segment.floor : 0);
      to.varint(segment.blind);
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
    task.added = from.amount("added");
    task.executed = from.amount("executed");
    task.expected = from.amount("expected");
    const std::uint8_t odd = from.u8();
    Reader::check(odd <= 2, "odd", "0 to 2");
    task.odd = odd - 1;
    task.odd_executed = from.amount("odd executed");
    task.odd_expected = from.amount("odd expected");
    const std::size_t segments = from.count("segments", 19);
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
      task.segments.push_back(segment);
    }
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
  }
  Reader::check(all || out.state_ == State::round_robin, "sketch", "one of every task");
  from.end();
  return std::move(out);
}

}  // namespace pyroute
