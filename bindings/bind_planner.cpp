#include "arrays.hpp"
#include "plan/bound.hpp"
#include "plan/discretize.hpp"
#include "plan/key_group.hpp"
#include "plan/planner.hpp"

namespace pyroute {
namespace {

// The lengths are the caller's to get right but for these, which would be read out of bounds.
void check(const Problem& p) {
  const std::size_t tasks = p.tasks(), n = p.records();
  if (tasks == 0 || p.base.size() != tasks || p.open.size() != tasks)
    throw py::value_error("capacity: expected one for each of at least one task, got others");
  if (p.cost.size() != n || p.size.size() != n || p.current.size() != n || p.home.size() != n ||
      (!p.count.empty() && p.count.size() != n))
    throw py::value_error("id: expected columns of one length, got others");
  bool open = false;
  for (const std::uint8_t is : p.open) open = open || is != 0;
  if (!open) throw py::value_error("open: expected at least one open task, got none");
  for (std::size_t r = 0; r < n; ++r)
    for (const Position at : {p.current[r], p.home[r]})
      if (at < 0 || index(at) >= tasks)
        throw py::value_error("current, home: expected positions of tasks, got others");
}

struct Columns {
  Array<double> capacity, base;
  Array<std::uint8_t> open;
  Array<Key> id;
  Array<double> cost;
  Array<StateSize> size;
  Array<Position> current, home;
  Array<std::uint32_t> count;
};

Problem problem_of(const Columns& c) {
  Problem p;
  p.capacity = vector_of(c.capacity);
  p.base = vector_of(c.base);
  p.open = vector_of(c.open);
  p.id = vector_of(c.id);
  p.cost = vector_of(c.cost);
  p.size = vector_of(c.size);
  p.current = vector_of(c.current);
  p.home = vector_of(c.home);
  p.count = vector_of(c.count);
  check(p);
  return p;
}

py::dict as_dict(const KeyGroups& groups) {
  return py::dict("current"_a = copied(groups.current), "home"_a = copied(groups.home),
                  "cost_level"_a = copied(groups.cost_level),
                  "size_level"_a = copied(groups.size_level), "cost"_a = copied(groups.cost),
                  "size"_a = copied(groups.size), "count"_a = copied(groups.count),
                  "id"_a = copied(groups.id), "key"_a = copied(groups.key),
                  "key_cost"_a = copied(groups.key_cost));
}

}  // namespace

void bind_planner(py::module_& m) {
  m.def(
      "solve",
      [](const Array<double>& capacity, const Array<double>& base, const Array<std::uint8_t>& open,
         const Array<Key>& id, const Array<double>& cost, const Array<StateSize>& size,
         const Array<Position>& current, const Array<Position>& home,
         const Array<std::uint32_t>& count, double max_imbalance, double beta,
         std::int64_t max_table, std::int64_t max_migration, const std::string& algorithm,
         std::int64_t search_moves, double sigma, bool two_sided) {
        Problem p = problem_of({capacity, base, open, id, cost, size, current, home, count});
        p.max_imbalance = max_imbalance;
        p.two_sided = two_sided;
        p.checkpoint = check_signals;
        p.beta = beta;
        p.max_table = max_table;
        p.max_migration = max_migration;
        Placement placed;
        double bound;
        StateSize least;
        {
          py::gil_scoped_release nogil;
          p.mean = mean_level(p);
          placed = plan(p, algorithm_named(algorithm), search_moves, sigma);
          bound = lower_bound(p);
          least = least_migration(p);
        }
        std::vector<Part> parts;
        for (std::size_t i = 0; i < placed.where.size(); ++i)
          parts.push_back({static_cast<std::uint32_t>(placed.record_of(i)), placed.keys_of(i),
                           placed.where[i]});
        merge_parts(parts);
        std::vector<std::uint32_t> records, counts;
        std::vector<Position> targets;
        for (const Part& part : parts) {
          records.push_back(part.record);
          counts.push_back(part.count);
          targets.push_back(part.target);
        }
        py::list giants;
        for (const Giant& giant : placed.giants)
          giants.append(py::make_tuple(giant.record, giant.task));
        return py::dict("record"_a = copied(records), "count"_a = copied(counts),
                        "target"_a = copied(targets), "load"_a = copied(placed.load),
                        "table_size"_a = keys_away(p, placed),
                        "migration"_a = state_moved(p, placed), "stuck"_a = placed.stuck,
                        "trials"_a = placed.trials, "table_full"_a = placed.table_full,
                        "budget_spent"_a = placed.budget_spent, "giants"_a = giants,
                        "lower_bound"_a = bound, "least_migration"_a = least);
      },
      "capacity"_a, "base"_a, "open"_a, "id"_a, "cost"_a, "size"_a, "current"_a, "home"_a,
      "count"_a, "max_imbalance"_a, "beta"_a, "max_table"_a, "max_migration"_a, "algorithm"_a,
      "search_moves"_a, "sigma"_a, "two_sided"_a = false);
  m.def(
      "discretize",
      [](const Array<double>& values, std::int64_t degree) {
        check_degree(degree);
        auto out = fresh<double>(view(values).size());
        discretize(view(values), degree, fill(out));
        return out;
      },
      "values"_a, "degree"_a, py::pos_only());
  m.def(
      "group",
      [](const Array<double>& capacity, const Array<double>& base, const Array<std::uint8_t>& open,
         const Array<Key>& id, const Array<double>& cost, const Array<StateSize>& size,
         const Array<Position>& current, const Array<Position>& home, double beta,
         std::int64_t degree) {
        check_degree(degree);
        Problem p = problem_of({capacity, base, open, id, cost, size, current, home, {}});
        p.beta = beta;
        return as_dict(group_keys(p, degree));
      },
      "capacity"_a, "base"_a, "open"_a, "id"_a, "cost"_a, "size"_a, "current"_a, "home"_a, "beta"_a,
      "degree"_a);
  m.def(
      "pick",
      [](const py::dict& groups, const Array<std::uint32_t>& record,
         const Array<std::uint32_t>& count, const Array<Position>& target) {
        KeyGroups g;
        g.count = vector_of(groups["count"].cast<Array<std::uint32_t>>());
        g.key = vector_of(groups["key"].cast<Array<std::uint32_t>>());
        g.key_cost = vector_of(groups["key_cost"].cast<Array<double>>());
        g.cost = vector_of(groups["cost"].cast<Array<double>>());
        g.current = vector_of(groups["current"].cast<Array<Position>>());
        g.id.resize(g.count.size());
        std::vector<Part> parts;
        for (std::size_t i = 0; i < view(record).size(); ++i)
          parts.push_back({view(record)[i], view(count)[i], view(target)[i]});
        std::vector<std::uint32_t> keys;
        std::vector<Position> targets;
        for (const auto& [key, to] : pick(g, parts)) {
          keys.push_back(key);
          targets.push_back(to);
        }
        return py::make_tuple(copied(keys), copied(targets));
      },
      "groups"_a, "record"_a, "count"_a, "target"_a, py::pos_only());
}

}  // namespace pyroute
