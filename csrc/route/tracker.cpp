#include "route/tracker.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pyroute {
namespace {

constexpr double kBefore = -std::numeric_limits<double>::infinity();

void check_times(std::size_t size, std::span<const double> times, double executed) {
  if (times.size() != size)
    throw std::invalid_argument("times: expected " + std::to_string(size) + " of them, got " +
                                std::to_string(times.size()));
  for (const double time : times) {
    if (!(time >= 0 && std::isfinite(time)))
      throw std::invalid_argument("times: expected finite numbers >= 0, got " +
                                  std::to_string(time));
    executed += time;
  }
  if (!std::isfinite(executed))
    throw std::invalid_argument("times: expected a finite total, got more than a double holds");
}

// Each key once, ascending; times are added in the order they came.
void condense(std::vector<Item>& items) {
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.key < b.key; });
  std::size_t to = 0;
  for (std::size_t i = 1; i < items.size(); ++i) {
    if (items[i].key == items[to].key) {
      items[to].frequency += items[i].frequency;
      items[to].time += items[i].time;
    } else {
      items[++to] = items[i];
    }
  }
  if (!items.empty()) items.resize(to + 1);
}

}  // namespace

const char* Tracker::name(State state) noexcept {
  return state == State::start ? "START" : "STABILIZING";
}

const char* Tracker::name(Event event) noexcept {
  constexpr const char* names[] = {"window", "unstable", "stable"};
  return names[static_cast<std::size_t>(event)];
}

Tracker::Tracker(TaskId task, Mode mode, std::uint64_t window, double tolerance, double epsilon,
                 double delta, std::uint64_t seed)
    : task_(task),
      mode_(mode),
      window_(window),
      tolerance_(tolerance),
      sketch_(epsilon, delta, seed),
      now_(kBefore) {
  if (task < 0)
    throw std::invalid_argument("task: expected at least 0, got " + std::to_string(task));
  if (window == 0 || window > kMostWindow)
    throw std::invalid_argument("window: expected 1 to 16777216, got " + std::to_string(window));
  if (!(tolerance >= 0 && std::isfinite(tolerance)))
    throw std::invalid_argument("tolerance: expected a finite number >= 0, got " +
                                std::to_string(tolerance));
}

void Tracker::step(Event event) {
  for (const Transition& transition : kTransitions)
    if (transition.from == state_ && transition.event == event) {
      state_ = transition.to;
      return;
    }
}

void Tracker::add(Key key, double time) {
  if (mode_ == Mode::pooled)
    items_.push_back({key, 1, time});
  else
    sketch_.add(key, 1, time);
  ++records_;
  executed_ += time;
  if (++in_window_ == window_) {
    in_window_ = 0;
    close_window();
  }
}

void Tracker::close_window() {
  if (mode_ == Mode::pooled) {
    due_ = true;
    return;
  }
  if (state_ == State::start) {
    snapshot_ = sketch_;
    step(Event::window);
  } else if (sketch_.relative_change(*snapshot_) > tolerance_) {
    snapshot_ = sketch_;
    step(Event::unstable);
  } else {
    if (!sent_ || sketch_.relative_change(*sent_) > tolerance_) {
      sent_ = sketch_;
      due_ = true;
    }
    sketch_.reset();
    snapshot_.reset();
    step(Event::stable);
  }
}

void Tracker::note(const Request& request, double now) {
  const Answer answer{request.source, request.epoch, request.number, now};
  prompt_ = prompt_ || request.prompt || mode_ == Mode::posg;
  const auto at =
      std::lower_bound(answers_.begin(), answers_.end(), answer,
                       [](const Answer& a, const Answer& b) { return a.source < b.source; });
  if (at == answers_.end() || at->source != answer.source)
    answers_.insert(at, answer);
  else
    *at = answer;
}

std::optional<Report> Tracker::report(double now) {
  if (!due_ && !prompt_) return std::nullopt;
  Report out;
  out.task = task_;
  out.mode = mode_;
  out.number = ++reports_;
  out.window = window_;
  out.records = records_;
  out.executed = executed_;
  out.now = now;
  if (due_ && mode_ == Mode::posg) out.sketch = sent_;
  if (due_ && mode_ == Mode::pooled) {
    condense(items_);
    out.items.swap(items_);
    in_window_ = 0;
  }
  out.answers.swap(answers_);
  due_ = prompt_ = false;
  return out;
}

std::optional<Report> Tracker::observe(const Batch& values, std::span<const double> times,
                                       double now, std::span<const Request> requests) {
  check_now(now, now_);
  check_times(values.size(), times, executed_);
  for (const Request& request : requests)
    if (request.task != task_)
      throw std::invalid_argument("requests: expected one of task " + std::to_string(task_) +
                                  ", got one of " + std::to_string(request.task));
  now_ = now;
  values.for_each_block([&](std::size_t begin, std::span<const Key> ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) add(ids[i], times[begin + i]);
  });
  for (const Request& request : requests) note(request, now);
  return report(now);
}

std::optional<Report> Tracker::observe_one(Key key, double time, double now,
                                           const Request* request) {
  now_ = now;
  add(key, time);
  if (request != nullptr) note(*request, now);
  return report(now);
}

//   task varint, mode u8, state u8, window varint, tolerance f64, in the window, records, reports
//   varints, executed f64, whether there was a time yet u8, now f64, sketch, snapshot and last sent
//   sized, items and answers as in a report
std::string Tracker::to_bytes() const {
  Writer to(Kernel::tracker, 1);
  to.varint(static_cast<std::uint64_t>(task_));
  to.u8(static_cast<std::uint8_t>(mode_));
  to.u8(static_cast<std::uint8_t>(state_));
  to.varint(window_);
  to.f64(tolerance_);
  to.varint(in_window_);
  to.varint(records_);
  to.varint(reports_);
  to.f64(executed_);
  to.u8(std::isfinite(now_));
  to.f64(std::isfinite(now_) ? now_ : 0);
  write_sketch(to, sketch_);
  write_sketch(to, snapshot_);
  write_sketch(to, sent_);
  to.varint(items_.size());
  for (const Item& item : items_) write_item(to, item);
  to.varint(answers_.size());
  for (const Answer& answer : answers_) write_answer(to, answer);
  return std::move(to).finish();
}

Tracker Tracker::from_bytes(std::string_view data) {
  Reader from(data, Kernel::tracker, 1);
  const TaskId task = read_task(from);
  const Mode mode = read_mode(from);
  const std::uint8_t state = from.u8();
  Reader::check(state <= 1, "state", "0 or 1");
  const std::uint64_t window = from.varint("window", kMostWindow);
  Reader::check(window > 0, "window", "above 0");
  const double tolerance = from.amount("tolerance");
  const std::uint64_t in_window = from.varint("in window", window - 1);
  const std::uint64_t records = from.varint("records");
  const std::uint64_t reports = from.varint("reports");
  const double executed = from.amount("executed");
  const std::uint8_t started = from.u8();
  const double now = read_number(from, "now");
  Reader::check(started <= 1 && (started == 1 || now == 0), "now", "a time, or none");
  const std::optional<CostSketch> sketch = read_sketch(from);
  if (!sketch) throw Reader::bad("sketch", "one");
  Tracker out(task, mode, window, tolerance, sketch->epsilon(), sketch->delta(), sketch->seed());
  out.state_ = static_cast<State>(state);
  out.in_window_ = in_window;
  out.records_ = records;
  out.reports_ = reports;
  out.executed_ = executed;
  if (started == 1) out.now_ = now;
  out.sketch_ = *sketch;
  out.snapshot_ = read_sketch(from);
  out.sent_ = read_sketch(from);
  Reader::check(out.snapshot_.has_value() == (state == 1), "snapshot", "one while stabilizing");
  for (const auto& other : {out.snapshot_, out.sent_})
    Reader::check(!other || other->same_shape(out.sketch_), "sketch", "one shape");
  const std::size_t items = from.count("items", 17);
  Reader::check(items == (mode == Mode::pooled ? in_window : 0), "items", "those of the window");
  double total = executed;
  for (std::size_t i = 0; i < items; ++i) {
    out.items_.push_back(read_item(from));
    total += out.items_.back().time;
  }
  Reader::check(std::isfinite(total), "items", "a finite total");
  const std::size_t answers = from.count("answers", 11);
  for (std::size_t i = 0; i < answers; ++i) {
    out.answers_.push_back(read_answer(from));
    Reader::check(i == 0 || out.answers_[i - 1].source < out.answers_[i].source, "answers",
                  "ascending sources");
  }
  from.end();
  return out;
}

}  // namespace pyroute
