#include "arrays.hpp"
#include "plan/group_report.hpp"

namespace pyroute {
namespace {

template <class K, class Class>
void bind_value(Class& c) {
  c.def("to_bytes", [](const K& self) { return py::bytes(self.to_bytes()); })
      .def_static(
          "from_bytes", [](const py::bytes& data) { return K::from_bytes(view(data)); }, "data"_a,
          py::pos_only())
      .def(
          "equals", [](const K& self, const K& other) { return self == other; }, "other"_a,
          py::pos_only());
}

}  // namespace

void bind_key_group(py::module_& m) {
  py::class_<GroupReport> report(m, "GroupReport");
  bind_value<GroupReport>(report);
  report
      .def(py::init([](TaskId task, std::int64_t version, std::uint64_t fingerprint,
                       std::int64_t degree, double background, double load, double greatest,
                       const Array<TaskId>& home, const Array<double>& cost,
                       const Array<StateSize>& size, const Array<std::uint32_t>& count,
                       const Array<Key>& id) {
             return GroupReport{task,
                                version,
                                fingerprint,
                                degree,
                                background,
                                load,
                                greatest,
                                vector_of(home),
                                vector_of(cost),
                                vector_of(size),
                                vector_of(count),
                                vector_of(id)};
           }),
           "task"_a, "version"_a, "fingerprint"_a, "degree"_a, "background"_a, "load"_a,
           "greatest"_a, "home"_a, "cost"_a, "size"_a, "count"_a, "id"_a)
      .def_readonly("task", &GroupReport::task)
      .def_readonly("version", &GroupReport::version)
      .def_readonly("fingerprint", &GroupReport::fingerprint)
      .def_readonly("degree", &GroupReport::degree)
      .def_readonly("background", &GroupReport::background)
      .def_readonly("load", &GroupReport::load)
      .def_readonly("greatest", &GroupReport::greatest)
      .def_property_readonly("home", column(&GroupReport::home))
      .def_property_readonly("cost", column(&GroupReport::cost))
      .def_property_readonly("size", column(&GroupReport::size))
      .def_property_readonly("count", column(&GroupReport::count))
      .def_property_readonly("id", column(&GroupReport::id));
  py::class_<GroupOrders> orders(m, "GroupOrders");
  bind_value<GroupOrders>(orders);
  orders
      .def(py::init([](TaskId task, const Array<std::uint32_t>& group,
                       const Array<std::uint32_t>& count, const Array<TaskId>& target) {
             return GroupOrders{task, vector_of(group), vector_of(count), vector_of(target)};
           }),
           "task"_a, "group"_a, "count"_a, "target"_a)
      .def_readonly("task", &GroupOrders::task)
      .def_property_readonly("group", column(&GroupOrders::group))
      .def_property_readonly("count", column(&GroupOrders::count))
      .def_property_readonly("target", column(&GroupOrders::target));
}

}  // namespace pyroute
