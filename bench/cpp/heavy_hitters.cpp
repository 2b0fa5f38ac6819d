// How fast is SpaceSaving beside the frequent_items_sketch of Apache DataSketches, on equal streams?
//
// heavy_hitters [updates] [repetitions] [seed] [capacities] [exponents] [universes] [fit]
//
// Lists are comma-separated. Streams are Zipf over `universe` 64-bit keys; each exponent and universe
// is one stream, made before the clock starts. Every repetition runs each contender once, on a new
// sketch, so that all of them meet the same noise; hashing is part of every contender's time.
// `fit` chooses the map of the peer, whose size is 0.75 * 2^n counters: "above" for the least one that
// holds the capacity (the default), "nearest" for the one nearest in ratio. It is allocated at full
// size, so the peer never pays for growing.
//
// Contenders: datasketches; counters (FilteredCounters on hashed blocks); space_saving (the class
// behind pyroute.SpaceSaving, which keeps the names); plain (SpaceSaving without a filter, here for its
// recall); blind (hash, then count++ in a table without keys: what the memory allows).
//
// Output: one header and one line per stream, capacity and contender, separated by tabs:
//   contender, exponent, universe, capacity, counters (how many it may keep), ns per update (CPU time,
//   one figure per repetition, separated by commas), recall of the true top capacity / 10 (keys that
//   tie with the last one count), broken (keys among the reported whose true count is not within the
//   stated bounds), bytes.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "column.hpp"
#include "frequent_items_sketch.hpp"
#include "hash.hpp"
#include "simd.hpp"
#include "stats/space_saving.hpp"

namespace {

using pyroute::Key;

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::uint64_t scatter(std::uint64_t rank) {  // the 64-bit key of a rank (splitmix64, one to one)
  std::uint64_t x = (rank + 1) * 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

struct Stream {
  std::vector<std::uint64_t> keys;
  std::vector<std::uint32_t> counts;                     // per rank
  std::unordered_map<std::uint64_t, std::uint32_t> ranks;  // of the keys that occur

  Stream(std::size_t updates, std::size_t universe, double exponent, std::uint64_t seed)
      : keys(updates), counts(universe) {
    std::vector<double> cdf(universe);
    double sum = 0;
    for (std::size_t rank = 0; rank < universe; ++rank)
      cdf[rank] = sum += std::pow(static_cast<double>(rank + 1), -exponent);
    std::mt19937_64 random(seed);
    for (std::uint64_t& key : keys) {
      const double at = static_cast<double>(random() >> 11) * 0x1p-53 * sum;
      const auto found = std::upper_bound(cdf.begin(), cdf.end(), at) - cdf.begin();
      const std::size_t rank = std::min(static_cast<std::size_t>(found), universe - 1);
      ++counts[rank];
      key = scatter(rank);
    }
    for (std::size_t rank = 0; rank < universe; ++rank)
      if (counts[rank] > 0) ranks.emplace(scatter(rank), static_cast<std::uint32_t>(rank));
  }
  std::uint64_t count(std::uint64_t key) const {
    const auto at = ranks.find(key);
    return at == ranks.end() ? 0 : counts[at->second];
  }
};

struct Reported {
  std::uint64_t key, least, most;  // bounds of its true count
  std::uint64_t estimate;
};

struct Outcome {
  std::vector<Reported> top;  // by estimate, descending
  std::size_t bytes = 0;
  std::size_t counters = 0;
};

// Plain SpaceSaving, the form of the paper: the key with the least count gives way. Keys with the least
// count are found by a sweep over the counters that starts again when the least count rises, which
// it does at most N / capacity times: O(1) amortised.
class Plain {
 public:
  explicit Plain(std::size_t capacity)
      : mask_(std::bit_ceil(capacity * 2) - 1), slots_(mask_ + 1, kNone), keys_(capacity),
        counts_(capacity), errors_(capacity) {}

  void update(std::uint64_t key) {
    std::size_t at = home(key);
    for (; slots_[at] != kNone; at = (at + 1) & mask_)
      if (keys_[slots_[at]] == key) {
        ++counts_[slots_[at]];
        return;
      }
    std::uint32_t entry;
    if (size_ < keys_.size()) {
      entry = static_cast<std::uint32_t>(size_++);
    } else {
      entry = victim();
      errors_[entry] = counts_[entry];
      erase(keys_[entry]);
      for (at = home(key); slots_[at] != kNone;) at = (at + 1) & mask_;
    }
    keys_[entry] = key;
    ++counts_[entry];
    slots_[at] = entry;
  }

  Outcome outcome() const {
    Outcome out;
    for (std::size_t i = 0; i < size_; ++i)
      out.top.push_back({keys_[i], counts_[i] - errors_[i], counts_[i], counts_[i]});
    out.bytes = slots_.size() * 4 + keys_.size() * 24;
    out.counters = keys_.size();
    return out;
  }

 private:
  static constexpr std::uint32_t kNone = ~0u;
  std::size_t home(std::uint64_t key) const {
    return static_cast<std::size_t>(pyroute::hash_int64(static_cast<std::int64_t>(key))) & mask_;
  }
  std::uint32_t victim() {
    for (;; ++sweep_) {
      if (sweep_ == size_) {
        least_ = *std::min_element(counts_.begin(), counts_.end());
        sweep_ = 0;
      }
      if (counts_[sweep_] == least_) return static_cast<std::uint32_t>(sweep_);
    }
  }
  void erase(std::uint64_t key) {
    std::size_t at = home(key);
    while (keys_[slots_[at]] != key) at = (at + 1) & mask_;
    for (std::size_t next = (at + 1) & mask_; slots_[next] != kNone; next = (next + 1) & mask_) {
      if (((next - home(keys_[slots_[next]])) & mask_) < ((next - at) & mask_)) continue;
      slots_[at] = slots_[next];
      at = next;
    }
    slots_[at] = kNone;
  }

  std::size_t mask_;
  std::vector<std::uint32_t> slots_;
  std::vector<std::uint64_t> keys_, counts_, errors_;
  std::size_t size_ = 0, sweep_ = 0;
  std::uint64_t least_ = 1;
};

// Makes a sketch, runs the stream through it and returns the CPU time; `out` where it is wanted.
using Contender = std::function<double(const Stream&, std::size_t capacity, Outcome* out)>;

std::uint8_t map_bits(std::size_t capacity, bool above) {
  const double exact = std::log2(static_cast<double>(capacity) / 0.75);
  return static_cast<std::uint8_t>(above ? std::ceil(exact) : std::round(exact));
}

double run_datasketches(const Stream& stream, std::size_t capacity, bool above, Outcome* out) {
  const std::uint8_t bits = map_bits(capacity, above);
  datasketches::frequent_items_sketch<std::uint64_t> sketch(bits, bits);
  const double start = cpu_seconds();
  for (const std::uint64_t key : stream.keys) sketch.update(key);
  const double seconds = cpu_seconds() - start;
  if (out != nullptr) {
    const auto rows =
        sketch.get_frequent_items(datasketches::frequent_items_error_type::NO_FALSE_NEGATIVES, 0);
    for (const auto& row : rows)
      out->top.push_back(
          {row.get_item(), row.get_lower_bound(), row.get_upper_bound(), row.get_estimate()});
    out->counters = (std::size_t{3} << bits) / 4;
    out->bytes = (std::size_t{1} << bits) * (8 + 8 + 2);
  }
  return seconds;
}

double run_counters(const Stream& stream, std::size_t capacity, Outcome* out) {
  pyroute::FilteredCounters counters(capacity, pyroute::SpaceSaving::kSpread);
  std::vector<pyroute::FilteredCounters::Entered> entered;
  const double start = cpu_seconds();
  Key ids[pyroute::kBlock];
  const auto* values = reinterpret_cast<const std::int64_t*>(stream.keys.data());
  for (std::size_t begin = 0; begin < stream.keys.size(); begin += pyroute::kBlock) {
    const std::size_t count = std::min(pyroute::kBlock, stream.keys.size() - begin);
    pyroute::hash_int64s(values + begin, count, ids);
    counters.observe({ids, count}, {}, entered);
    entered.clear();
  }
  const double seconds = cpu_seconds() - start;
  if (out != nullptr) {
    for (const auto& entry : counters.entries())
      out->top.push_back({static_cast<std::uint64_t>(pyroute::unhash_int64(entry.id)),
                          entry.count - entry.error, entry.count, entry.count});
    out->counters = capacity;
    out->bytes = counters.bytes_used();
  }
  return seconds;
}

double run_space_saving(const Stream& stream, std::size_t capacity, Outcome* out) {
  pyroute::SpaceSaving sketch(capacity);
  const double start = cpu_seconds();
  pyroute::Column column;
  column.kind = pyroute::Kind::integer;
  column.layout = pyroute::Layout::i64;
  column.size = stream.keys.size();
  column.data = stream.keys.data();
  const pyroute::Batch batch(std::vector<std::vector<pyroute::Column>>{{column}});
  sketch.observe(batch, {}, false);
  const double seconds = cpu_seconds() - start;
  if (out != nullptr) {
    const auto top = sketch.top(capacity);
    std::vector<pyroute::Value> values;
    for (std::size_t i = 0; i < top.names.size(); ++i) {
      values.clear();
      if (!pyroute::decode_values(top.names[i], values)) std::abort();
      const auto count = static_cast<std::uint64_t>(top.counts[i]);
      out->top.push_back({static_cast<std::uint64_t>(values[0].number),
                          count - static_cast<std::uint64_t>(top.errors[i]), count, count});
    }
    out->counters = capacity;
    out->bytes = sketch.bytes_used();
  }
  return seconds;
}

double run_plain(const Stream& stream, std::size_t capacity, Outcome* out) {
  Plain sketch(capacity);
  const double start = cpu_seconds();
  for (const std::uint64_t key : stream.keys) sketch.update(key);
  const double seconds = cpu_seconds() - start;
  if (out != nullptr) *out = sketch.outcome();
  return seconds;
}

double run_blind(const Stream& stream, std::size_t capacity, Outcome* out) {
  std::vector<std::uint64_t> counts(std::bit_ceil(capacity));
  const std::size_t mask = counts.size() - 1;
  const double start = cpu_seconds();
  Key ids[pyroute::kBlock];
  const auto* values = reinterpret_cast<const std::int64_t*>(stream.keys.data());
  for (std::size_t begin = 0; begin < stream.keys.size(); begin += pyroute::kBlock) {
    const std::size_t count = std::min(pyroute::kBlock, stream.keys.size() - begin);
    pyroute::hash_int64s(values + begin, count, ids);
    for (std::size_t i = 0; i < count; ++i) ++counts[static_cast<std::size_t>(ids[i]) & mask];
  }
  const double seconds = cpu_seconds() - start;
  if (out != nullptr) {
    out->counters = counts.size();
    out->bytes = counts.size() * 8;
  }
  return seconds;
}

double recall(const Stream& stream, const Outcome& outcome, std::size_t capacity) {
  std::vector<std::uint32_t> counts;
  for (const std::uint32_t count : stream.counts)
    if (count > 0) counts.push_back(count);
  const std::size_t want = std::min(capacity / 10, counts.size());
  std::nth_element(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(want - 1),
                   counts.end(), std::greater<>());
  const std::uint32_t border = counts[want - 1];
  std::size_t found = 0;
  for (std::size_t i = 0; i < std::min(want, outcome.top.size()); ++i)
    found += stream.count(outcome.top[i].key) >= border;
  return static_cast<double>(found) / static_cast<double>(want);
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> out;
  std::stringstream from(list);
  for (std::string part; std::getline(from, part, ',');) out.push_back(part);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, const char* otherwise) {
    return std::string(argc > i ? argv[i] : otherwise);
  };
  const auto updates = static_cast<std::size_t>(std::stod(argument(1, "1e7")));
  const int repetitions = std::stoi(argument(2, "5"));
  const auto seed = std::stoull(argument(3, "1"));
  const auto capacities = split(argument(4, "1e3,1e4,1e5,1e6"));
  const auto exponents = split(argument(5, "0.8,1.0"));
  const auto universes = split(argument(6, "1e6,1e7"));
  const bool above = argument(7, "above") == "above";
  pyroute::choose_simd(std::getenv("PYROUTE_SIMD") ? std::getenv("PYROUTE_SIMD") : "");

  const std::vector<std::pair<const char*, Contender>> contenders = {
      {"datasketches",
       [&](const Stream& stream, std::size_t capacity, Outcome* out) {
         return run_datasketches(stream, capacity, above, out);
       }},
      {"counters", run_counters},
      {"space_saving", run_space_saving},
      {"plain", run_plain},
      {"blind", run_blind}};

  std::printf("contender\texponent\tuniverse\tcapacity\tcounters\tns\trecall\tbroken\tbytes\n");
  for (const std::string& universe : universes)
    for (const std::string& exponent : exponents) {
      const Stream stream(updates, static_cast<std::size_t>(std::stod(universe)),
                          std::stod(exponent), seed);
      for (const std::string& text : capacities) {
        const auto capacity = static_cast<std::size_t>(std::stod(text));
        std::vector<std::vector<double>> seconds(contenders.size());
        std::vector<Outcome> outcomes(contenders.size());
        for (int repetition = 0; repetition < repetitions; ++repetition)
          for (std::size_t i = 0; i < contenders.size(); ++i)
            seconds[i].push_back(contenders[i].second(stream, capacity,
                                                      repetition == 0 ? &outcomes[i] : nullptr));
        for (std::size_t i = 0; i < contenders.size(); ++i) {
          Outcome& outcome = outcomes[i];
          std::stable_sort(outcome.top.begin(), outcome.top.end(),
                           [](const Reported& a, const Reported& b) { return a.estimate > b.estimate; });
          std::size_t broken = 0;
          for (const Reported& row : outcome.top) {
            const std::uint64_t truth = stream.count(row.key);
            broken += truth < row.least || truth > row.most;
          }
          std::string times;
          for (const double second : seconds[i]) {
            char text[32];
            std::snprintf(text, sizeof text, "%s%.3f", times.empty() ? "" : ",",
                          second * 1e9 / static_cast<double>(updates));
            times += text;
          }
          std::printf("%s\t%s\t%s\t%zu\t%zu\t%s\t%.4f\t%zu\t%zu\n", contenders[i].first,
                      exponent.c_str(), universe.c_str(), capacity, outcome.counters, times.c_str(),
                      recall(stream, outcome, capacity), broken, outcome.bytes);
          std::fflush(stdout);
        }
      }
    }
}
