#include "keys.hpp"
#include "stats/cost_sketch.hpp"

namespace pyroute {
namespace {

using C = Locked<CostSketch>;

template <class T>
auto estimator(void (CostSketch::*method)(const Batch&, std::span<T>) const) {
  return [method](const C& self, const Keys& values) {
    auto out = fresh<T>(values.batch().size());
    const auto to = fill(out);
    self.with([&](const CostSketch& k) { (k.*method)(values.batch(), to); });
    return out;
  };
}

}  // namespace

void bind_cost_sketch(py::module_& m) {
  py::class_<C> sketch(m, "CostSketch");
  bind_sketch<CostSketch>(sketch);
  sketch.def(py::init<double, double, std::uint64_t>(), "epsilon"_a, "delta"_a, "seed"_a)
      .def(
          "observe",
          [](C& self, const Keys& values, const Array<double>& times) {
            const auto t = view(times);
            self.with([&](CostSketch& k) { k.observe(values.batch(), t); });
          },
          "values"_a, "times"_a, py::pos_only())
      .def("frequency", estimator(&CostSketch::frequency), "values"_a, py::pos_only())
      .def("time", estimator(&CostSketch::time), "values"_a, py::pos_only())
      .def("mean_time", estimator(&CostSketch::mean_time), "values"_a, py::pos_only())
      .def_property_readonly("rows", [](const C& self) { return self.kernel.rows(); })
      .def_property_readonly("columns", [](const C& self) { return self.kernel.columns(); })
      .def_property_readonly("epsilon", [](const C& self) { return self.kernel.epsilon(); })
      .def_property_readonly("delta", [](const C& self) { return self.kernel.delta(); })
      .def_property_readonly("seed", [](const C& self) { return self.kernel.seed(); })
      .def_property_readonly(
          "total_frequency",
          [](const C& self) {
            return self.with([](const CostSketch& k) { return k.total_frequency(); });
          })
      .def_property_readonly("total_time", [](const C& self) {
        return self.with([](const CostSketch& k) { return k.total_time(); });
      });
}

}  // namespace pyroute
