// What schedulers and tasks tell each other (paper 004, section III-B): requests that travel with
// records, and the reports of a task. Values; nothing here decides.
//
//   Request   "say when this record is done": source (which scheduler), task, epoch, number, and
//             whether at once, where it could wait for the next report. It is attached to the
//             record at `position` of the batch that was scheduled.
//   Answer    to a request: when the record that carried it was done. The paper's reply is the
//             difference to the scheduler's estimate; here the scheduler takes the difference, so
//             that a request need not carry the estimate (trap O8).
//   Report    of one task: answers, and in mode posg a sketch where one became stable, in mode
//             pooled the items executed since the last report, each key once, ascending.
//
// A report that several schedulers receive is the same report: each finds its own answers by
// source (trap O15).
//
// Guarantees, each a test of that name in tests/test_posg.py:
//   report_bytes  from_bytes(to_bytes(report)) == report
// Cost: pooled, 17 to 26 bytes per item; posg, 16 bytes per cell of the sketch. Threads: immutable.
#pragma once

#include <optional>
#include <vector>

#include "stats/cost_sketch.hpp"

namespace pyroute {

enum class Mode : std::uint8_t { posg = 0, pooled = 1 };

// Throws std::invalid_argument for another name.
[[nodiscard]] Mode mode_of(std::string_view name);
[[nodiscard]] const char* name_of(Mode mode) noexcept;

struct Request {
  std::uint64_t source = 0;
  TaskId task = 0;
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;
  std::size_t position = 0;
  bool prompt = false;
  [[nodiscard]] bool operator==(const Request&) const = default;
};

struct Answer {
  std::uint64_t source = 0;
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;
  double finish = 0;
  [[nodiscard]] bool operator==(const Answer&) const = default;
};

struct Item {
  Key key = 0;
  std::uint64_t frequency = 0;
  double time = 0;
  [[nodiscard]] bool operator==(const Item&) const = default;
};

struct Report {
  TaskId task = 0;
  Mode mode = Mode::posg;
  std::uint64_t number = 0;   // of this tracker's reports, from 1
  std::uint64_t window = 0;   // the tracker's
  std::uint64_t records = 0;  // executed so far
  double executed = 0;        // the time they took
  double now = 0;
  std::optional<CostSketch> sketch = {};
  std::vector<Item> items = {};
  std::vector<Answer> answers = {};  // ascending by source
  [[nodiscard]] bool operator==(const Report&) const = default;

  [[nodiscard]] std::string to_bytes() const;
  [[nodiscard]] static Report from_bytes(std::string_view data);
};

// A time of the caller's clock. Throws std::invalid_argument unless finite and at least `last`.
void check_now(double now, double last);

// Parts of the formats of tracker and scheduler.
void write_answer(Writer& to, const Answer& answer);
[[nodiscard]] Answer read_answer(Reader& from);
void write_item(Writer& to, const Item& item);
[[nodiscard]] Item read_item(Reader& from);
[[nodiscard]] double read_number(Reader& from, const char* name);  // finite
void write_sketch(Writer& to, const std::optional<CostSketch>& sketch);
[[nodiscard]] std::optional<CostSketch> read_sketch(Reader& from);
[[nodiscard]] Mode read_mode(Reader& from);
[[nodiscard]] TaskId read_task(Reader& from);

}  // namespace pyroute
