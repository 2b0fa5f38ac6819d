// Scheduler: a task for each record, by estimated finish time; keys aside (paper 004, POSG).
//
// It keeps for each task the time on the caller's clock at which the records sent so far will be
// done (C^ in the paper, which counts executed time instead: trap O8).
//
// Mode posg, the paper's. One sketch per task, from that task's reports; tasks are chosen by this
// table (figure 3), where a record's estimate w is that of the chosen task's sketch:
//     ROUND_ROBIN  complete  -> SEND_ALL   a sketch of every task has come
//     SEND_ALL     sent      -> WAIT_ALL   a request went with a record to every task
//     SEND_ALL     sketch    -> SEND_ALL   a new sketch: a new epoch begins
//     WAIT_ALL     sketch    -> SEND_ALL
//     WAIT_ALL     due       -> SEND_ALL   answers were lost: ask again
//     WAIT_ALL     answered  -> RUN        all requests of this epoch are answered
//     RUN          sketch    -> SEND_ALL
//     RUN          due       -> SEND_ALL   `resync` records were scheduled since the last epoch
//     ROUND_ROBIN  early     -> RUN        mode pooled only: the first report
// ROUND_ROBIN and SEND_ALL take the tasks in turn, WAIT_ALL and RUN the task of least finish time.
// Each record but those of ROUND_ROBIN adds w to the finish time of its task; when an epoch's last
// answer comes, every task's becomes the finish of the record that carried the request plus what
// was added since. Answers of other epochs are ignored; those that come during SEND_ALL count (trap
// O11). No finish time is raised to `now` (trap O14).
//
// Mode pooled. One sketch for all tasks, of times divided by a speed per task; a record goes to the
// task of least
//     max(finish, now + latency) + w * speed
// which becomes the task's finish time. It starts with the first report. Every `resync` records of
// a task one carries a request; an answer replaces the task's finish time by that of the answer,
// advanced by the records since in the same way. With `prompt`, requests are answered at once, so
// that silence says something too: the record of the oldest request without an answer was not done
// when an answer could have been sent, and latency above is the greater of itself and the estimates
// of what was sent after that record, less the age of the task's last report when it came; a
// request that is overdue by more than 64 mean times is given up for lost, and so are the older 32
// of 64 when one more goes out. Old observations weigh less, by
// 1 / (1 + n / memory) for n new ones (trap O16). Of a report's items those that the sketch knows
// are compared: expected is the sum of their estimates, the ratio is executed over expected.
//   speed     sums of executed and expected time, both times 0.95 per report of the task; their
//             quotient is shrunk towards the mean of all tasks as far as its own noise asks. Two
//             reports in a row that are off in one direction by more than 0.05 + 3 times the usual
//             deviation (0.25 to begin with) restart the sums.
//   reset     the residual of a report is sum |time - ratio * estimate| / sum time over its items;
//             three reports in a row above 0.1 + 1.5 times the usual one empty the sketch.
//
// Several schedulers may share tasks: each has a `source`, and answers are in wall-clock time, so
// that what others sent shows in them (trap O15).
//
// Guarantees, each a test of that name in tests/test_posg.py:
//   scheduler_matches_reference  the twin in tests/reference/posg.py, for any order of calls
//   scheduler_table              no other transition than the table's
//   answers_in_send_all          WAIT_ALL never hangs because an answer came early
//   stale_epochs_are_ignored     an answer of another epoch changes nothing
//   lost_answers                 resync records later the scheduler asks again
//   worked_example               21 s where round robin takes 29 s (section II)
//   greedy_bound                 exact estimates, identical tasks: makespan <= (2 - 1 / k) optimum
//   hostile_reports              unknown task, other mode, other shape: an error and no change
//   offline                      a pure function of the scheduler, the rotation and the records
// Cost: O(rows + log tasks) per record in mode posg, O(rows + tasks) in mode pooled. Messages: posg, at most one sketch per 2 * window records of a
// task and one answer per task and epoch; pooled, one report per window. Memory: posg one sketch
// per task, pooled one. Threads: one writer; the binding locks.
#pragma once

#include <array>

#include "route/report.hpp"

namespace pyroute {

class Scheduler {
 public:
  enum class State : std::uint8_t { round_robin, send_all, wait_all, run };
  enum class Event : std::uint8_t { complete, early, sketch, sent, answered, due };
  struct Transition {
    State from;
    Event event;
    State to;
  };
  static constexpr std::array<Transition, 9> kTransitions{{
      {State::round_robin, Event::complete, State::send_all},
      {State::round_robin, Event::early, State::run},
      {State::send_all, Event::sketch, State::send_all},
      {State::send_all, Event::sent, State::wait_all},
      {State::wait_all, Event::sketch, State::send_all},
      {State::wait_all, Event::due, State::send_all},
      {State::wait_all, Event::answered, State::run},
      {State::run, Event::sketch, State::send_all},
      {State::run, Event::due, State::send_all},
  }};
  [[nodiscard]] static const char* name(State state) noexcept;
  [[nodiscard]] static const char* name(Event event) noexcept;

  struct Options {
    Mode mode = Mode::posg;
    double epsilon = 0.05;
    double delta = 0.1;
    std::uint64_t seed = 0;
    std::uint64_t source = 0;
    // posg: records in RUN or WAIT_ALL before the next epoch, by default tasks * window of the last
    // report, 0 never (trap O9). pooled: records of a task between two requests, by default 8.
    std::optional<std::uint64_t> resync = {};
    double memory = 16384;  // pooled: records
    bool prompt = false;    // pooled
  };

  // `latencies`: of the way to each task, in the order of `tasks`; empty: none. Throws
  // std::invalid_argument for no tasks, or tasks, latencies or options out of range.
  Scheduler(std::span<const TaskId> tasks, std::span<const double> latencies,
            const Options& options);

  // Mode pooled, begun with what an earlier run cost: in RUN, tasks alike and idle. Throws
  // std::invalid_argument for an empty sketch, and as the constructor.
  [[nodiscard]] static Scheduler from_sketch(std::span<const TaskId> tasks,
                                             const CostSketch& sketch);
  // For records whose tasks tell nothing: the same knowledge of costs and speeds, in RUN, no
  // requests, tasks idle. Task `rotation`, modulo their number, comes first and the others after it
  // in turn, by thousandths of a mean time. Throws std::invalid_argument in ROUND_ROBIN.
  [[nodiscard]] Scheduler offline(std::uint64_t rotation) const;

  // `now`: one time for all values, or one for each, never less than before. Precondition:
  // out.size() == values.size(). Throws std::invalid_argument, the state unchanged, for a wrong
  // clock. requests() are then those to attach to these records.
  void schedule(const Batch& values, std::span<const double> now, std::span<TaskId> out);
  [[nodiscard]] TaskId schedule_one(Key key, double now);
  // Whether the report was used: false where a later one of that task was received before.
  bool receive(const Report& report, double now);

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] const std::vector<Request>& requests() const noexcept { return requests_; }
  [[nodiscard]] std::span<const TaskId> tasks() const noexcept { return tasks_; }
  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  [[nodiscard]] std::uint64_t resets() const noexcept { return resets_; }
  [[nodiscard]] std::span<const double> finishes() const noexcept {
    return std::span(finish_).first(tasks_.size());
  }
  [[nodiscard]] std::span<const double> speeds() const noexcept {
    return std::span(speed_).first(tasks_.size());
  }
  [[nodiscard]] std::span<const double> latencies() const noexcept {
    return std::span(latency_).first(tasks_.size());
  }
  // Estimated time of each value on the task, 0 where nothing is known yet.
  void estimates(const Batch& values, TaskId task, std::span<double> out) const;
  [[nodiscard]] bool operator==(const Scheduler& other) const;

  [[nodiscard]] std::string to_bytes() const;
  [[nodiscard]] static Scheduler from_bytes(std::string_view data);

 private:
  // What the records after a request do to a finish time x: max(x + sum, floor).
  struct Segment {
    std::uint64_t number = 0;
    double sum = 0;
    double floor = 0;
    std::uint64_t blind = 0;  // records sent before there was any estimate
    double expected = 0;      // finish of the record that carried the request; 0 where blind
    [[nodiscard]] bool operator==(const Segment&) const = default;
  };
  struct Task {
    std::uint64_t reports = 0;   // number of the last one received
    std::uint64_t requests = 0;  // pooled: number of the last one sent
    std::uint64_t since = 0;     // pooled: records since the last request, of those between two
    std::uint64_t blind = 0;     // pooled: records sent before there was any estimate
    bool answered = false;       // posg: in this epoch; pooled: in ROUND_ROBIN
    double answer = 0;
    double lag = 0;       // pooled: age of the last report when it came
    double executed = 0;  // pooled: sums for the speed
    double expected = 0;
    int odd = 0;  // pooled: sign of the last report's deviation where it was large
    double odd_executed = 0;
    double odd_expected = 0;
    // Pooled: of requests without an answer, oldest first; sum and floor of the last one are in
    // open_sum_ and open_floor_ while records are added.
    std::vector<Segment> segments = {};
    double closed = 0;  // sums of all but the last
    [[nodiscard]] bool operator==(const Task&) const = default;
  };

  struct Cell {
    double frequency = 0;
    double mean = 0;
  };
  struct Node {
    std::int64_t finish;  // in_order()
    std::uint64_t task;
  };

  void step(Event event);
  void begin_epoch(Event event);
  [[nodiscard]] std::size_t find(TaskId task) const;
  void clock(std::span<const double> now, std::size_t size);
  // One record of SEND_ALL.
  std::size_t ask(const std::uint32_t* at, std::size_t position);
  // Up to `count` records of WAIT_ALL or RUN, as many as there are before the next epoch.
  std::size_t run_posg(const std::uint32_t* at, std::size_t count, TaskId* out);
  void run_pooled(std::span<const double> estimates, std::span<const double> now,
                  std::size_t position, TaskId* out);
  void blindly(std::size_t count, std::size_t position, TaskId* out);
  void request(std::size_t at, std::size_t position);
  void wait_for(std::size_t at);
  void close_open(std::size_t at);
  void open(std::size_t at);
  std::size_t in_turn();
  [[nodiscard]] bool fits(const CostSketch& sketch) const noexcept;
  void receive_posg(std::size_t at, const Report& report);
  void receive_pooled(std::size_t at, const Report& report);
  void learn(std::size_t at, const Report& report);
  [[nodiscard]] bool surprises(double residual);
  void learn_speed(std::size_t at, double executed, double expected);
  void start(double mean);
  void tabulate(std::size_t at);
  void apply(std::size_t at, const Answer& answer);
  void give_up_overdue();
  void update_speeds();

  Options options_;
  CostSketch::Shape shape_{};
  std::vector<TaskId> tasks_;  // ascending
  State state_ = State::round_robin;
  std::uint64_t epoch_ = 0;
  std::uint64_t turn_ = 0;       // of ROUND_ROBIN
  std::uint64_t sent_ = 0;       // requests of this epoch
  std::uint64_t replies_ = 0;    // answers of this epoch
  std::uint64_t scheduled_ = 0;  // records since this epoch's requests
  std::uint64_t window_ = 0;     // of the last report
  double now_;
  double first_ = 0;  // time of the first record
  // One entry per task and then infinite finish times up to a multiple of the vector width.
  std::vector<double> finish_, speed_, latency_, scratch_;
  // Pooled: less the open segment, how late a task is known to be; -infinity where it is not.
  std::vector<double> base_;
  std::vector<double> open_sum_, open_floor_;
  std::vector<double> added_;  // posg: since this epoch's request
  std::vector<Cell> cells_;    // posg: of all sketches, task after task
  std::vector<Node> tree_;     // posg: room for one batch
  std::vector<Task> of_;
  std::vector<std::optional<CostSketch>> sketches_;  // posg: one per task; pooled: one
  std::vector<double> means_;                        // overall means of the sketches
  double weight_ = 1;                                // pooled: of a new observation
  double noise_ = 0.25;                              // pooled: usual deviation of a ratio
  double usual_ = -1;                                // pooled: usual residual; -1: none yet
  std::uint64_t odd_ = 0;                            // pooled: large residuals in a row
  std::uint64_t resets_ = 0;
  std::vector<Request> requests_;
};

}  // namespace pyroute
