#include "arrays.hpp"
#include "control/gru.hpp"

namespace pyroute {
namespace {

using Window = py::array_t<double, py::array::c_style | py::array::forcecast>;

GruModel make_gru(const py::dict& sizes, std::vector<std::string> names,
                  const std::vector<std::tuple<bool, double, double, double>>& scales,
                  const Array<float>& weights) {
  GruShape s;
  const auto take = [&sizes](const char* name, auto& to) {
    to = sizes[name].cast<std::remove_reference_t<decltype(to)>>();
  };
  take("window", s.window);
  take("machine", s.machine);
  take("workers", s.workers);
  take("features", s.features);
  take("own", s.own);
  take("common", s.common);
  take("layers1", s.layers1);
  take("hidden1", s.hidden1);
  take("width", s.width);
  take("layers2", s.layers2);
  take("hidden2", s.hidden2);
  take("members", s.members);
  take("shared", s.shared);
  take("residual", s.residual);
  take("skip", s.skip);
  take("relative", s.relative);
  take("elastic", s.elastic);
  take("step", s.step);
  take("low", s.low);
  take("high", s.high);
  std::vector<GruScale> made;
  made.reserve(scales.size());
  for (const auto& [log, unit, offset, scale] : scales) made.push_back({log, unit, offset, scale});
  return GruModel(s, std::move(names), std::move(made), vector_of(weights));
}

py::dict sizes_of(const GruModel& model) {
  const GruShape& s = model.shape();
  py::dict out;
  out["window"] = s.window;
  out["machine"] = s.machine;
  out["workers"] = s.workers;
  out["features"] = s.features;
  out["own"] = s.own;
  out["common"] = s.common;
  out["layers1"] = s.layers1;
  out["hidden1"] = s.hidden1;
  out["width"] = s.width;
  out["layers2"] = s.layers2;
  out["hidden2"] = s.hidden2;
  out["members"] = s.members;
  out["shared"] = s.shared;
  out["residual"] = s.residual;
  out["skip"] = s.skip;
  out["relative"] = s.relative;
  out["elastic"] = s.elastic;
  out["step"] = s.step;
  out["low"] = s.low;
  out["high"] = s.high;
  return out;
}

std::size_t workers_of(const GruModel& model, const Window& window) {
  if (window.ndim() != 2 || static_cast<std::size_t>(window.shape(0)) != model.shape().window)
    throw std::invalid_argument("window: expected 2 dimensions and " +
                                std::to_string(model.shape().window) + " rows, got " +
                                std::to_string(window.ndim()) + " and " +
                                std::to_string(window.ndim() > 0 ? window.shape(0) : 0));
  return model.workers_of(static_cast<std::size_t>(window.shape(1)));
}

}  // namespace

void bind_gru(py::module_& m) {
  using G = GruModel;
  py::class_<G>(m, "Gru")
      .def(py::init(&make_gru), "sizes"_a, "names"_a, "scales"_a, "weights"_a)
      .def(
          "predict",
          [](const G& self, const Window& window) {
            const std::size_t count = workers_of(self, window);
            Array<double> out(static_cast<py::ssize_t>(count));
            const double* const from = window.data();
            double* const to = out.mutable_data();
            py::gil_scoped_release nogil;
            self.predict(from, count, to);
            return out;
          },
          "window"_a, py::pos_only())
      .def(
          "outputs",
          [](const G& self, const Window& window) {
            const std::size_t count = workers_of(self, window);
            Array<float> out(static_cast<py::ssize_t>(count));
            const double* const from = window.data();
            float* const to = out.mutable_data();
            py::gil_scoped_release nogil;
            self.outputs(from, count, to);
            return out;
          },
          "window"_a, py::pos_only())
      .def_property_readonly("sizes", &sizes_of)
      .def_property_readonly("names",
                             [](const G& self) {
                               return std::vector<std::string>(self.names().begin(),
                                                               self.names().end());
                             })
      .def_property_readonly("scales",
                             [](const G& self) {
                               std::vector<std::tuple<bool, double, double, double>> out;
                               for (const GruScale& s : self.scales())
                                 out.emplace_back(s.log, s.unit, s.offset, s.scale);
                               return out;
                             })
      .def_property_readonly(
          "weights",
          [](const py::object& self) { return readonly(self.cast<const G&>().weights(), self); })
      .def(
          "equals", [](const G& self, const G& other) { return self == other; }, "other"_a,
          py::pos_only())
      .def("to_bytes", [](const G& self) { return py::bytes(self.to_bytes()); })
      .def_static(
          "from_bytes", [](const py::bytes& data) { return G::from_bytes(view(data)); }, "data"_a,
          py::pos_only());
}

}  // namespace pyroute
