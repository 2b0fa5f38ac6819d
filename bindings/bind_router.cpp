#include "homes.hpp"

namespace pyroute {
namespace {

constexpr const char* kCapsule = "pyroute.router";

py::object home_object(const std::shared_ptr<const Home>& home) {
  if (std::holds_alternative<Ring>(*home)) return py::cast(RingBox(home));
  return py::cast(EngineBox(home));
}

}  // namespace

void bind_homes(py::module_& m) {
  py::class_<EngineBox, HomeBox>(m, "EngineHome")
      .def(py::init([](int engine, std::int64_t tasks, const std::vector<std::string>& types,
                       std::int64_t max_parallelism) {
             return EngineBox(
                 EngineHome(static_cast<Engine>(engine), tasks, types, max_parallelism));
           }),
           "engine"_a, "tasks"_a, "types"_a, "max_parallelism"_a)
      .def(
          "homes",
          [](const EngineBox& self, const Keys& values) {
            const Batch& batch = values.batch();
            auto out = fresh<TaskId>(batch.size());
            const auto to = fill(out);
            py::gil_scoped_release nogil;
            self.engine().expect(batch);
            self.engine().homes(batch, 0, batch.size(), to.data());
            return out;
          },
          "values"_a, py::pos_only())
      .def_property_readonly(
          "engine", [](const EngineBox& self) { return static_cast<int>(self.engine().engine()); })
      .def_property_readonly("tasks", [](const EngineBox& self) { return self.engine().tasks(); })
      .def_property_readonly("types", [](const EngineBox& self) { return self.engine().types(); })
      .def_property_readonly("max_parallelism",
                             [](const EngineBox& self) { return self.engine().max_parallelism(); })
      .def_property_readonly("fingerprint",
                             [](const EngineBox& self) { return self.engine().fingerprint(); })
      .def(
          "equals",
          [](const EngineBox& self, const EngineBox& other) {
            return self.engine() == other.engine();
          },
          "other"_a, py::pos_only())
      .def("to_bytes", [](const EngineBox& self) { return py::bytes(self.engine().to_bytes()); })
      .def_static(
          "from_bytes",
          [](const py::bytes& data) { return EngineBox(EngineHome::from_bytes(view(data))); },
          "data"_a, py::pos_only());
}

void bind_router(py::module_& m) {
  py::class_<RouterBox>(m, "Router")
      .def(py::init([](const HomeBox& home, const Keys& values, const Array<TaskId>& targets,
                       const Keys& split_values, const std::vector<std::vector<TaskId>>& splits,
                       std::int64_t version) {
             const auto to = view(targets);
             if (to.size() != values.batch().size())
               throw py::value_error("table: expected " + std::to_string(values.batch().size()) +
                                     " tasks, got " + std::to_string(to.size()));
             py::gil_scoped_release nogil;
             return RouterBox{std::make_shared<const Router>(
                 home.home, values.batch(), to, split_values.batch(), splits, version)};
           }),
           "home"_a, "values"_a, "targets"_a, "split_values"_a, "splits"_a, "version"_a)
      .def(
          "route",
          [](const RouterBox& self, const Keys& values,
             const std::optional<Array<std::int64_t>>& salt) {
            auto out = fresh<TaskId>(values.batch().size());
            const auto to = fill(out);
            const auto salts = salt ? view(*salt) : std::span<const std::int64_t>();
            py::gil_scoped_release nogil;
            self.router->route(values.batch(), salts, salt.has_value(), to);
            return out;
          },
          "values"_a, "salt"_a.none(true), py::pos_only())
      .def("capsule",
           [](const RouterBox& self) {
             return py::capsule(new std::shared_ptr<const Router>(self.router), kCapsule,
                                [](PyObject* capsule) {
                                  delete static_cast<std::shared_ptr<const Router>*>(
                                      PyCapsule_GetPointer(capsule, kCapsule));
                                });
           })
      .def_property_readonly("one_record",
                             [](const RouterBox& self) { return self.router->one_record(); })
      .def_property_readonly("home",
                             [](const RouterBox& self) { return home_object(self.router->home()); })
      .def("table_values",
           [](const RouterBox& self) {
             return names_of(self.router->table().ids(), self.router->table().names());
           })
      .def_property_readonly("table_ids",
                             [](const py::object& self) {
                               return readonly(self.cast<const RouterBox&>().router->table().ids(),
                                               self);
                             })
      .def_property_readonly("table_targets",
                             [](const py::object& self) {
                               return readonly(
                                   self.cast<const RouterBox&>().router->table().targets(), self);
                             })
      .def("split_items",
           [](const RouterBox& self) {
             py::list out;
             std::size_t i = 0;
             for (const Split& split : self.router->splits())
               out.append(py::make_tuple(
                   to_python(self.router->split_names().encoded(i++, split.id)), split.tasks));
             return out;
           })
      .def_property_readonly("tasks", [](const RouterBox& self) { return self.router->tasks(); })
      .def_property_readonly("version",
                             [](const RouterBox& self) { return self.router->version(); })
      .def_property_readonly("fingerprint",
                             [](const RouterBox& self) { return self.router->fingerprint(); })
      .def_property_readonly("nbytes",
                             [](const RouterBox& self) { return self.router->bytes_used(); })
      .def_property_readonly("named",
                             [](const RouterBox& self) {
                               const auto named = [](std::size_t size, const Kinds& kinds) {
                                 return size == 0 || (!kinds.empty() && kinds[0] != Kind::identity);
                               };
                               const Router& r = *self.router;
                               return named(r.table().size(), r.table().names().kinds()) &&
                                      named(r.splits().size(), r.split_names().kinds());
                             })
      .def(
          "equals",
          [](const RouterBox& self, const RouterBox& other) {
            return *self.router == *other.router;
          },
          "other"_a, py::pos_only())
      .def(
          "to_bytes",
          [](const RouterBox& self, bool values) {
            return py::bytes(self.router->to_bytes(values));
          },
          "values"_a)
      .def_static(
          "from_bytes",
          [](const py::bytes& data) {
            const std::string_view bytes = view(data);
            py::gil_scoped_release nogil;
            return RouterBox{std::make_shared<const Router>(Router::from_bytes(bytes))};
          },
          "data"_a, py::pos_only());
}

}  // namespace pyroute
