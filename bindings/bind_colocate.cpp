#include "keys.hpp"
#include "plan/coarsen.hpp"
#include "plan/colocate.hpp"
#include "plan/inside.hpp"
#include "plan/matching.hpp"
#include "plan/pair_graph.hpp"
#include "plan/refine.hpp"

namespace pyroute {
namespace {

using Ints = Array<std::int64_t>;
using Positions = Array<Position>;

void expect(bool right, const char* message) {
  if (!right) throw py::value_error(message);
}

// What would be read out of bounds is checked here; what it means, by the caller.
void check(const LocalityProblem& p) {
  const std::size_t n = p.vertices(), k = p.servers, m = p.operators;
  expect(k > 0 && m > 0 && m <= 64, "servers, operators: expected some, got others");
  expect(p.load.size() == n * m && p.size.size() == n && p.stake.size() == n &&
             p.current.size() == n && p.origin.size() == n &&
             (p.home.empty() || p.home.size() == n) && (p.fixed.empty() || p.fixed.size() == n),
         "load: expected columns of one length, got others");
  expect(p.limit.size() == m * k && p.near.size() == k * k && p.max_table.size() == m &&
             p.penalty.size() == m,
         "limit, near, max_table: expected one for each server or operator, got others");
  expect(p.offsets.size() == n + 1 && p.offsets.front() == 0 &&
             p.offsets.back() == p.neighbour.size() && p.weight.size() == p.neighbour.size() &&
             std::is_sorted(p.offsets.begin(), p.offsets.end()),
         "offsets: expected rows of the edges, got others");
  for (const Vertex u : p.neighbour) expect(u < n, "neighbour: expected vertices, got others");
  for (const auto* column : {&p.current, &p.origin, &p.home})
    for (const Position at : *column)
      expect(at >= 0 && index(at) < k, "current, origin, home: expected servers, got others");
  for (std::size_t s = 0; s < k; ++s)
    for (std::size_t t = 0; t < k; ++t)
      expect(p.near[s * k + t] == p.near[t * k + s] && p.near[s * k + s] == kNear,
             "near: expected a symmetric matrix, got another");
}

std::vector<Position> places(const LocalityProblem& p, const Positions& where) {
  auto out = vector_of(where);
  expect(out.size() == p.vertices(), "where: expected a server for each vertex, got others");
  for (const Position at : out)
    expect(at >= 0 && index(at) < p.servers, "where: expected servers, got others");
  return out;
}

py::dict as_dict(const Arrangement& a) {
  return py::dict("where"_a = copied(a.where), "load"_a = copied(a.load),
                  "tabled"_a = copied(a.tabled), "migration"_a = a.migration, "value"_a = a.value,
                  "stakes"_a = a.stakes);
}

LocalityProblem make_problem(std::size_t servers, std::size_t operators, const Ints& load,
                             const Array<std::uint64_t>& member, const Ints& size,
                             const Ints& stake, const Positions& current, const Positions& origin,
                             const Positions& home, const Array<std::size_t>& offsets,
                             const Array<Vertex>& neighbour, const Ints& weight, const Ints& limit,
                             const Ints& penalty, const Ints& near, const Ints& max_table,
                             StateSize max_migration, const Array<std::uint8_t>& fixed,
                             std::int64_t fee) {
  LocalityProblem p;
  p.servers = servers;
  p.operators = operators;
  p.load = vector_of(load);
  p.member = vector_of(member);
  p.size = vector_of(size);
  p.stake = vector_of(stake);
  p.current = vector_of(current);
  p.origin = vector_of(origin);
  p.home = vector_of(home);
  p.offsets = vector_of(offsets);
  p.neighbour = vector_of(neighbour);
  p.weight = vector_of(weight);
  p.limit = vector_of(limit);
  p.penalty = vector_of(penalty);
  p.near = vector_of(near);
  p.max_table = vector_of(max_table);
  p.max_migration = max_migration;
  p.fee = fee;
  p.fixed = vector_of(fixed);
  p.checkpoint = check_signals;
  check(p);
  return p;
}

void bind_locality(py::module_& m) {
  m.attr("NEAR") = kNear;
  m.attr("PENALTY") = kPenalty;
  m.attr("MAX_TRAFFIC") = kMaxTraffic;
  py::class_<LocalityProblem>(m, "Locality")
      .def(py::init(&make_problem), py::kw_only(), "servers"_a, "operators"_a, "load"_a, "member"_a,
           "size"_a, "stake"_a, "current"_a, "origin"_a, "home"_a, "offsets"_a, "neighbour"_a,
           "weight"_a, "limit"_a, "penalty"_a, "near"_a, "max_table"_a, "max_migration"_a,
           "fixed"_a, "fee"_a = 0)
      .def(
          "arrange",
          [](const LocalityProblem& self, const Positions& where) {
            return as_dict(arrange(self, places(self, where)));
          },
          "where"_a, py::pos_only())
      .def(
          "refine",
          [](const LocalityProblem& self, const Positions& where, bool repair, bool trim,
             bool exchange, int passes) {
            Arrangement one = arrange(self, places(self, where));
            {
              py::gil_scoped_release nogil;
              refine(self, one, {repair, trim, exchange, passes});
            }
            return as_dict(one);
          },
          "where"_a, py::kw_only(), "repair"_a = true, "trim"_a = true, "exchange"_a = true,
          "passes"_a = 16)
      .def(
          "improve",
          [](const LocalityProblem& self, const Positions& where, std::uint64_t seed) {
            Arrangement one = arrange(self, places(self, where));
            {
              py::gil_scoped_release nogil;
              improve(self, one, seed);
            }
            return as_dict(one);
          },
          "where"_a, "seed"_a, py::pos_only())
      .def(
          "partition",
          [](const LocalityProblem& self, std::uint64_t seed) {
            std::vector<Position> where;
            {
              py::gil_scoped_release nogil;
              where = partition(self, seed);
            }
            return copied(where);
          },
          "seed"_a, py::pos_only())
      .def(
          "coarsen",
          [](const LocalityProblem& self, const std::optional<Positions>& where,
             std::uint64_t seed) {
            const auto at = where ? places(self, *where) : std::vector<Position>();
            Coarse coarse = coarsen(self, at, seed);
            return py::make_tuple(std::move(coarse.problem), copied(coarse.cluster));
          },
          "where"_a.none(true), "seed"_a, py::pos_only())
      .def(
          "colocate",
          [](const LocalityProblem& self, const std::vector<Positions>& starts, bool fresh,
             std::uint64_t seed) {
            std::vector<std::vector<Position>> given;
            for (const Positions& start : starts) given.push_back(places(self, start));
            Colocated out;
            {
              py::gil_scoped_release nogil;
              out = colocate(self, given, fresh, seed);
            }
            py::dict made = as_dict(out.arrangement);
            made["rounds"] = out.rounds;
            made["start"] = out.start;
            return made;
          },
          "starts"_a, "fresh"_a, "seed"_a, py::pos_only())
      .def("__len__", &LocalityProblem::vertices);
}

void bind_pair_graph(py::module_& m) {
  py::class_<PairGraph>(m, "PairGraph")
      .def(py::init<std::size_t>(), "operators"_a)
      .def(
          "add",
          [](PairGraph& self, std::size_t in, std::size_t out, const Keys& in_values,
             const Keys& out_values, const Ints& counts, const Ints& errors) {
            const auto c = view(counts), e = view(errors);
            py::gil_scoped_release nogil;
            self.add(in, out, in_values.batch(), out_values.batch(), c, e);
          },
          "in_op"_a, "out_op"_a, "in_values"_a, "out_values"_a, "counts"_a, "errors"_a,
          py::pos_only())
      .def(
          "add_sketch",
          [](PairGraph& self, std::size_t in, std::size_t out,
             const Locked<PairSpaceSaving>& sketch) {
            sketch.with([&](const PairSpaceSaving& pairs) { self.add(in, out, pairs); });
          },
          "in_op"_a, "out_op"_a, "sketch"_a, py::pos_only())
      .def(
          "add_keys",
          [](PairGraph& self, std::size_t op, const Keys& values) {
            py::gil_scoped_release nogil;
            self.add_keys(op, values.batch());
          },
          "op"_a, "values"_a, py::pos_only())
      .def("finish",
           [](PairGraph& self) {
             py::gil_scoped_release nogil;
             self.finish();
           })
      .def_property_readonly("vertices", &PairGraph::vertices)
      .def_property_readonly("pairs", &PairGraph::pairs)
      .def_property_readonly("total", &PairGraph::total)
      .def("begin", &PairGraph::begin, "op"_a, py::pos_only())
      .def(
          "ids",
          [](const py::object& self, std::size_t op) {
            return readonly(std::span<const Key>(self.cast<const PairGraph&>().ids(op)), self);
          },
          "op"_a, py::pos_only())
      .def(
          "values",
          [](const PairGraph& self, std::size_t op, const Array<std::size_t>& rows) {
            py::list out;
            const auto& ids = self.ids(op);
            for (const std::size_t row : view(rows)) {
              expect(row < ids.size(), "rows: expected keys of the operator, got others");
              out.append(to_python(self.names(op).encoded(row, ids[row])));
            }
            return out;
          },
          "op"_a, "rows"_a, py::pos_only())
      .def(
          "named",
          [](const PairGraph& self, std::size_t op) {
            const Kinds& kinds = self.names(op).kinds();
            return kinds.empty() || kinds[0] != Kind::identity;
          },
          "op"_a, py::pos_only())
      .def(
          "shared",
          [](const PairGraph& self, const Positions& label, bool assured) {
            expect(view(label).size() == self.vertices(),
                   "label: expected one for each vertex, got others");
            return copied(self.shared(view(label), assured));
          },
          "label"_a, "assured"_a, py::pos_only())
      .def(
          "nearness",
          [](const PairGraph& self, const Positions& label, const Ints& near, std::size_t labels) {
            expect(view(label).size() == self.vertices() && view(near).size() == labels * labels,
                   "label: expected one for each vertex, got others");
            for (const Position at : view(label))
              expect(at >= 0 && index(at) < labels, "label: expected labels, got others");
            return self.nearness(view(label), view(near), labels);
          },
          "label"_a, "near"_a, "labels"_a, py::pos_only())
      .def_property_readonly("loads",
                             [](const py::object& self) {
                               return readonly(std::span(self.cast<const PairGraph&>().loads()),
                                               self);
                             })
      .def_property_readonly("offsets",
                             [](const py::object& self) {
                               return readonly(std::span(self.cast<const PairGraph&>().offsets()),
                                               self);
                             })
      .def_property_readonly("neighbours",
                             [](const py::object& self) {
                               return readonly(
                                   std::span(self.cast<const PairGraph&>().neighbours()), self);
                             })
      .def_property_readonly("counts",
                             [](const py::object& self) {
                               return readonly(std::span(self.cast<const PairGraph&>().counts()),
                                               self);
                             })
      .def_property_readonly("errors", [](const py::object& self) {
        return readonly(std::span(self.cast<const PairGraph&>().errors()), self);
      });
}

}  // namespace

void bind_colocate(py::module_& m) {
  bind_locality(m);
  bind_pair_graph(m);
  m.def(
      "best_matching",
      [](const Ints& kept, std::size_t n) {
        expect(view(kept).size() == n * n, "kept: expected a square, got another");
        return copied(best_matching(view(kept), n));
      },
      "kept"_a, "n"_a, py::pos_only());
  m.def(
      "place_inside",
      [](const Positions& server, const Array<double>& capacity, const Array<double>& base,
         const Array<Key>& id, const Array<double>& load, const Ints& size, const Positions& placed,
         const Positions& current, const Positions& home, double mean, double max_imbalance,
         std::int64_t max_table, std::int64_t max_migration) {
        InsideProblem p;
        p.server = vector_of(server);
        p.capacity = vector_of(capacity);
        p.base = vector_of(base);
        p.id = vector_of(id);
        p.load = vector_of(load);
        p.size = vector_of(size);
        p.placed = vector_of(placed);
        p.current = vector_of(current);
        p.home = vector_of(home);
        p.mean = mean;
        p.max_imbalance = max_imbalance;
        p.max_table = max_table;
        p.max_migration = max_migration;
        const std::size_t n = p.id.size();
        expect(!p.server.empty() && p.base.size() == p.server.size() &&
                   p.capacity.size() == p.server.size() && p.load.size() == n &&
                   p.size.size() == n && p.placed.size() == n && p.current.size() == n &&
                   p.home.size() == n,
               "id: expected columns of one length, got others");
        for (const Position s : p.server)
          expect(s >= 0 && s < 1 << 24, "server: expected positions, got others");
        for (const Position s : p.placed)
          expect(std::find(p.server.begin(), p.server.end(), s) != p.server.end(),
                 "placed: expected servers with a task, got others");
        for (const auto* column : {&p.current, &p.home})
          for (const Position t : *column)
            expect(t >= 0 && index(t) < p.server.size(),
                   "current, home: expected tasks, got others");
        std::vector<Position> out;
        {
          py::gil_scoped_release nogil;
          out = place_inside(p);
        }
        return copied(out);
      },
      "server"_a, "capacity"_a, "base"_a, "id"_a, "load"_a, "size"_a, "placed"_a, "current"_a,
      "home"_a, "mean"_a, "max_imbalance"_a, "max_table"_a, "max_migration"_a);
}

}  // namespace pyroute
