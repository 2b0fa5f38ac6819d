#include "plan/pair_graph.hpp"

#include <limits>
#include <map>
#include <numeric>
#include <stdexcept>

namespace pyroute {

PairGraph::PairGraph(std::size_t operators) : sides_(operators) {
  if (operators < 2 || operators > 64)
    throw std::invalid_argument("pairs: expected 2 to 64 operators, got " +
                                std::to_string(operators));
}

void PairGraph::Side::grow() {
  const std::size_t size = slots.empty() ? 64 : slots.size() * 2;
  slots.assign(size, 0);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::size_t at = ids[i] & (size - 1);
    while (slots[at] != 0) at = (at + 1) & (size - 1);
    slots[at] = static_cast<std::uint32_t>(i + 1);
  }
}

void PairGraph::Side::expect(Kinds next) {
  // Nulls alone name themselves; beside texts they are stored like them.
  if (!self_naming(next))
    for (const ValueList before(kinds); encoded.size() < ids.size();)
      encoded.push_back(before.encoded(encoded.size(), ids[encoded.size()]));
  kinds = std::move(next);
}

std::pair<std::uint32_t, bool> PairGraph::Side::enter(Key id) {
  if (ids.size() * 2 >= slots.size()) grow();
  const std::size_t mask = slots.size() - 1;
  std::size_t at = id & mask;
  for (; slots[at] != 0; at = (at + 1) & mask)
    if (ids[slots[at] - 1] == id) return {slots[at] - 1, false};
  if (ids.size() >= std::numeric_limits<std::uint32_t>::max() / 2)
    throw std::invalid_argument("pairs: expected less than 2^31 keys, got more");
  ids.push_back(id);
  slots[at] = static_cast<std::uint32_t>(ids.size());
  return {slots[at] - 1, true};
}

void PairGraph::check(std::size_t in, std::size_t out, std::span<const std::int64_t> counts,
                      std::span<const std::int64_t> errors) {
  if (in >= sides_.size() || out >= sides_.size() || in == out)
    throw std::invalid_argument("pairs: expected two operators, got others");
  std::int64_t sum = total_;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 1)
      throw std::invalid_argument("counts: expected at least 1, got " + std::to_string(counts[i]));
    const std::int64_t error = errors.empty() ? 0 : errors[i];
    if (error < 0 || error > counts[i])
      throw std::invalid_argument("errors: expected 0 to the count, got " + std::to_string(error));
    if (counts[i] >= kMaxTraffic - sum)
      throw std::invalid_argument("counts: expected a total below 2^48, got more");
    sum += counts[i];
  }
}

std::uint32_t PairGraph::enter(std::size_t op, Key id, const Batch& batch, std::size_t row) {
  Side& side = sides_[op];
  const auto [at, fresh] = side.enter(id);
  if (fresh && !self_naming(side.kinds)) batch.encode(row, side.encoded.emplace_back());
  return at;
}

void PairGraph::add(std::size_t in, std::size_t out, const Batch& in_values,
                    const Batch& out_values, std::span<const std::int64_t> counts,
                    std::span<const std::int64_t> errors) {
  for (const auto& [name, size] :
       {std::pair{"out_values", out_values.size()}, std::pair{"counts", counts.size()},
        std::pair{"errors", errors.empty() ? in_values.size() : errors.size()}})
    if (size != in_values.size())
      throw std::invalid_argument(std::string(name) + ": expected " +
                                  std::to_string(in_values.size()) + " of them, got " +
                                  std::to_string(size));
  check(in, out, counts, errors);
  if (in_values.size() == 0) return;
  Kinds in_kinds = sides_[in].with(in_values.kinds(), "in_values");
  sides_[out].expect(sides_[out].with(out_values.kinds(), "out_values"));
  sides_[in].expect(std::move(in_kinds));
  edges_.reserve(edges_.size() + counts.size());
  Key outs[kBlock];
  in_values.for_each_block([&](std::size_t begin, std::span<const Key> ins) {
    out_values.ids(begin, ins.size(), outs);
    for (std::size_t i = 0; i < ins.size(); ++i) {
      const std::size_t row = begin + i;
      const std::uint32_t from = enter(in, ins[i], in_values, row);
      const std::uint32_t to = enter(out, outs[i], out_values, row);
      edges_.push_back({from, to, static_cast<std::uint16_t>(in), static_cast<std::uint16_t>(out),
                        counts[row], errors.empty() ? 0 : errors[row]});
      total_ += counts[row];
    }
  });
}

void PairGraph::add(std::size_t in, std::size_t out, const PairSpaceSaving& sketch) {
  const auto pairs = sketch.pairs();
  std::vector<std::int64_t> counts, errors;
  counts.reserve(pairs.size());
  errors.reserve(pairs.size());
  for (const auto& pair : pairs) {
    counts.push_back(static_cast<std::int64_t>(pair.count));
    errors.push_back(static_cast<std::int64_t>(pair.error));
  }
  check(in, out, counts, errors);
  if (pairs.empty()) return;
  Kinds in_kinds = sides_[in].with(sketch.in_names().kinds(), "in_values");
  sides_[out].expect(sides_[out].with(sketch.out_names().kinds(), "out_values"));
  sides_[in].expect(std::move(in_kinds));
  edges_.reserve(edges_.size() + pairs.size());
  const auto enter = [](Side& side, Key id, const Names& names) {
    const auto [at, fresh] = side.enter(id);
    if (fresh && !self_naming(side.kinds)) side.encoded.push_back(names.encoded(id));
    return at;
  };
  for (const auto& pair : pairs) {
    const std::uint32_t from = enter(sides_[in], pair.in, sketch.in_names());
    const std::uint32_t to = enter(sides_[out], pair.out, sketch.out_names());
    edges_.push_back({from, to, static_cast<std::uint16_t>(in), static_cast<std::uint16_t>(out),
                      static_cast<std::int64_t>(pair.count),
                      static_cast<std::int64_t>(pair.error)});
    total_ += static_cast<std::int64_t>(pair.count);
  }
}

void PairGraph::add_keys(std::size_t op, const Batch& values) {
  if (op >= sides_.size()) throw std::invalid_argument("op: expected an operator, got another");
  if (values.size() == 0) return;
  sides_[op].expect(sides_[op].with(values.kinds(), "values"));
  values.for_each_block([&](std::size_t begin, std::span<const Key> ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) enter(op, ids[i], values, begin + i);
  });
}

void PairGraph::finish() {
  // By operator, then by id.
  std::vector<std::vector<Vertex>> number(sides_.size());
  std::size_t vertices = 0;
  for (std::size_t o = 0; o < sides_.size(); ++o) {
    Side& side = sides_[o];
    side.begin = vertices;
    vertices += side.ids.size();
    if (vertices > std::numeric_limits<Vertex>::max() / 2)
      throw std::invalid_argument("pairs: expected less than 2^31 keys, got more");
    std::vector<std::uint32_t> order(side.ids.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(),
              [&](std::uint32_t a, std::uint32_t b) { return side.ids[a] < side.ids[b]; });
    number[o].resize(order.size());
    std::vector<Key> ids(order.size());
    side.names = ValueList(side.kinds);
    for (std::size_t i = 0; i < order.size(); ++i) {
      number[o][order[i]] = static_cast<Vertex>(side.begin + i);
      ids[i] = side.ids[order[i]];
      if (side.names.stored()) side.names.push(side.encoded[order[i]]);
    }
    side.ids = std::move(ids);
    side.encoded = {};
    side.slots = {};
  }

  loads_.assign(vertices, 0);
  std::map<std::pair<std::uint16_t, std::uint16_t>, std::vector<std::int64_t>> passed;
  offsets_.assign(vertices + 1, 0);
  for (const Edge& edge : edges_) {
    const Vertex from = number[edge.in_side][edge.in], to = number[edge.out_side][edge.out];
    ++offsets_[from + 1];
    ++offsets_[to + 1];
    loads_[to] += edge.count;
    auto& sums = passed[{edge.in_side, edge.out_side}];
    if (sums.empty()) sums.resize(sides_[edge.in_side].ids.size());
    sums[from - sides_[edge.in_side].begin] += edge.count;
  }
  for (const auto& [relation, sums] : passed)
    for (std::size_t i = 0; i < sums.size(); ++i) {
      std::int64_t& load = loads_[sides_[relation.first].begin + i];
      load = std::max(load, sums[i]);
    }
  std::partial_sum(offsets_.begin(), offsets_.end(), offsets_.begin());
  std::vector<std::size_t> at(offsets_.begin(), offsets_.end() - 1);
  neighbour_.resize(offsets_.back());
  counts_.resize(offsets_.back());
  errors_.resize(offsets_.back());
  for (const Edge& edge : edges_) {
    const Vertex from = number[edge.in_side][edge.in], to = number[edge.out_side][edge.out];
    for (const auto& [v, u] : {std::pair{from, to}, std::pair{to, from}}) {
      neighbour_[at[v]] = u;
      counts_[at[v]] = edge.count;
      errors_[at[v]++] = edge.error;
    }
  }
  edges_ = {};

  // Pairs that came twice.
  std::vector<std::size_t> seen(vertices, static_cast<std::size_t>(-1));
  std::size_t to = 0;
  for (std::size_t v = 0, begin = 0; v < vertices; ++v) {
    const std::size_t end = offsets_[v + 1], first = to;
    for (std::size_t e = begin; e < end; ++e) {
      const Vertex u = neighbour_[e];
      if (seen[u] != static_cast<std::size_t>(-1) && seen[u] >= first) {
        counts_[seen[u]] += counts_[e];
        errors_[seen[u]] += errors_[e];
        continue;
      }
      seen[u] = to;
      neighbour_[to] = u;
      counts_[to] = counts_[e];
      errors_[to++] = errors_[e];
    }
    begin = end;
    offsets_[v + 1] = to;
  }
  neighbour_.resize(to);
  counts_.resize(to);
  errors_.resize(to);
}

std::vector<std::int64_t> PairGraph::shared(std::span<const Position> label, bool assured) const {
  std::vector<std::int64_t> out(operators() * operators());
  for (std::size_t o = 0; o < operators(); ++o)
    for (std::size_t v = begin(o); v < begin(o) + ids(o).size(); ++v) {
      if (label[v] < 0) continue;
      std::size_t other = o;
      for (std::size_t e = offsets_[v]; e < offsets_[v + 1]; ++e) {
        const Vertex u = neighbour_[e];
        if (u < v || label[u] != label[v]) continue;
        while (u < begin(other) || u >= begin(other) + ids(other).size())
          other = other + 1 == operators() ? o + 1 : other + 1;
        out[o * operators() + other] += counts_[e] - (assured ? errors_[e] : 0);
      }
    }
  return out;
}

std::int64_t PairGraph::nearness(std::span<const Position> label,
                                 std::span<const std::int64_t> near, std::size_t labels) const {
  std::int64_t out = 0;
  for (std::size_t v = 0; v < vertices(); ++v)
    for (std::size_t e = offsets_[v]; e < offsets_[v + 1]; ++e)
      if (neighbour_[e] > v)
        out += counts_[e] * near[index(label[v]) * labels + index(label[neighbour_[e]])];
  return out;
}

}  // namespace pyroute
