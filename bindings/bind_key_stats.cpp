#include "keys.hpp"
#include "stats/key_stats.hpp"

namespace pyroute {
namespace {

using Costs = std::optional<Array<double>>;
using Sizes = std::optional<Array<std::int64_t>>;

template <class T>
std::span<const T> view_or_none(const std::optional<Array<T>>& array) {
  return array ? view(*array) : std::span<const T>();
}

}  // namespace

void bind_key_stats(py::module_& m) {
  py::class_<Snapshot>(m, "Snapshot")
      .def(py::init([](const Keys& values, const Array<double>& costs, const Sizes& sizes,
                       const std::vector<std::pair<TaskId, double>>& background,
                       std::int64_t interval) {
             std::vector<Load> loads;
             for (const auto& [task, cost] : background) loads.push_back({task, cost});
             const auto c = view(costs);
             const auto s = view_or_none<std::int64_t>(sizes);
             if (sizes && s.size() != values.batch().size())
               throw py::value_error("state_sizes: expected " +
                                     std::to_string(values.batch().size()) + " of them, got " +
                                     std::to_string(s.size()));
             py::gil_scoped_release nogil;
             return Snapshot(values.batch(), {c.begin(), c.end()}, {s.begin(), s.end()},
                             std::move(loads), interval);
           }),
           "values"_a, "costs"_a, "state_sizes"_a.none(true), "background"_a, "interval"_a)
      .def("values", [](const Snapshot& self) { return names_of(self.ids(), self.names()); })
      .def_property_readonly(
          "ids",
          [](const py::object& self) { return readonly(self.cast<const Snapshot&>().ids(), self); })
      .def_property_readonly("costs",
                             [](const py::object& self) {
                               return readonly(self.cast<const Snapshot&>().costs(), self);
                             })
      .def_property_readonly("state_sizes",
                             [](const py::object& self) {
                               return readonly(self.cast<const Snapshot&>().state_sizes(), self);
                             })
      .def_property_readonly("background",
                             [](const Snapshot& self) {
                               py::dict out;
                               for (const Load& load : self.background())
                                 out[py::int_(load.task)] = load.cost;
                               return out;
                             })
      .def_property_readonly("interval", &Snapshot::interval)
      .def("__len__", [](const Snapshot& self) { return self.ids().size(); })
      .def(
          "equals", [](const Snapshot& self, const Snapshot& other) { return self == other; },
          "other"_a, py::pos_only())
      .def("to_bytes", [](const Snapshot& self) { return py::bytes(self.to_bytes()); })
      .def_static(
          "from_bytes", [](const py::bytes& data) { return Snapshot::from_bytes(view(data)); },
          "data"_a, py::pos_only());

  using K = Locked<KeyStats>;
  py::class_<K> stats(m, "KeyStats");
  bind_bytes<KeyStats>(stats);
  stats.def(py::init<std::int64_t, double>(), "window"_a, "smoothing"_a)
      .def(
          "observe",
          [](K& self, const Keys& values, const Costs& costs, const Sizes& sizes) {
            const auto c = view_or_none<double>(costs);
            const auto s = view_or_none<std::int64_t>(sizes);
            self.with([&](KeyStats& k) {
              k.observe(values.batch(), c, costs.has_value(), s, sizes.has_value());
            });
          },
          "values"_a, "costs"_a.none(true), "state_sizes"_a.none(true), py::pos_only())
      .def("close_interval",
           [](K& self) { return self.with([](KeyStats& k) { return k.close_interval(); }); })
      .def("__len__",
           [](const K& self) { return self.with([](const KeyStats& k) { return k.size(); }); })
      .def_property_readonly("window", [](const K& self) { return self.kernel.window(); })
      .def_property_readonly("smoothing", [](const K& self) { return self.kernel.smoothing(); })
      .def_property_readonly("interval", [](const K& self) {
        return self.with([](const KeyStats& k) { return k.interval(); });
      });
}

}  // namespace pyroute
