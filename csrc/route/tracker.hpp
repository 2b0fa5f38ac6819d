// Tracker: what one task learns about the cost of its records, and when it tells (paper 004,
// section III-B, figure 2).
//
// Definition, mode posg. A dual Count-Min of the records executed (F and W), and a snapshot of it.
// After every `window` records (N in the paper) an event of this table happens:
//     START        window    -> STABILIZING  take the snapshot
//     STABILIZING  unstable  -> STABILIZING  take the snapshot
//     STABILIZING  stable    -> START        report the sketch, begin an empty one
// stable: relative_change(snapshot) of cost_sketch.hpp is at most `tolerance` (mu). Departures from
// the paper: its Equation 1 weighs all cells alike and divides by zero in empty ones; here cells
// weigh by frequency and empty ones do not count (traps O5 to O7). A sketch whose
// relative_change(last one reported) is at most `tolerance` is not reported again (trap O10). A
// request is answered at once, in a report that may hold no sketch.
//
// Definition, mode pooled. After every `window` records the items executed since the last window
// are reported, with the latest request of each source answered; a prompt request is answered at
// once, in a report without items. State: START, always.
//
// A batch counts as its records in order, all done at `now`; what several windows of one batch have
// to report is one report (of sketches the last; of items all, and the next window begins after the
// batch). Requests are those of the last record.
//
// Guarantees, each a test of that name in tests/test_posg.py:
//   tracker_matches_reference   the twin in tests/reference/posg.py, for any stream
//   tracker_table               no other transition than the table's
//   stable_streams_report       posg, constant times: the first report after 2 * window records
//   answers_every_source        the latest request of every source is answered, once
//   hostile_times               a negative, infinite or NaN time or a clock that goes back raises
//                               and changes nothing
// Cost: O(rows) per record; posg O(cells) and pooled O(window log window) per window. Memory: three
// sketches; pooled, one item per record of the window. Threads: one writer; the binding locks.
#pragma once

#include <array>

#include "route/report.hpp"

namespace pyroute {

class Tracker {
 public:
  enum class State : std::uint8_t { start, stabilizing };
  enum class Event : std::uint8_t { window, unstable, stable };
  struct Transition {
    State from;
    Event event;
    State to;
  };
  static constexpr std::array<Transition, 3> kTransitions{{
      {State::start, Event::window, State::stabilizing},
      {State::stabilizing, Event::unstable, State::stabilizing},
      {State::stabilizing, Event::stable, State::start},
  }};
  [[nodiscard]] static const char* name(State state) noexcept;
  [[nodiscard]] static const char* name(Event event) noexcept;

  static constexpr std::uint64_t kMostWindow = std::uint64_t{1} << 24;

  // Throws std::invalid_argument for a window outside 1 to 2^24, a tolerance that is not finite or
  // negative, and what CostSketch refuses.
  Tracker(TaskId task, Mode mode, std::uint64_t window, double tolerance, double epsilon,
          double delta, std::uint64_t seed);

  // Throws std::invalid_argument, the state unchanged, for wrong times or a wrong clock.
  [[nodiscard]] std::optional<Report> observe(const Batch& values, std::span<const double> times,
                                              double now, std::span<const Request> requests);
  // One record, its key known. Precondition: time finite and not negative, now not before.
  [[nodiscard]] std::optional<Report> observe_one(Key key, double time, double now,
                                                  const Request* request);

  [[nodiscard]] TaskId task() const noexcept { return task_; }
  [[nodiscard]] Mode mode() const noexcept { return mode_; }
  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] std::uint64_t window() const noexcept { return window_; }
  [[nodiscard]] double tolerance() const noexcept { return tolerance_; }
  [[nodiscard]] std::uint64_t records() const noexcept { return records_; }
  [[nodiscard]] double executed() const noexcept { return executed_; }
  [[nodiscard]] const CostSketch& sketch() const noexcept { return sketch_; }
  [[nodiscard]] bool operator==(const Tracker& other) const = default;

  [[nodiscard]] std::string to_bytes() const;
  [[nodiscard]] static Tracker from_bytes(std::string_view data);

 private:
  void add(Key key, double time);
  void close_window();
  void step(Event event);
  void note(const Request& request, double now);
  [[nodiscard]] std::optional<Report> report(double now);

  TaskId task_;
  Mode mode_;
  State state_ = State::start;
  std::uint64_t window_;
  double tolerance_;
  CostSketch sketch_;                        // F and W; pooled: of no use
  std::optional<CostSketch> snapshot_ = {};  // W / F of it is the paper's S
  std::optional<CostSketch> sent_ = {};      // the last one reported
  std::vector<Item> items_ = {};             // pooled: since the last report
  std::vector<Answer> answers_ = {};         // ascending by source, the latest of each
  std::uint64_t in_window_ = 0;
  std::uint64_t records_ = 0;
  std::uint64_t reports_ = 0;
  double executed_ = 0;
  double now_;
  bool due_ = false;     // there is a sketch or there are items to report
  bool prompt_ = false;  // an answer that does not wait
};

}  // namespace pyroute
