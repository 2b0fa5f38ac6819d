#include "homes.hpp"
#include "table/dynamic_grouping.hpp"

namespace pyroute {

void bind_ring(py::module_& m) {
  py::class_<HomeBox>(m, "Home");
  py::class_<RingBox, HomeBox>(m, "Ring")
      .def(py::init([](const Weights& tasks, std::optional<unsigned> bits, unsigned replicas,
                       std::uint64_t salt) {
             py::gil_scoped_release nogil;
             return RingBox(Ring(weighted(tasks), bits, replicas, salt));
           }),
           "tasks"_a, "bits"_a.none(true), "replicas"_a, "salt"_a)
      .def(
          "homes",
          [](const RingBox& self, const Keys& values) {
            auto out = fresh<TaskId>(values.batch().size());
            const auto to = fill(out);
            py::gil_scoped_release nogil;
            values.batch().for_each_block([&](std::size_t begin, std::span<const Key> keys) {
              self.ring().homes(keys, to.data() + begin);
            });
            return out;
          },
          "values"_a, py::pos_only())
      .def(
          "with_tasks",
          [](const RingBox& self, const Weights& tasks) {
            py::gil_scoped_release nogil;
            return RingBox(self.ring().with_tasks(weighted(tasks)));
          },
          "tasks"_a, py::pos_only())
      .def_property_readonly("owners",
                             [](const py::object& self) {
                               return readonly(self.cast<const RingBox&>().ring().owners(), self);
                             })
      .def_property_readonly("weights",
                             [](const RingBox& self) {
                               py::dict out;
                               for (const Weighted& w : self.ring().tasks())
                                 out[py::int_(w.task)] = w.weight;
                               return out;
                             })
      .def_property_readonly("bits", [](const RingBox& self) { return self.ring().bits(); })
      .def_property_readonly("replicas", [](const RingBox& self) { return self.ring().replicas(); })
      .def_property_readonly("salt", [](const RingBox& self) { return self.ring().salt(); })
      .def_property_readonly("fingerprint",
                             [](const RingBox& self) { return self.ring().fingerprint(); })
      .def(
          "equals",
          [](const RingBox& self, const RingBox& other) { return self.ring() == other.ring(); },
          "other"_a, py::pos_only())
      .def("to_bytes", [](const RingBox& self) { return py::bytes(self.ring().to_bytes()); })
      .def_static(
          "from_bytes", [](const py::bytes& data) { return RingBox(Ring::from_bytes(view(data))); },
          "data"_a, py::pos_only());
}

void bind_dynamic_grouping(py::module_& m) {
  using G = DynamicGrouping;
  py::class_<G>(m, "DynamicGrouping")
      .def_static(
          "from_ratio",
          [](const Weights& ratio, unsigned bits) { return G::from_ratio(weighted(ratio), bits); },
          "ratio"_a, "bits"_a)
      .def_static(
          "from_identifiers",
          [](const Array<std::int64_t>& identifiers, const Array<TaskId>& tasks, unsigned bits) {
            return G::from_identifiers(view(identifiers), view(tasks), bits);
          },
          "identifiers"_a, "tasks"_a, "bits"_a)
      .def_static("init_shards", &G::init_shards, "tasks"_a, "shards"_a, "bits"_a)
      .def(
          "reassign",
          [](const G& self, TaskId task, const Weights& to) {
            return self.reassign(task, weighted(to));
          },
          "task"_a, "to"_a)
      .def(
          "with_ratio",
          [](const G& self, const Weights& ratio) { return self.with_ratio(weighted(ratio)); },
          "ratio"_a)
      .def(
          "assign",
          [](const G& self, const Array<std::int64_t>& ids) {
            auto out = fresh<TaskId>(static_cast<std::size_t>(ids.size()));
            const auto to = fill(out);
            const auto from = view(ids);
            py::gil_scoped_release nogil;
            self.assign(from, to.data());
            return out;
          },
          "ids"_a, py::pos_only())
      .def_property_readonly(
          "owners",
          [](const py::object& self) { return readonly(self.cast<const G&>().owners(), self); })
      .def_property_readonly("bits", &G::bits)
      .def_property_readonly("fingerprint", &G::fingerprint)
      .def(
          "equals", [](const G& self, const G& other) { return self == other; }, "other"_a,
          py::pos_only())
      .def("to_bytes", [](const G& self) { return py::bytes(self.to_bytes()); })
      .def_static(
          "from_bytes", [](const py::bytes& data) { return G::from_bytes(view(data)); }, "data"_a,
          py::pos_only());
}

}  // namespace pyroute
