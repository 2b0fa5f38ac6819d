#include "route/closed_loop.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace pyroute {

ClosedLoop::ClosedLoop(Scheduler scheduler, std::vector<Tracker> trackers, double delay)
    : scheduler_(std::move(scheduler)),
      trackers_(std::move(trackers)),
      channels_(trackers_.size()),
      delay_(delay),
      now_(-std::numeric_limits<double>::infinity()) {
  std::sort(trackers_.begin(), trackers_.end(),
            [](const Tracker& a, const Tracker& b) { return a.task() < b.task(); });
  const auto tasks = scheduler_.tasks();
  bool fits = trackers_.size() == tasks.size();
  for (std::size_t i = 0; fits && i < tasks.size(); ++i)
    fits = trackers_[i].task() == tasks[i] && trackers_[i].mode() == scheduler_.options().mode;
  if (!fits)
    throw std::invalid_argument(
        "trackers: expected one of the scheduler's mode for each of its tasks, got others");
  if (!(delay >= 0 && std::isfinite(delay)))
    throw std::invalid_argument("delay: expected a finite number >= 0, got " +
                                std::to_string(delay));
}

std::size_t ClosedLoop::find(TaskId task) const noexcept {
  const auto tasks = scheduler_.tasks();
  return static_cast<std::size_t>(std::lower_bound(tasks.begin(), tasks.end(), task) -
                                  tasks.begin());
}

TaskId ClosedLoop::choose(Key key, double now) {
  while (!under_way_.empty() && under_way_.front().at <= now) {
    now_ = std::max(now_, under_way_.front().at);
    scheduler_.receive(under_way_.front().report, now_);
    under_way_.pop_front();
  }
  now_ = now;
  auto& entered = entered_[static_cast<std::size_t>(scheduler_.state())];
  if (entered < 0) entered = records_;
  ++records_;
  const TaskId task = scheduler_.schedule_one(key, now);
  Channel& channel = channels_[find(task)];
  for (const Request& request : scheduler_.requests()) {
    channel.carried.push_back({channel.sent, request});
    ++requests_;
  }
  ++channel.sent;
  return task;
}

void ClosedLoop::done(TaskId task, Key key, double time, double now) {
  const std::size_t at = find(task);
  Channel& channel = channels_[at];
  const std::uint64_t record = channel.executed++;
  std::optional<Report> report;
  if (!channel.carried.empty() && channel.carried.front().record == record) {
    const Request request = channel.carried.front().request;
    channel.carried.pop_front();
    report = trackers_[at].observe_one(key, time, now, &request);
  } else {
    report = trackers_[at].observe_one(key, time, now, nullptr);
  }
  if (!report) return;
  bytes_ += report->to_bytes().size();
  ++messages_;
  // Mostly at the end.
  auto place = under_way_.end();
  while (place != under_way_.begin() && std::prev(place)->at > now + delay_) --place;
  under_way_.insert(place, {now + delay_, *std::move(report)});
}

}  // namespace pyroute
