#include "keys.hpp"
#include "route/closed_loop.hpp"

namespace pyroute {
namespace {

using T = Locked<Tracker>;
using S = Locked<Scheduler>;
using RequestTuple =
    std::tuple<std::uint64_t, TaskId, std::uint64_t, std::uint64_t, std::size_t, bool>;
using AnswerTuple = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, double>;

Request request_of(const RequestTuple& from) {
  const auto& [source, task, epoch, number, position, prompt] = from;
  return {source, task, epoch, number, position, prompt};
}

// (state, event, next state) by name, for documents and tests.
template <class K>
std::vector<std::tuple<std::string, std::string, std::string>> transitions() {
  std::vector<std::tuple<std::string, std::string, std::string>> out;
  for (const auto& [from, event, to] : K::kTransitions)
    out.emplace_back(K::name(from), K::name(event), K::name(to));
  return out;
}

template <class K, class R>
auto locked(R (K::*method)() const noexcept) {
  return [method](const Locked<K>& self) {
    return self.with([&](const K& kernel) { return (kernel.*method)(); });
  };
}

template <class Method>
auto copy_of(Method method) {
  return [method](const S& self) {
    const std::vector<double> out = self.with([&](const Scheduler& kernel) {
      const auto values = (kernel.*method)();
      return std::vector<double>(values.begin(), values.end());
    });
    return copied(out);
  };
}

std::unique_ptr<S> make_scheduler(const Array<TaskId>& tasks, const Array<double>& latencies,
                                  const std::string& mode, double epsilon, double delta,
                                  std::uint64_t seed, std::uint64_t source,
                                  std::optional<std::uint64_t> resync, double memory, bool prompt) {
  Scheduler::Options options;
  options.mode = mode_of(mode);
  options.epsilon = epsilon;
  options.delta = delta;
  options.seed = seed;
  options.source = source;
  options.resync = resync;
  options.memory = memory;
  options.prompt = prompt;
  return std::make_unique<S>(Scheduler(view(tasks), view(latencies), options));
}

void bind_report(py::module_& m) {
  py::class_<Report, std::shared_ptr<Report>>(m, "Report")
      .def_property_readonly("task", [](const Report& r) { return r.task; })
      .def_property_readonly("mode", [](const Report& r) { return name_of(r.mode); })
      .def_property_readonly("number", [](const Report& r) { return r.number; })
      .def_property_readonly("window", [](const Report& r) { return r.window; })
      .def_property_readonly("records", [](const Report& r) { return r.records; })
      .def_property_readonly("executed", [](const Report& r) { return r.executed; })
      .def_property_readonly("now", [](const Report& r) { return r.now; })
      .def_property_readonly("sketch",
                             [](const Report& r) -> std::unique_ptr<Locked<CostSketch>> {
                               if (!r.sketch) return nullptr;
                               return std::make_unique<Locked<CostSketch>>(*r.sketch);
                             })
      .def_property_readonly("items",
                             [](const Report& r) {
                               std::vector<Key> keys;
                               std::vector<std::uint64_t> frequencies;
                               std::vector<double> times;
                               for (const Item& item : r.items) {
                                 keys.push_back(item.key);
                                 frequencies.push_back(item.frequency);
                                 times.push_back(item.time);
                               }
                               return py::make_tuple(copied(keys), copied(frequencies),
                                                     copied(times));
                             })
      .def_property_readonly("answers",
                             [](const Report& r) {
                               std::vector<AnswerTuple> out;
                               for (const Answer& a : r.answers)
                                 out.emplace_back(a.source, a.epoch, a.number, a.finish);
                               return out;
                             })
      .def(
          "equals", [](const Report& self, const Report& other) { return self == other; },
          "other"_a, py::pos_only())
      .def("to_bytes", [](const Report& self) { return py::bytes(self.to_bytes()); })
      .def_static(
          "from_bytes",
          [](const py::bytes& data) {
            return std::make_shared<Report>(Report::from_bytes(view(data)));
          },
          "data"_a, py::pos_only());
}

void bind_tracker(py::module_& m) {
  py::class_<T> tracker(m, "Tracker");
  bind_bytes<Tracker>(tracker);
  tracker
      .def(py::init([](TaskId task, const std::string& mode, std::uint64_t window, double tolerance,
                       double epsilon, double delta, std::uint64_t seed) {
             return std::make_unique<T>(
                 Tracker(task, mode_of(mode), window, tolerance, epsilon, delta, seed));
           }),
           "task"_a, "mode"_a, "window"_a, "tolerance"_a, "epsilon"_a, "delta"_a, "seed"_a)
      .def(
          "observe",
          [](T& self, const Keys& values, const Array<double>& times, double now,
             const std::vector<RequestTuple>& requests) -> std::shared_ptr<Report> {
            const auto t = view(times);
            std::vector<Request> asked;
            for (const RequestTuple& request : requests) asked.push_back(request_of(request));
            auto out =
                self.with([&](Tracker& k) { return k.observe(values.batch(), t, now, asked); });
            return out ? std::make_shared<Report>(*std::move(out)) : nullptr;
          },
          "values"_a, "times"_a, "now"_a, "requests"_a, py::pos_only())
      .def_property_readonly("task", locked(&Tracker::task))
      .def_property_readonly("mode", [](const T& self) { return name_of(self.kernel.mode()); })
      .def_property_readonly("window", locked(&Tracker::window))
      .def_property_readonly("tolerance", locked(&Tracker::tolerance))
      .def_property_readonly("records", locked(&Tracker::records))
      .def_property_readonly("executed", locked(&Tracker::executed))
      .def_property_readonly(
          "state",
          [](const T& self) {
            return Tracker::name(self.with([](const Tracker& k) { return k.state(); }));
          })
      .def_static("transitions", &transitions<Tracker>);
}

void bind_scheduler(py::module_& m) {
  py::class_<S> scheduler(m, "Scheduler");
  bind_bytes<Scheduler>(scheduler);
  scheduler
      .def(py::init(&make_scheduler), "tasks"_a, "latencies"_a, "mode"_a, "epsilon"_a, "delta"_a,
           "seed"_a, "source"_a, "resync"_a, "memory"_a, "prompt"_a)
      .def_static(
          "from_sketch",
          [](const Array<TaskId>& tasks, const Locked<CostSketch>& sketch) {
            const auto ids = view(tasks);
            return std::make_unique<S>(
                sketch.with([&](const CostSketch& k) { return Scheduler::from_sketch(ids, k); }));
          },
          "tasks"_a, "sketch"_a, py::pos_only())
      .def(
          "offline",
          [](const S& self, std::uint64_t rotation) {
            return std::make_unique<S>(
                self.with([&](const Scheduler& k) { return k.offline(rotation); }));
          },
          "rotation"_a, py::pos_only())
      .def(
          "schedule",
          [](S& self, const Keys& values, const Array<double>& now) {
            auto out = fresh<TaskId>(values.batch().size());
            const auto to = fill(out);
            const auto at = view(now);
            self.with([&](Scheduler& k) { k.schedule(values.batch(), at, to); });
            return out;
          },
          "values"_a, "now"_a, py::pos_only())
      .def(
          "receive",
          [](S& self, const Report& report, double now) {
            return self.with([&](Scheduler& k) { return k.receive(report, now); });
          },
          "report"_a, "now"_a, py::pos_only())
      .def(
          "estimates",
          [](const S& self, const Keys& values, TaskId task) {
            auto out = fresh<double>(values.batch().size());
            const auto to = fill(out);
            self.with([&](const Scheduler& k) { k.estimates(values.batch(), task, to); });
            return out;
          },
          "values"_a, "task"_a, py::pos_only())
      .def_property_readonly("requests",
                             [](const S& self) {
                               std::vector<RequestTuple> out;
                               self.with([&](const Scheduler& k) {
                                 for (const Request& r : k.requests())
                                   out.emplace_back(r.source, r.task, r.epoch, r.number, r.position,
                                                    r.prompt);
                               });
                               return out;
                             })
      .def_property_readonly(
          "state",
          [](const S& self) {
            return Scheduler::name(self.with([](const Scheduler& k) { return k.state(); }));
          })
      .def_property_readonly("tasks", [](const S& self) { return copied(self.kernel.tasks()); })
      .def_property_readonly("mode",
                             [](const S& self) { return name_of(self.kernel.options().mode); })
      .def_property_readonly("source", [](const S& self) { return self.kernel.options().source; })
      .def_property_readonly("epoch", locked(&Scheduler::epoch))
      .def_property_readonly("resets", locked(&Scheduler::resets))
      .def_property_readonly("finishes", copy_of(&Scheduler::finishes))
      .def_property_readonly("speeds", copy_of(&Scheduler::speeds))
      .def_property_readonly("latencies", copy_of(&Scheduler::latencies))
      .def_static("transitions", &transitions<Scheduler>);
}

// For compiled loops (numba): the address of a loop, and of what can be done with it.
TaskId loop_choose(std::uintptr_t loop, Key key, double now) {
  return reinterpret_cast<ClosedLoop*>(loop)->choose(key, now);
}
void loop_done(std::uintptr_t loop, TaskId task, Key key, double time, double now) {
  reinterpret_cast<ClosedLoop*>(loop)->done(task, key, time, now);
}

void bind_closed_loop(py::module_& m) {
  using L = ClosedLoop;
  py::class_<L>(m, "ClosedLoop")
      .def(py::init([](const S& scheduler, const std::vector<const T*>& trackers, double delay) {
             std::vector<Tracker> copies;
             for (const T* tracker : trackers)
               copies.push_back(tracker->with([](const Tracker& k) { return k; }));
             return std::make_unique<L>(scheduler.with([](const Scheduler& k) { return k; }),
                                        std::move(copies), delay);
           }),
           "scheduler"_a, "trackers"_a, "delay"_a)
      .def("choose", &L::choose, "key"_a, "now"_a, py::pos_only())
      .def("done", &L::done, "task"_a, "key"_a, "time"_a, "now"_a, py::pos_only())
      .def("scheduler", [](const L& self) { return std::make_unique<S>(self.scheduler()); })
      .def_property_readonly("messages", &L::messages)
      .def_property_readonly("bytes", &L::bytes)
      .def_property_readonly("requests", &L::requests)
      .def_property_readonly("entered", &L::entered)
      .def_property_readonly("address",
                             [](const L& self) { return reinterpret_cast<std::uintptr_t>(&self); })
      .def_static("functions", [] {
        return py::make_tuple(reinterpret_cast<std::uintptr_t>(&loop_choose),
                              reinterpret_cast<std::uintptr_t>(&loop_done));
      });
}

}  // namespace

void bind_posg(py::module_& m) {
  bind_report(m);
  bind_tracker(m);
  bind_scheduler(m);
  bind_closed_loop(m);
}

}  // namespace pyroute
