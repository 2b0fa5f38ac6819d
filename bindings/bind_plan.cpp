#include <chrono>

#include "homes.hpp"
#include "plan/plan.hpp"

namespace pyroute {
namespace {

// Keeps alive what the input reads.
struct InputBox {
  py::object snapshot;
  std::shared_ptr<const Router> router;
  PlanInput input;

  InputBox(py::object from, std::shared_ptr<const Router> over, const Keys& pins,
           std::span<const TaskId> pinned_to)
      : snapshot(std::move(from)),
        router(std::move(over)),
        input(snapshot.cast<const Snapshot&>(), router->table(), router->splits(),
              router->split_names(), pins.batch(), pinned_to) {}
};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void bind_plan(py::module_& m) {
  py::class_<Plan>(m, "Plan")
      .def_property_readonly("tasks", column(&Plan::tasks))
      .def_property_readonly("open", column(&Plan::open))
      .def_property_readonly("capacities", column(&Plan::capacities))
      .def_property_readonly("loads_before", column(&Plan::loads_before))
      .def_property_readonly("loads_after", column(&Plan::loads_after))
      .def_property_readonly("estimated_loads", column(&Plan::estimated_loads))
      .def_property_readonly("table_ids", column(&Plan::table_ids))
      .def_property_readonly("table_targets", column(&Plan::table_targets))
      .def("table_values",
           [](const Plan& self) { return names_of(self.table_ids, self.table_names); })
      .def("split_items",
           [](const Plan& self) {
             py::list out;
             std::size_t i = 0;
             for (const Split& split : self.splits)
               out.append(
                   py::make_tuple(to_python(self.split_names.encoded(i++, split.id)), split.tasks));
             return out;
           })
      .def_property_readonly("ids", column(&Plan::ids))
      .def_property_readonly("sources", column(&Plan::sources))
      .def_property_readonly("targets", column(&Plan::targets))
      .def_property_readonly("state_sizes", column(&Plan::state_sizes))
      .def_property_readonly("costs", column(&Plan::costs))
      .def("values", [](const Plan& self) { return names_of(self.ids, self.names); })
      .def("giants",
           [](const Plan& self) {
             py::list out;
             for (const Plan::Alone& giant : self.giants)
               out.append(py::make_tuple(to_python(giant.name), giant.task, giant.cost));
             return out;
           })
      .def_property_readonly("named",
                             [](const Plan& self) {
                               const Kinds& kinds = self.names.kinds();
                               return !kinds.empty() && kinds[0] != Kind::identity;
                             })
      .def_readonly("mean", &Plan::mean)
      .def_readonly("limit", &Plan::limit)
      .def_readonly("lower_bound", &Plan::lower_bound)
      .def_readonly("state_total", &Plan::state_total)
      .def_readonly("least_migration", &Plan::least_migration)
      .def_readonly("pinned_moves", &Plan::pinned_moves)
      .def_readonly("stuck", &Plan::stuck)
      .def_readonly("trials", &Plan::trials)
      .def_readonly("groups", &Plan::groups)
      .def_readonly("table_full", &Plan::table_full)
      .def_readonly("budget_spent", &Plan::budget_spent)
      .def_readonly("group_seconds", &Plan::group_seconds);

  py::class_<InputBox>(m, "PlanInput")
      .def(py::init([](const py::object& snapshot, const RouterBox& router, const Keys& pins,
                       const Array<TaskId>& pinned_to) {
             if (!py::isinstance<Snapshot>(snapshot))
               throw py::type_error("snapshot: expected a Snapshot, got another");
             return std::make_unique<InputBox>(snapshot, router.router, pins, view(pinned_to));
           }),
           "snapshot"_a, "router"_a, "pins"_a, "pinned_to"_a)
      .def_property_readonly("ids",
                             [](const py::object& self) {
                               return readonly(self.cast<const InputBox&>().input.ids(), self);
                             })
      .def_property_readonly("named",
                             [](const InputBox& self) {
                               const Kinds& kinds = self.input.kinds();
                               return self.input.ids().empty() ||
                                      (!kinds.empty() && kinds[0] != Kind::identity);
                             })
      .def("values",
           [](const InputBox& self) {
             py::list out;
             for (std::size_t row = 0; row < self.input.ids().size(); ++row)
               out.append(to_python(self.input.encoded(row)));
             return out;
           })
      .def(
          "plan",
          [](const InputBox& self, const Array<TaskId>& tasks, const Array<TaskId>& before,
             const Array<TaskId>& after, const Array<std::uint8_t>& open,
             const Array<double>& capacities, const std::string& algorithm, double max_imbalance,
             bool two_sided, std::int64_t max_table, double beta, std::int64_t degree,
             std::int64_t max_migration, bool mergeable, std::int64_t search_moves, double sigma) {
            const auto o = view(open);
            const auto c = view(capacities);
            const PlanOptions options{algorithm_named(algorithm),
                                      max_imbalance,
                                      two_sided,
                                      max_table,
                                      beta,
                                      degree,
                                      {c.begin(), c.end()},
                                      {o.begin(), o.end()},
                                      max_migration,
                                      mergeable,
                                      search_moves,
                                      sigma,
                                      check_signals};
            const auto t = view(tasks), b = view(before), a = view(after);
            py::gil_scoped_release nogil;
            return make_plan(self.input, t, b, a, options, seconds);
          },
          "tasks"_a, "before"_a, "after"_a, py::kw_only(), "open"_a, "capacities"_a, "algorithm"_a,
          "max_imbalance"_a, "two_sided"_a, "max_table"_a, "beta"_a, "degree"_a, "max_migration"_a,
          "mergeable"_a, "search_moves"_a, "sigma"_a);
}

}  // namespace pyroute
