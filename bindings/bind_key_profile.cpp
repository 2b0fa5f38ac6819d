#include "keys.hpp"
#include "stats/key_profile.hpp"

namespace pyroute {
namespace {

using Numbers = std::optional<Array<double>>;
using Counts = std::optional<Array<std::int64_t>>;

template <class T>
std::span<const T> view_or_none(const std::optional<Array<T>>& array) {
  return array ? view(*array) : std::span<const T>();
}

}  // namespace

void bind_key_profile(py::module_& m) {
  using K = Locked<KeyProfile>;
  py::class_<K>(m, "KeyProfile")
      .def(py::init<std::size_t, unsigned>(), "capacity"_a, "bits"_a)
      .def(
          "observe",
          [](K& self, const Keys& values, const Counts& counts, const Numbers& costs,
             const Numbers& states) {
            const KeyProfile::Input input{view_or_none<std::int64_t>(counts),
                                          view_or_none<double>(costs), view_or_none<double>(states),
                                          costs.has_value(), states.has_value()};
            self.with([&](KeyProfile& k) { k.observe(values.batch(), input); });
          },
          "values"_a, "counts"_a.none(true), "costs"_a.none(true), "state_sizes"_a.none(true),
          py::pos_only())
      .def("merge", &K::merge, "other"_a, py::pos_only())
      .def("restart", [](K& self) { self.with([](KeyProfile& k) { k.restart(); }); })
      .def(
          "hot",
          [](const K& self, std::size_t most) {
            const auto hot = self.with([&](const KeyProfile& k) { return k.hot(most); });
            return py::make_tuple(
                to_python(hot.names), copied<Key>(hot.ids), copied<std::int64_t>(hot.records),
                copied<std::int64_t>(hot.record_errors), copied<double>(hot.costs),
                copied<double>(hot.cost_errors), copied<double>(hot.states));
          },
          "most"_a, py::pos_only())
      .def(
          "rest",
          [](const K& self, bool cost) {
            return copied<double>(self.with([&](const KeyProfile& k) { return k.rest(cost); }));
          },
          "cost"_a, py::pos_only())
      .def(
          "find",
          [](const K& self, const Keys& values) {
            auto out = fresh<std::uint8_t>(values.batch().size());
            const auto to = fill(out);
            self.with([&](const KeyProfile& k) { k.find(values.batch(), to); });
            return out;
          },
          "values"_a, py::pos_only())
      .def("__len__", [](const K& self) { return self.kernel.size(); })
      .def_property_readonly("records", [](const K& self) { return self.kernel.records(); })
      .def_property_readonly("cost", [](const K& self) { return self.kernel.cost(); })
      .def_property_readonly("costed", [](const K& self) { return self.kernel.costed(); })
      .def_property_readonly("distinct", [](const K& self) { return self.kernel.distinct(); })
      .def_property_readonly("exact", [](const K& self) { return self.kernel.exact(); })
      .def_property_readonly("capacity", [](const K& self) { return self.kernel.capacity(); })
      .def_property_readonly("bits", [](const K& self) { return self.kernel.bits(); })
      .def_property_readonly("nbytes", [](const K& self) { return self.kernel.bytes_used(); });
}

}  // namespace pyroute
