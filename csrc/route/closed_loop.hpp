// A scheduler and the trackers of its tasks in one process, joined by a channel of fixed delay: for
// replays, which ask for one record at a time and at the rate of a native loop.
//
// choose() first delivers the reports that have arrived, then schedules; done() tells the task's
// tracker that its oldest record is executed, and sends what it reports. Times of calls never go
// back; records of a task are executed in the order they were sent.
//
// Guarantees, each a test of that name in tests/test_arena.py:
//   closed_loop_is_its_parts   tasks and messages equal those of the public objects joined by hand
// Cost: that of its parts. Threads: one.
#pragma once

#include <deque>

#include "route/scheduler.hpp"
#include "route/tracker.hpp"

namespace pyroute {

class ClosedLoop {
 public:
  // Throws std::invalid_argument unless there is one tracker per task, of the same mode, and the
  // delay is finite and not negative.
  ClosedLoop(Scheduler scheduler, std::vector<Tracker> trackers, double delay);

  [[nodiscard]] TaskId choose(Key key, double now);
  void done(TaskId task, Key key, double time, double now);

  [[nodiscard]] const Scheduler& scheduler() const noexcept { return scheduler_; }
  [[nodiscard]] std::uint64_t messages() const noexcept { return messages_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t requests() const noexcept { return requests_; }
  // Record at which each state was entered first, from 0; -1: not yet.
  [[nodiscard]] const std::array<std::int64_t, 4>& entered() const noexcept { return entered_; }

 private:
  struct Sent {
    double at;
    Report report;
  };
  struct Carried {
    std::uint64_t record;  // number of the record among those of its task
    Request request;
  };
  struct Channel {
    std::uint64_t sent = 0, executed = 0;
    std::deque<Carried> carried = {};
  };
  [[nodiscard]] std::size_t find(TaskId task) const noexcept;

  Scheduler scheduler_;
  std::vector<Tracker> trackers_;  // by task, ascending
  std::vector<Channel> channels_;
  std::deque<Sent> under_way_;  // by when they arrive, ties in the order they were sent
  double delay_;
  double now_;
  std::uint64_t messages_ = 0, bytes_ = 0, requests_ = 0;
  std::int64_t records_ = 0;
  std::array<std::int64_t, 4> entered_{-1, -1, -1, -1};
};

}  // namespace pyroute
