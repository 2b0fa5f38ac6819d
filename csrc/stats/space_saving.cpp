#include "stats/space_saving.hpp"

#include <algorithm>
#include <stdexcept>

namespace pyroute {
namespace {

Key pair_id(Key in, Key out) noexcept { return hash_int64(static_cast<std::int64_t>(out), in); }
Key out_of_pair(Key pair, Key in) noexcept { return static_cast<Key>(unhash_int64(pair, in)); }

void check_weights(std::span<const std::int64_t> weights, bool weighted, std::size_t rows,
                   Count total) {
  Count sum = rows;
  if (weighted) {
    if (weights.size() != rows)
      throw std::invalid_argument("weights: expected " + std::to_string(rows) + " of them, got " +
                                  std::to_string(weights.size()));
    sum = 0;
    for (const std::int64_t weight : weights) {
      if (weight < 0)
        throw std::invalid_argument("weights: expected none below 0, got " +
                                    std::to_string(weight));
      if (static_cast<Count>(weight) > kMaxCount - sum) {
        sum = kMaxCount;
        break;
      }
      sum += static_cast<Count>(weight);
    }
  }
  if (sum > kMaxCount - total)
    throw std::invalid_argument("weights: expected a total below 2^63, got more");
}

std::span<const std::int64_t> part(std::span<const std::int64_t> weights, std::size_t begin,
                                   std::size_t count) {
  return weights.empty() ? weights : weights.subspan(begin, count);
}

}  // namespace

void SpaceSaving::observe(const Batch& values, std::span<const std::int64_t> weights,
                          bool weighted) {
  check_weights(weights, weighted, values.size(), counters_.total());
  if (values.size() == 0) return;
  names_.expect(values.kinds(), "values");
  const bool named = !self_naming(names_.kinds());
  std::vector<FilteredCounters::Entered> entered;
  values.for_each_block([&](std::size_t begin, std::span<const Key> ids) {
    counters_.observe(ids, part(weights, begin, ids.size()), entered);
    if (named)
      for (const auto& [slot, row] : entered)
        if (counters_.holds(slot, ids[row])) names_.add(ids[row], values, begin + row);
    entered.clear();
  });
  names_.retain(counters_.size(), [&](auto&& keep) {
    for (const Key id : ids()) keep(id);
  });
}

void SpaceSaving::merge(const SpaceSaving& other) {
  const Kinds kinds = unify(names_.kinds(), other.names_.kinds(), "other");
  counters_.merge(other.counters_);
  names_.expect(kinds, "other");
  names_.add_all(other.names_);
  names_.retain(counters_.size(), [&](auto&& keep) {
    for (const Key id : ids()) keep(id);
  });
}

void SpaceSaving::reset() {
  counters_.reset();
  names_.reset();
}

std::vector<Key> SpaceSaving::ids() const {
  std::vector<Key> out;
  for (const auto& entry : counters_.entries()) out.push_back(entry.id);
  return out;
}

SpaceSaving::Top SpaceSaving::top(std::size_t most) const {
  Top out;
  for (const auto& entry : counters_.entries()) {
    if (out.names.size() >= std::min(most, counters_.capacity())) break;
    out.names.push_back(names_.encoded(entry.id));
    out.counts.push_back(static_cast<std::int64_t>(entry.count));
    out.errors.push_back(static_cast<std::int64_t>(entry.error));
  }
  return out;
}

void SpaceSaving::estimate(const Batch& values, std::span<std::int64_t> out) const {
  values.for_each_block([&](std::size_t begin, std::span<const Key> ids) {
    for (std::size_t i = 0; i < ids.size(); ++i)
      out[begin + i] = static_cast<std::int64_t>(counters_.estimate(ids[i]));
  });
}

bool SpaceSaving::operator==(const SpaceSaving& other) const {
  return kinds() == other.kinds() && counters_ == other.counters_;
}

std::string SpaceSaving::to_bytes() const {
  Writer to(Kernel::space_saving, 1);
  counters_.write(to);
  names_.write(to, ids());
  return std::move(to).finish();
}

SpaceSaving SpaceSaving::from_bytes(std::string_view data) {
  Reader from(data, Kernel::space_saving, 1);
  SpaceSaving out(FilteredCounters::read(from, kSpread));
  out.names_ = Names::read(from, out.ids());
  from.end();
  return out;
}

void PairSpaceSaving::observe(const Batch& in_values, const Batch& out_values,
                              std::span<const std::int64_t> weights, bool weighted) {
  if (in_values.size() != out_values.size())
    throw std::invalid_argument("out_values: expected " + std::to_string(in_values.size()) +
                                " of them, got " + std::to_string(out_values.size()));
  check_weights(weights, weighted, in_values.size(), counters_.total());
  if (in_values.size() == 0) return;
  const Kinds in_kinds = unify(in_names_.kinds(), in_values.kinds(), "in_values");
  out_names_.expect(out_values.kinds(), "out_values");
  in_names_.expect(in_kinds, "in_values");
  std::vector<FilteredCounters::Entered> entered;
  Key outs[kBlock], pairs[kBlock];
  in_values.for_each_block([&](std::size_t begin, std::span<const Key> ins) {
    out_values.ids(begin, ins.size(), outs);
    for (std::size_t i = 0; i < ins.size(); ++i) pairs[i] = pair_id(ins[i], outs[i]);
    counters_.observe({pairs, ins.size()}, part(weights, begin, ins.size()), entered);
    for (const auto& [slot, row] : entered) {
      if (!counters_.holds(slot, pairs[row])) continue;
      ins_[slot] = ins[row];
      in_names_.add(ins[row], in_values, begin + row);
      out_names_.add(outs[row], out_values, begin + row);
    }
    entered.clear();
  });
  drop_unused_names();
}

void PairSpaceSaving::drop_unused_names() {
  in_names_.retain(counters_.size(), [&](auto&& keep) {
    for (const Key id : in_ids()) keep(id);
  });
  out_names_.retain(counters_.size(), [&](auto&& keep) {
    for (const Key id : out_ids()) keep(id);
  });
}

void PairSpaceSaving::merge(const PairSpaceSaving& other) {
  const Kinds in_kinds = unify(in_names_.kinds(), other.in_names_.kinds(), "other");
  const Kinds out_kinds = unify(out_names_.kinds(), other.out_names_.kinds(), "other");
  std::unordered_map<Key, Key> in_of;
  for (const auto& entry : counters_.entries()) in_of.emplace(entry.id, ins_[entry.slot]);
  for (const auto& entry : other.counters_.entries())
    in_of.emplace(entry.id, other.ins_[entry.slot]);
  counters_.merge(other.counters_);
  for (const auto& entry : counters_.entries()) ins_[entry.slot] = in_of.at(entry.id);
  in_names_.expect(in_kinds, "other");
  out_names_.expect(out_kinds, "other");
  in_names_.add_all(other.in_names_);
  out_names_.add_all(other.out_names_);
  drop_unused_names();
}

void PairSpaceSaving::reset() {
  counters_.reset();
  in_names_.reset();
  out_names_.reset();
}

std::vector<Key> PairSpaceSaving::in_ids() const {
  std::vector<Key> out;
  for (const auto& entry : counters_.entries()) out.push_back(ins_[entry.slot]);
  return out;
}

std::vector<Key> PairSpaceSaving::out_ids() const {
  std::vector<Key> out;
  for (const auto& entry : counters_.entries())
    out.push_back(out_of_pair(entry.id, ins_[entry.slot]));
  return out;
}

PairSpaceSaving::Top PairSpaceSaving::top(std::size_t most) const {
  Top out;
  for (const auto& entry : counters_.entries()) {
    if (out.counts.size() >= std::min(most, counters_.capacity())) break;
    const Key in = ins_[entry.slot];
    out.in_names.push_back(in_names_.encoded(in));
    out.out_names.push_back(out_names_.encoded(out_of_pair(entry.id, in)));
    out.counts.push_back(static_cast<std::int64_t>(entry.count));
    out.errors.push_back(static_cast<std::int64_t>(entry.error));
  }
  return out;
}

std::vector<PairSpaceSaving::Pair> PairSpaceSaving::pairs() const {
  std::vector<Pair> out;
  out.reserve(size());
  for (const auto& entry : counters_.entries_unordered(counters_.capacity())) {
    const Key in = ins_[entry.slot];
    out.push_back({in, out_of_pair(entry.id, in), entry.count, entry.error});
  }
  return out;
}

void PairSpaceSaving::estimate(const Batch& in_values, const Batch& out_values,
                               std::span<std::int64_t> out) const {
  Key outs[kBlock];
  in_values.for_each_block([&](std::size_t begin, std::span<const Key> ins) {
    out_values.ids(begin, ins.size(), outs);
    for (std::size_t i = 0; i < ins.size(); ++i)
      out[begin + i] = static_cast<std::int64_t>(counters_.estimate(pair_id(ins[i], outs[i])));
  });
}

bool PairSpaceSaving::operator==(const PairSpaceSaving& other) const {
  return in_names_.kinds() == other.in_names_.kinds() &&
         out_names_.kinds() == other.out_names_.kinds() && counters_ == other.counters_ &&
         in_ids() == other.in_ids();
}

//   counters, the in key of each entry by (count descending, id ascending), names of both sides
std::string PairSpaceSaving::to_bytes() const {
  Writer to(Kernel::pair_space_saving, 1);
  counters_.write(to);
  for (const Key in : in_ids()) to.u64(in);
  in_names_.write(to, in_ids());
  out_names_.write(to, out_ids());
  return std::move(to).finish();
}

PairSpaceSaving PairSpaceSaving::from_bytes(std::string_view data) {
  Reader from(data, Kernel::pair_space_saving, 1);
  PairSpaceSaving out(FilteredCounters::read(from, kSpread));
  for (const auto& entry : out.counters_.entries()) out.ins_[entry.slot] = from.u64();
  out.in_names_ = Names::read(from, out.in_ids());
  out.out_names_ = Names::read(from, out.out_ids());
  from.end();
  return out;
}

}  // namespace pyroute
