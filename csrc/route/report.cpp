#include "route/report.hpp"

#include <cmath>
#include <limits>

namespace pyroute {

Mode mode_of(std::string_view name) {
  if (name == "posg") return Mode::posg;
  if (name == "pooled") return Mode::pooled;
  throw std::invalid_argument("mode: expected posg or pooled, got " + std::string(name));
}

const char* name_of(Mode mode) noexcept { return mode == Mode::posg ? "posg" : "pooled"; }

void check_now(double now, double last) {
  if (!std::isfinite(now))
    throw std::invalid_argument("now: expected a finite time, got " + std::to_string(now));
  if (now < last)
    throw std::invalid_argument("now: expected a clock that does not go back, got " +
                                std::to_string(now) + " after " + std::to_string(last));
}

void write_answer(Writer& to, const Answer& answer) {
  to.varint(answer.source);
  to.varint(answer.epoch);
  to.varint(answer.number);
  to.f64(answer.finish);
}

Answer read_answer(Reader& from) {
  Answer out;
  out.source = from.varint("source");
  out.epoch = from.varint("epoch");
  out.number = from.varint("number");
  out.finish = read_number(from, "finish");
  return out;
}

void write_item(Writer& to, const Item& item) {
  to.u64(item.key);
  to.varint(item.frequency);
  to.f64(item.time);
}

Item read_item(Reader& from) {
  Item out;
  out.key = from.u64();
  out.frequency = from.varint("frequency", std::uint64_t{1} << 53);
  Reader::check(out.frequency > 0, "frequency", "at least 1");
  out.time = from.amount("time");
  return out;
}

double read_number(Reader& from, const char* name) {
  const double out = from.f64();
  Reader::check(std::isfinite(out), name, "a finite number");
  return out;
}

void write_sketch(Writer& to, const std::optional<CostSketch>& sketch) {
  to.sized(sketch ? sketch->to_bytes() : std::string());
}

std::optional<CostSketch> read_sketch(Reader& from) {
  const std::string_view data = from.sized("sketch");
  if (data.empty()) return std::nullopt;
  return CostSketch::from_bytes(data);
}

Mode read_mode(Reader& from) {
  const std::uint8_t mode = from.u8();
  Reader::check(mode <= 1, "mode", "0 or 1");
  return static_cast<Mode>(mode);
}

TaskId read_task(Reader& from) {
  return static_cast<TaskId>(from.varint("task", std::numeric_limits<TaskId>::max()));
}

//   task varint, mode u8, number, window, records varints, executed f64, now f64,
//   sketch sized (empty: none), items count then each (key u64, frequency varint, time f64),
//   answers count then each (source, epoch, number varints, finish f64)
std::string Report::to_bytes() const {
  Writer to(Kernel::report, 1);
  to.varint(static_cast<std::uint64_t>(task));
  to.u8(static_cast<std::uint8_t>(mode));
  to.varint(number);
  to.varint(window);
  to.varint(records);
  to.f64(executed);
  to.f64(now);
  write_sketch(to, sketch);
  to.varint(items.size());
  for (const Item& item : items) write_item(to, item);
  to.varint(answers.size());
  for (const Answer& answer : answers) write_answer(to, answer);
  return std::move(to).finish();
}

Report Report::from_bytes(std::string_view data) {
  Reader from(data, Kernel::report, 1);
  Report out;
  out.task = read_task(from);
  out.mode = read_mode(from);
  out.number = from.varint("number");
  out.window = from.varint("window");
  out.records = from.varint("records");
  out.executed = from.amount("executed");
  out.now = read_number(from, "now");
  out.sketch = read_sketch(from);
  Reader::check(out.number > 0 && out.window > 0, "number", "above 0, as the window");
  const std::size_t items = from.count("items", 17);
  for (std::size_t i = 0; i < items; ++i) out.items.push_back(read_item(from));
  double total = 0;
  for (std::size_t i = 0; i < out.items.size(); ++i) {
    Reader::check(i == 0 || out.items[i - 1].key < out.items[i].key, "items", "ascending keys");
    total += out.items[i].time;
  }
  Reader::check(std::isfinite(total), "items", "a finite total");
  Reader::check(out.mode == Mode::pooled ? !out.sketch : out.items.empty(), "mode",
                "what follows to be of it");
  const std::size_t answers = from.count("answers", 11);
  for (std::size_t i = 0; i < answers; ++i) {
    out.answers.push_back(read_answer(from));
    Reader::check(i == 0 || out.answers[i - 1].source < out.answers[i].source, "answers",
                  "ascending sources");
  }
  from.end();
  return out;
}

}  // namespace pyroute
