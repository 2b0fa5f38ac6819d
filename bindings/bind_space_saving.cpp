#include "keys.hpp"
#include "stats/space_saving.hpp"

namespace pyroute {
namespace {

using Weights = std::optional<Array<std::int64_t>>;

std::span<const std::int64_t> view_or_none(const Weights& weights) {
  return weights ? view(*weights) : std::span<const std::int64_t>();
}

template <class K, class Class>
void bind_common(Class& c) {
  c.def(py::init<std::size_t>(), "capacity"_a)
      .def("__len__",
           [](const Locked<K>& self) { return self.with([](const K& k) { return k.size(); }); })
      .def_property_readonly(
          "capacity", [](const Locked<K>& self) { return self.kernel.counters().capacity(); })
      .def_property_readonly("total",
                             [](const Locked<K>& self) {
                               return self.with([](const K& k) { return k.counters().total(); });
                             })
      .def_property_readonly("floor",
                             [](const Locked<K>& self) {
                               return self.with([](const K& k) { return k.counters().floor(); });
                             })
      .def_property_readonly("nbytes", [](const Locked<K>& self) {
        return self.with([](const K& k) { return k.bytes_used(); });
      });
  bind_sketch<K>(c);
}

}  // namespace

void bind_space_saving(py::module_& m) {
  using S = Locked<SpaceSaving>;
  py::class_<S> one(m, "SpaceSaving");
  bind_common<SpaceSaving>(one);
  one.def(
         "observe",
         [](S& self, const Keys& values, const Weights& weights) {
           const auto w = view_or_none(weights);
           self.with([&](SpaceSaving& k) { k.observe(values.batch(), w, weights.has_value()); });
         },
         "values"_a, "weights"_a.none(true), py::pos_only())
      .def(
          "top",
          [](const S& self, std::size_t most) {
            const auto top = self.with([&](const SpaceSaving& k) { return k.top(most); });
            return py::make_tuple(to_python(top.names), copied<std::int64_t>(top.counts),
                                  copied<std::int64_t>(top.errors));
          },
          "most"_a, py::pos_only())
      .def(
          "estimate",
          [](const S& self, const Keys& values) {
            auto out = fresh<std::int64_t>(values.batch().size());
            const auto to = fill(out);
            self.with([&](const SpaceSaving& k) { k.estimate(values.batch(), to); });
            return out;
          },
          "values"_a, py::pos_only());

  using P = Locked<PairSpaceSaving>;
  py::class_<P> pair(m, "PairSpaceSaving");
  bind_common<PairSpaceSaving>(pair);
  pair.def(
          "observe",
          [](P& self, const Keys& in, const Keys& out, const Weights& weights) {
            const auto w = view_or_none(weights);
            self.with([&](PairSpaceSaving& k) {
              k.observe(in.batch(), out.batch(), w, weights.has_value());
            });
          },
          "in_values"_a, "out_values"_a, "weights"_a.none(true), py::pos_only())
      .def(
          "top",
          [](const P& self, std::size_t most) {
            const auto top = self.with([&](const PairSpaceSaving& k) { return k.top(most); });
            return py::make_tuple(to_python(top.in_names), to_python(top.out_names),
                                  copied<std::int64_t>(top.counts),
                                  copied<std::int64_t>(top.errors));
          },
          "most"_a, py::pos_only())
      .def(
          "estimate",
          [](const P& self, const Keys& in, const Keys& out_values) {
            if (in.batch().size() != out_values.batch().size())
              throw py::value_error("out_values: expected " + std::to_string(in.batch().size()) +
                                    " of them, got " + std::to_string(out_values.batch().size()));
            auto out = fresh<std::int64_t>(in.batch().size());
            const auto to = fill(out);
            self.with(
                [&](const PairSpaceSaving& k) { k.estimate(in.batch(), out_values.batch(), to); });
            return out;
          },
          "in_values"_a, "out_values"_a, py::pos_only());
}

}  // namespace pyroute
