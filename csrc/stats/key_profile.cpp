#include "stats/key_profile.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "branchless.hpp"
#include "simd.hpp"

namespace pyroute {
namespace {

constexpr std::size_t kSample = 16;                           // one block of so many is scouted
constexpr std::uint64_t kFirstLook = std::uint64_t{1} << 12;  // records before the first refresh
constexpr std::uint64_t kLook = std::uint64_t{1} << 21;       // at most so many between two
constexpr double kLead = 1.25;  // how much heavier a key has to be to take the place of another
constexpr std::size_t kScoutSpread = 250;
constexpr double kScoutUnits = 4096;             // weight of a record of the first cost
constexpr double kMostWeight = 1099511627776.0;  // 2^40
constexpr Count kMuch = Count{1} << 61;          // total at which the scout halves its counts

void expect(bool ok, const std::string& text) {
  if (!ok) throw std::invalid_argument(text);
}

std::string count_text(const char* name, std::size_t expected, std::size_t got) {
  return std::string(name) + ": expected " + std::to_string(expected) + " of them, got " +
         std::to_string(got);
}

void check_numbers(const char* name, std::span<const double> numbers) {
  std::size_t wrong = 0;
  for (const double x : numbers) wrong += !(x >= 0 && x <= 1e300);
  if (wrong == 0) return;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (!(numbers[i] >= 0 && numbers[i] <= 1e300))
      throw std::invalid_argument(std::string(name) + ": expected finite numbers from 0, got " +
                                  std::to_string(numbers[i]) + " in row " + std::to_string(i));
}

// The least row after `row` at which the table is looked at: eight times while rows double.
std::uint64_t next_look(std::uint64_t row) noexcept {
  if (row < kFirstLook) return kFirstLook;
  const std::uint64_t step = std::min(std::bit_floor(row) / 8, kLook);
  return (row / step + 1) * step;
}

constexpr std::size_t register_of(Key id) noexcept {
  return id & ((std::size_t{1} << KeyProfile::kRegisterBits) - 1);
}

std::uint8_t rank_of(Key id) noexcept {
  constexpr unsigned bits = KeyProfile::kRegisterBits;
  return static_cast<std::uint8_t>(1 + std::countr_zero(id >> bits | Key{1} << (63 - bits)));
}

// place becomes `there` where the table has the id at that slot; never a branch, which would be
// mispredicted for every other key.
[[gnu::always_inline]] inline void take_if(const Key& at, Key id, std::uint64_t there,
                                           std::uint64_t& place) noexcept {
#if defined(__x86_64__)
  __asm__("cmpq %[at], %[id]\n\tcmoveq %[there], %[place]"
          : [place] "+r"(place)
          : [at] "m"(at), [id] "r"(id), [there] "r"(there)
          : "cc");
#else
  const std::uint64_t hit = ones_if(at == id);
  place = (place & ~hit) | (there & hit);
#endif
}

}  // namespace

struct KeyProfile::Part {
  std::size_t begin;  // row in the batch
  std::span<const Key> ids;
  const std::int64_t* records;
  const double* costs;
  const double* states;
};

struct KeyProfile::Placed {
  Key id;
  std::uint64_t records, record_error;
  double cost, cost_error, state;
};

KeyProfile::KeyProfile(std::size_t capacity, unsigned bits)
    : capacity_(capacity),
      shift_(64 - bits),
      slots_(0),
      mask_(0),
      scout_(std::clamp(capacity, std::size_t{1}, std::size_t{1} << 20), kScoutSpread) {
  expect(capacity >= 1 && capacity <= std::size_t{1} << 20,
         "capacity: expected 1 to 2^20, got " + std::to_string(capacity));
  expect(bits >= 1 && bits <= 22, "bits: expected 1 to 22, got " + std::to_string(bits));
  slots_ = std::max<std::size_t>(64, std::bit_ceil(2 * capacity));
  mask_ = slots_ - 1;
  ids_.resize(2 * slots_);
  record_errors_.resize(2 * slots_);
  cost_errors_.resize(2 * slots_);
  count_.resize(2 * slots_ + (std::size_t{1} << bits));
  registers_.resize(std::size_t{1} << kRegisterBits);
  for (std::size_t slot = 0; slot < ids_.size(); ++slot) ids_[slot] = nobody(slot);
}

// A key that is looked for in another slot.
Key KeyProfile::nobody(std::size_t slot) const noexcept {
  return slot < slots_ ? Key{slot ^ 1} : Key{(slot - slots_) ^ 1} << 20;
}

std::size_t KeyProfile::place_of(Key id) const noexcept {
  if (ids_[first_of(id)] == id) return first_of(id);
  if (ids_[second_of(id)] == id) return second_of(id);
  return cell_of(id);
}

bool KeyProfile::sampled(std::uint64_t row) noexcept {
  return row < kFilling || (row / kBlock * 0x9E3779B97F4A7C15u >> 60) == 0;
}

void KeyProfile::check(const Batch& values, const Input& input) const {
  const std::size_t rows = values.size();
  expect(input.records.empty() || input.records.size() == rows,
         count_text("counts", rows, input.records.size()));
  expect(!input.costed || input.costs.size() == rows,
         count_text("costs", rows, input.costs.size()));
  expect(!input.stated || input.states.size() == rows,
         count_text("state_sizes", rows, input.states.size()));
  expect(!begun_ || (input.costed == costed_ && input.stated == stated_),
         "costs, state_sizes: expected them in every call or in none, got another");
  for (const std::int64_t n : input.records)
    expect(n >= 0 && n <= std::int64_t{1} << 40,
           "counts: expected 0 to 2^40, got " + std::to_string(n));
  if (input.costed) check_numbers("costs", input.costs);
  if (input.stated) check_numbers("state_sizes", input.states);
}

void KeyProfile::observe(const Batch& values, const Input& input) {
  check(values, input);
  if (values.size() == 0) return;
  names_.expect(values.kinds(), "values");
  if (!begun_) {
    begun_ = true;
    costed_ = input.costed;
    stated_ = input.stated;
    if (costed_) costs_.resize(count_.size());
    if (stated_) states_.resize(count_.size());
  }
  values.for_each_block([&](std::size_t begin, std::span<const Key> ids) {
    // Cut where the sample or the table changes, so that batches may be cut anywhere.
    for (std::size_t done = 0; done < ids.size();) {
      const std::uint64_t block = (rows_ / kBlock + 1) * kBlock;
      const std::uint64_t until = std::min(block, next_look(rows_));
      const std::size_t count = std::min<std::size_t>(ids.size() - done, until - rows_);
      const std::size_t from = begin + done;
      observe_part(values, {from, ids.subspan(done, count),
                            input.records.empty() ? nullptr : input.records.data() + from,
                            costed_ ? input.costs.data() + from : nullptr,
                            stated_ ? input.states.data() + from : nullptr});
      rows_ += count;
      done += count;
      if (rows_ == next_look(rows_ - 1)) refresh();
    }
  });
}

void KeyProfile::observe_part(const Batch& values, const Part& part) {
  std::uint32_t places[kBlock];
  if (size_ < capacity_)
    fill(values, part, places);
  else
    locate(part.ids.data(), part.ids.size(), places);
  if (all_here_)
    all_here_ = std::all_of(places, places + part.ids.size(),
                            [&](std::uint32_t place) { return place < 2 * slots_; });
  count_distinct(part, places);
  add(part, places);
  // Rows that stand for several records are few, and each may be heavy: all are scouted.
  if (sampled(rows_) || part.records != nullptr) scout(values, part, places);
}

void KeyProfile::locate(const Key* ids, std::size_t count, std::uint32_t* places) const noexcept {
  const Key* const table = ids_.data();
  const std::size_t slots = slots_, mask = mask_;
  const unsigned shift = shift_;
  for (std::size_t i = 0; i < count; ++i) {
    const Key id = ids[i];
    const std::uint64_t first = id & mask, second = slots + (id >> 20 & mask);
    std::uint64_t place = 2 * slots + (id >> shift);
    take_if(table[first], id, first, place);
    take_if(table[second], id, second, place);
    places[i] = static_cast<std::uint32_t>(place);
  }
}

void KeyProfile::fill(const Batch& values, const Part& part, std::uint32_t* places) {
  for (std::size_t i = 0; i < part.ids.size(); ++i) {
    const Key id = part.ids[i];
    std::size_t place = place_of(id);
    if (place >= 2 * slots_ && size_ < capacity_) {
      // What its identifier has may have been of this key, unless every key is here.
      const std::uint64_t error = all_here_ ? 0 : count_[place];
      const double cost_error = all_here_ || !costed_ ? 0.0 : costs_[place];
      // Placing it may move others, also those of this block.
      if (enter({id, 0, error, 0, cost_error, 0})) {
        names_.add(id, values, part.begin + i);
        for (std::size_t before = 0; before < i; ++before)
          places[before] = static_cast<std::uint32_t>(place_of(part.ids[before]));
        place = place_of(id);
      }
    }
    places[i] = static_cast<std::uint32_t>(place);
  }
}

void KeyProfile::add(const Part& part, const std::uint32_t* places) {
  const std::size_t rows = part.ids.size();
  if (part.records == nullptr) {
    std::uint64_t* const counts = count_.data();
    for (std::size_t i = 0; i < rows; ++i) ++counts[places[i]];
    records_ += rows;
  } else {
    for (std::size_t i = 0; i < rows; ++i) {
      count_[places[i]] += static_cast<std::uint64_t>(part.records[i]);
      records_ += static_cast<std::uint64_t>(part.records[i]);
    }
  }
  if (part.costs != nullptr) {
    double* const costs = costs_.data();
    for (std::size_t i = 0; i < rows; ++i) costs[places[i]] += part.costs[i];
  }
  if (part.states != nullptr)
    for (std::size_t i = 0; i < rows; ++i) states_[places[i]] += part.states[i];
}

void KeyProfile::scout(const Batch& values, const Part& part, const std::uint32_t* places) {
  Key ids[kBlock];
  std::int64_t weights[kBlock];
  std::uint32_t rows[kBlock];
  std::size_t count = 0;
  for (std::size_t i = 0; i < part.ids.size(); ++i) {
    ids[count] = part.ids[i];
    rows[count] = static_cast<std::uint32_t>(i);
    count += places[i] >= 2 * slots_;
  }
  if (count == 0) return;
  const bool weighted = part.costs != nullptr || part.records != nullptr;
  for (std::size_t i = 0; weighted && i < count; ++i) {
    if (part.costs == nullptr) {
      weights[i] = part.records[rows[i]];
      continue;
    }
    const double cost = part.costs[rows[i]];
    if (unit_ == 0 && cost > 0) unit_ = std::max(cost, 1e-280) / kScoutUnits;
    const double weight = unit_ == 0 ? 0.0 : std::ceil(cost / unit_);
    weights[i] = static_cast<std::int64_t>(std::min(weight, kMostWeight));
  }
  if (scout_.total() > kMuch) scout_.decay(0.5);
  std::vector<FilteredCounters::Entered> entered;
  scout_.observe(
      {ids, count},
      weighted ? std::span<const std::int64_t>(weights, count) : std::span<const std::int64_t>(),
      entered);
  if (self_naming(names_.kinds())) return;
  for (const auto& [slot, row] : entered)
    if (scout_.holds(slot, ids[row])) names_.add(ids[row], values, part.begin + rows[row]);
  forget_names();
}

void KeyProfile::count_distinct(const Part& part, const std::uint32_t* places) {
  for (std::size_t i = 0; i < part.ids.size(); ++i)
    if ((part.ids[i] & unmarked_) == 0 && places[i] >= 2 * slots_) [[unlikely]]
      mark_distinct(part.ids[i]);
}

// Keys of the table are marked when they leave it, and when distinct keys are asked for.
void KeyProfile::mark_distinct(Key id) noexcept {
  const std::size_t at = register_of(id);
  const std::uint8_t rank = rank_of(id);
  if (registers_[at] >= rank) return;
  const bool was_least = registers_[at] == std::popcount(unmarked_);
  registers_[at] = rank;
  if (!was_least) return;
  // A key whose lowest `least` bits beside the register's are not all 0 has a rank of at most that.
  const unsigned least = *std::min_element(registers_.begin(), registers_.end());
  unmarked_ = ((Key{1} << least) - 1) << kRegisterBits;
}

double KeyProfile::distinct() const {
  std::size_t here = 0;
  for (std::size_t slot = 0; slot < ids_.size(); ++slot) here += taken(slot) && count_[slot] > 0;
  if (all_here_) return static_cast<double>(here);
  std::vector<std::uint8_t> ranks = registers_;
  for (std::size_t slot = 0; slot < ids_.size(); ++slot)
    if (taken(slot) && count_[slot] > 0) {
      std::uint8_t& rank = ranks[register_of(ids_[slot])];
      rank = std::max(rank, rank_of(ids_[slot]));
    }
  const auto m = static_cast<double>(ranks.size());
  double sum = 0;
  std::size_t empty = 0;
  for (const std::uint8_t rank : ranks) {
    sum += std::ldexp(1.0, -static_cast<int>(rank));
    empty += rank == 0;
  }
  const double estimate = 0.7213 / (1 + 1.079 / m) * m * m / sum;
  if (estimate <= 2.5 * m && empty > 0) return m * std::log(m / static_cast<double>(empty));
  return estimate;
}

double KeyProfile::measure(std::size_t place) const noexcept {
  return costed_ ? costs_[place] : static_cast<double>(count_[place]);
}

KeyProfile::Placed KeyProfile::take(std::size_t slot) {
  Placed out{ids_[slot], count_[slot], record_errors_[slot], 0, cost_errors_[slot], 0};
  ids_[slot] = nobody(slot);
  count_[slot] = 0;
  if (costed_) out.cost = std::exchange(costs_[slot], 0.0);
  if (stated_) out.state = std::exchange(states_[slot], 0.0);
  --size_;
  return out;
}

// Puts a key in one of its two slots; what is there moves to its other one. False where that has no
// end: then one key, not always this one, has returned its sums to its identifier.
bool KeyProfile::enter(Placed key) {
  const Key wanted = key.id;
  std::size_t slot = first_of(key.id);
  if (taken(slot) && !taken(second_of(key.id))) slot = second_of(key.id);
  for (int moves = 0; moves < 64; ++moves) {
    const bool occupied = taken(slot);
    Placed other{};
    if (occupied) other = take(slot);
    ids_[slot] = key.id;
    count_[slot] = key.records;
    record_errors_[slot] = key.record_error;
    cost_errors_[slot] = key.cost_error;
    if (costed_) costs_[slot] = key.cost;
    if (stated_) states_[slot] = key.state;
    ++size_;
    if (!occupied) return true;
    slot = slot < slots_ ? second_of(other.id) : first_of(other.id);
    key = other;
  }
  pour(key);
  return place_of(wanted) < 2 * slots_;
}

void KeyProfile::pour(const Placed& key) {
  const std::size_t cell = cell_of(key.id);
  count_[cell] += key.records;
  if (costed_) costs_[cell] += key.cost;
  if (stated_) states_[cell] += key.state;
  if (key.records > 0) mark_distinct(key.id);
  all_here_ = false;
}

// Heavier first, then by id.
bool KeyProfile::before(const Placed& a, const Placed& b) const noexcept {
  const double x = costed_ ? a.cost : static_cast<double>(a.records);
  const double y = costed_ ? b.cost : static_cast<double>(b.records);
  return x != y ? x > y : a.id < b.id;
}

std::vector<KeyProfile::Placed> KeyProfile::placed() const {
  std::vector<Placed> out;
  out.reserve(size_);
  for (std::size_t slot = 0; slot < ids_.size(); ++slot)
    if (taken(slot))
      out.push_back({ids_[slot], count_[slot], record_errors_[slot], costed_ ? costs_[slot] : 0.0,
                     cost_errors_[slot], stated_ ? states_[slot] : 0.0});
  return out;
}

double KeyProfile::most_of(const Placed& key) const noexcept {
  return costed_ ? key.cost + key.cost_error : static_cast<double>(key.records + key.record_error);
}

void KeyProfile::refresh() {
  if (all_here_ || size_ < capacity_) return;
  std::vector<Placed> keys = placed();
  double least = most_of(keys[0]);
  for (const Placed& key : keys) least = std::min(least, most_of(key));
  struct Candidate {
    Key id;
    double guess;
    std::uint64_t sure;
  };
  std::vector<Candidate> candidates;
  for (const auto& entry : scout_.entries_unordered(capacity_)) {
    const std::size_t cell = place_of(entry.id);
    if (cell < 2 * slots_) continue;
    const Count sure = entry.count - entry.error;
    const double scale = (costed_ ? unit_ : 1.0) * (rows_ > kFilling ? double(kSample) : 1.0);
    const double guess = std::min(static_cast<double>(sure) * scale, measure(cell));
    if (guess > kLead * least) candidates.push_back({entry.id, guess, costed_ ? 0 : sure});
  }
  if (candidates.empty()) return;
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.guess != b.guess ? a.guess > b.guess : a.id < b.id;
  });
  const auto some = static_cast<std::ptrdiff_t>(std::min(candidates.size(), keys.size()));
  std::partial_sort(keys.begin(), keys.begin() + some, keys.end(),
                    [this](const Placed& a, const Placed& b) { return before(b, a); });
  for (std::size_t i = 0; i < static_cast<std::size_t>(some); ++i) {
    const Candidate& next = candidates[i];
    if (next.guess <= kLead * most_of(keys[i])) break;
    const std::size_t place = place_of(keys[i].id);
    if (place < 2 * slots_) pour(take(place));
    const std::size_t cell = cell_of(next.id);
    // Evicted keys have returned to this identifier too, so it is read now.
    const std::uint64_t sure = std::min<std::uint64_t>(next.sure, count_[cell]);
    count_[cell] -= sure;
    const double cost_error = costed_ ? costs_[cell] : 0.0;
    static_cast<void>(enter({next.id, sure, count_[cell], 0, cost_error, 0}));
  }
}

void KeyProfile::clear_table() {
  for (std::size_t slot = 0; slot < ids_.size(); ++slot) {
    ids_[slot] = nobody(slot);
    count_[slot] = 0;
    record_errors_[slot] = 0;
    cost_errors_[slot] = 0;
    if (costed_) costs_[slot] = 0;
    if (stated_) states_[slot] = 0;
  }
  size_ = 0;
}

void KeyProfile::merge(const KeyProfile& other) {
  expect(other.capacity_ == capacity_ && other.shift_ == shift_,
         "other: expected a profile of the same capacity and bits, got another");
  if (!other.begun_) return;
  if (!begun_) {
    *this = other;
    return;
  }
  expect(other.costed_ == costed_ && other.stated_ == stated_,
         "other: expected costs and state sizes in both or in none, got another");
  const Kinds kinds = unify(names_.kinds(), other.names_.kinds(), "other");
  std::vector<Placed> keys = placed();
  const auto unseen = [](const KeyProfile& by, Placed& key) {
    if (by.all_here_) return;
    const std::size_t cell = by.cell_of(key.id);
    key.record_error += by.count_[cell];
    if (by.costed_) key.cost_error += by.costs_[cell];
  };
  for (Placed& key : keys) {
    const std::size_t place = other.place_of(key.id);
    if (place >= 2 * slots_) {
      unseen(other, key);
      continue;
    }
    key.records += other.count_[place];
    key.record_error += other.record_errors_[place];
    key.cost_error += other.cost_errors_[place];
    if (costed_) key.cost += other.costs_[place];
    if (stated_) key.state += other.states_[place];
  }
  for (Placed key : other.placed())
    if (place_of(key.id) >= 2 * slots_) {
      unseen(*this, key);
      keys.push_back(key);
    }
  const bool all_here = all_here_ && other.all_here_;
  clear_table();
  for (std::size_t cell = 2 * slots_; cell < count_.size(); ++cell) {
    count_[cell] += other.count_[cell];
    if (costed_) costs_[cell] += other.costs_[cell];
    if (stated_) states_[cell] += other.states_[cell];
  }
  std::sort(keys.begin(), keys.end(),
            [this](const Placed& a, const Placed& b) { return before(a, b); });
  all_here_ = all_here;
  for (const Placed& key : keys) {
    if (size_ < capacity_)
      static_cast<void>(enter(key));
    else
      pour(key);
  }
  records_ += other.records_;
  rows_ += other.rows_;
  if (unit_ == other.unit_ || unit_ == 0) scout_.merge(other.scout_);
  if (unit_ == 0) unit_ = other.unit_;
  names_.expect(kinds, "other");
  names_.add_all(other.names_);
  for (std::size_t i = 0; i < registers_.size(); ++i)
    registers_[i] = std::max(registers_[i], other.registers_[i]);
  const unsigned least = *std::min_element(registers_.begin(), registers_.end());
  unmarked_ = ((Key{1} << least) - 1) << kRegisterBits;
}

double KeyProfile::cost() const noexcept {
  return std::accumulate(costs_.begin(), costs_.end(), 0.0);
}

void KeyProfile::restart() {
  std::fill(count_.begin(), count_.end(), 0);
  std::fill(costs_.begin(), costs_.end(), 0.0);
  std::fill(states_.begin(), states_.end(), 0.0);
  std::fill(record_errors_.begin(), record_errors_.end(), 0);
  std::fill(cost_errors_.begin(), cost_errors_.end(), 0.0);
  std::fill(registers_.begin(), registers_.end(), std::uint8_t{0});
  unmarked_ = 0;
  records_ = rows_ = 0;
  all_here_ = true;
  scout_.reset();
  forget_names();
}

void KeyProfile::forget_names() {
  names_.retain(size_ + scout_.size(), [&](auto&& keep) {
    for (std::size_t slot = 0; slot < ids_.size(); ++slot)
      if (taken(slot)) keep(ids_[slot]);
    for (const auto& entry : scout_.entries_unordered(scout_.slots())) keep(entry.id);
  });
}

KeyProfile::Hot KeyProfile::hot(std::size_t most) const {
  Hot out;
  std::vector<Placed> keys = placed();
  std::sort(keys.begin(), keys.end(),
            [this](const Placed& a, const Placed& b) { return before(a, b); });
  for (const Placed& key : keys) {
    if (out.ids.size() >= most) break;
    if (key.records == 0 && key.cost == 0) break;  // known from an earlier interval
    out.names.push_back(names_.encoded(key.id));
    out.ids.push_back(key.id);
    out.records.push_back(static_cast<std::int64_t>(key.records));
    out.record_errors.push_back(static_cast<std::int64_t>(key.record_error));
    if (costed_) {
      out.costs.push_back(key.cost);
      out.cost_errors.push_back(key.cost_error);
    }
    if (stated_) out.states.push_back(key.state);
  }
  return out;
}

std::vector<double> KeyProfile::rest(bool cost) const {
  std::vector<double> out(count_.size() - 2 * slots_);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = cost && costed_ ? costs_[2 * slots_ + i]
                             : static_cast<double>(cost ? 0 : count_[2 * slots_ + i]);
  return out;
}

void KeyProfile::find(const Batch& values, std::span<std::uint8_t> out) const {
  std::uint32_t places[kBlock];
  values.for_each_block([&](std::size_t begin, std::span<const Key> ids) {
    locate(ids.data(), ids.size(), places);
    for (std::size_t i = 0; i < ids.size(); ++i) out[begin + i] = places[i] < 2 * slots_;
  });
}

std::size_t KeyProfile::bytes_used() const noexcept {
  return ids_.size() * sizeof(Key) + count_.size() * 8 + costs_.size() * 8 + states_.size() * 8 +
         record_errors_.size() * 16 + scout_.bytes_used() + names_.bytes_used();
}

}  // namespace pyroute
