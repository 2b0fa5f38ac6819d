#include "stats/filtered_counters.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>

#include "branchless.hpp"
#include "simd.hpp"

#if PYROUTE_X86
#include <immintrin.h>
#endif

namespace pyroute {
namespace {

constexpr std::size_t kMostCapacity = std::size_t{1} << 28;
constexpr std::size_t kAhead = 16;  // updates between a prefetch and its use
constexpr Count kMostCell = std::numeric_limits<std::uint32_t>::max();

std::size_t groups_for(std::size_t capacity, std::size_t spread) {
  return (capacity * spread + 699) / 700;
}

struct Product {
  __extension__ typedef unsigned __int128 Wide;
  Wide value;
  int shift;  // count * factor == value / 2^shift
};

Product times(Count count, double factor) noexcept {
  int exponent;
  const double fraction = std::frexp(factor, &exponent);  // in [0.5, 1), or 0
  const auto mantissa = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
  return {static_cast<Product::Wide>(count) * mantissa, 53 - exponent};
}

struct MatchPortable {
  // Bit i: ids[i] == id, for the seven ids.
  static unsigned mask(const std::uint64_t* ids, Key id) noexcept {
    unsigned bits = 0;
    for (unsigned i = 0; i < 7; ++i) bits |= static_cast<unsigned>(ids[i] == id) << i;
    return bits;
  }
};

#if PYROUTE_X86
struct MatchAvx2 {
  PYROUTE_AVX2 static unsigned mask(const std::uint64_t* ids, Key id) noexcept {
    const __m256i want = _mm256_set1_epi64x(static_cast<long long>(id));
    const auto* at = reinterpret_cast<const __m256i*>(ids);
    const __m256i low = _mm256_cmpeq_epi64(_mm256_load_si256(at), want);
    const __m256i high = _mm256_cmpeq_epi64(_mm256_load_si256(at + 1), want);
    const int bits = _mm256_movemask_pd(_mm256_castsi256_pd(low)) |
                     _mm256_movemask_pd(_mm256_castsi256_pd(high)) << 4;
    return static_cast<unsigned>(bits) & 0x7f;
  }
};

struct MatchAvx512 {
  PYROUTE_AVX512 static unsigned mask(const std::uint64_t* ids, Key id) noexcept {
    const __m512i want = _mm512_set1_epi64(static_cast<long long>(id));
    return _mm512_cmpeq_epi64_mask(_mm512_load_si512(ids), want) & 0x7fu;
  }
};
#endif

bool before(const FilteredCounters::Entry& a, const FilteredCounters::Entry& b) noexcept {
  return a.count != b.count ? a.count > b.count : a.id < b.id;
}

}  // namespace

Count scale_down(Count count, double factor) noexcept {
  const Product p = times(count, factor);
  return p.shift > 127 ? 0 : static_cast<Count>(p.value >> p.shift);
}

Count scale_up(Count count, double factor) noexcept {
  const Product p = times(count, factor);
  if (p.value == 0) return 0;
  if (p.shift > 127) return 1;
  const Product::Wide whole = p.value >> p.shift;
  return static_cast<Count>(whole) + ((whole << p.shift) != p.value ? 1 : 0);
}

FilteredCounters::FilteredCounters(std::size_t capacity, std::size_t spread)
    : capacity_(capacity), spread_(spread) {
  if (capacity == 0 || capacity > kMostCapacity)
    throw std::invalid_argument("capacity: expected 1 to 2^28, got " + std::to_string(capacity));
  groups_.resize(groups_for(capacity, spread));
  errors_.resize(slots());
  step_ = std::max<std::size_t>(1, std::min(capacity / 4, (slots() - capacity) / 2));
}

void FilteredCounters::set_cell(std::size_t index, Count value) noexcept {
  const Count unit = Count{1} << unit_bits_;
  groups_[index / kCells].cells[index % kCells] =
      static_cast<std::uint32_t>((value + unit - 1) >> unit_bits_);
}

// The hot loop. Its only unpredictable step, monitored or not, is a choice of operands, not a
// branch. Precondition: unit_bits_ == 0, no id is 0 (a free way looks like it), no weight is 0.
template <class Match, bool kWeighted>
[[gnu::always_inline]] inline void FilteredCounters::observe_with(const Key* ids,
                                                                  const std::int64_t* weights,
                                                                  std::size_t n,
                                                                  std::vector<Entered>& entered) {
  char* const base = reinterpret_cast<char*>(groups_.data());
  const std::size_t cell_count = cells();
  std::size_t where[kBlock + kAhead];  // the group of each id, in bytes from the base
  std::uint32_t which[kBlock];         // its cell in the group
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t cell = (ids[i] & 0xffffffffu) * cell_count >> 32;
    where[i] = cell / kCells * sizeof(Group);
    which[i] = cell % kCells;
  }
  std::fill_n(where + n, kAhead, std::size_t{0});
  // Inlined always: a function that only prefetches counts as one without effect, and is dropped.
  const auto fetch = [&](std::size_t i) __attribute__((always_inline)) {
    __builtin_prefetch(base + where[i], 1);
    __builtin_prefetch(base + where[i] + 64, 1);
    __builtin_prefetch(base + where[i] + 128, 1);
  };
  for (std::size_t i = 0; i < kAhead; ++i) fetch(std::min(i, n));
  for (std::size_t i = 0; i < n; ++i) {
    fetch(i + kAhead);
    const Key id = ids[i];
    const Count weight = kWeighted ? static_cast<Count>(weights[i]) : 1;
    Group& group = *reinterpret_cast<Group*>(base + where[i]);
    const unsigned mask = Match::mask(group.ids, id);
    const std::uint64_t hit = ones_if(mask != 0);
    if ((group.ids[kWays] & spill_bit(id) & ~hit) != 0) [[unlikely]] {  // it may be further on
      observe_slowly(id, weight, i, entered);
      if (unit_bits_ > 0) return observe_rest(ids, weights, i + 1, n, entered);
      continue;
    }
    std::uint32_t& cell = group.cells[which[i]];
    const Count sum = cell + (weight & ~hit);
    if (sum > (floor_ | hit)) [[unlikely]] {
      entered.push_back({enter(id, sum, cell), i});
      if (unit_bits_ > 0) return observe_rest(ids, weights, i + 1, n, entered);
      continue;
    }
    cell = static_cast<std::uint32_t>(sum);
    group.counts[__builtin_ctz(mask | 1u << kWays)] += weight & hit;
  }
}

void FilteredCounters::observe_portable(const Key* ids, const std::int64_t* weights, std::size_t n,
                                        std::vector<Entered>& entered) {
  weights == nullptr ? observe_with<MatchPortable, false>(ids, weights, n, entered)
                     : observe_with<MatchPortable, true>(ids, weights, n, entered);
}

#if PYROUTE_X86
PYROUTE_AVX2 void FilteredCounters::observe_avx2(const Key* ids, const std::int64_t* weights,
                                                 std::size_t n, std::vector<Entered>& entered) {
  weights == nullptr ? observe_with<MatchAvx2, false>(ids, weights, n, entered)
                     : observe_with<MatchAvx2, true>(ids, weights, n, entered);
}

PYROUTE_AVX512 void FilteredCounters::observe_avx512(const Key* ids, const std::int64_t* weights,
                                                     std::size_t n, std::vector<Entered>& entered) {
  weights == nullptr ? observe_with<MatchAvx512, false>(ids, weights, n, entered)
                     : observe_with<MatchAvx512, true>(ids, weights, n, entered);
}
#endif

void FilteredCounters::observe(std::span<const Key> ids, std::span<const std::int64_t> weights,
                               std::vector<Entered>& entered) {
  const std::size_t n = ids.size();
  const std::int64_t* const each = weights.empty() ? nullptr : weights.data();
  std::uint64_t zeros = 0;
  for (const Key id : ids) zeros += static_cast<std::uint64_t>(id == 0);
  if (each == nullptr) total_ += n;
  for (const std::int64_t weight : weights) {
    total_ += static_cast<Count>(weight);
    zeros += static_cast<std::uint64_t>(weight == 0);
  }
  if (unit_bits_ > 0 || zeros > 0) return observe_rest(ids.data(), each, 0, n, entered);
#if PYROUTE_X86
  if (simd() == Simd::avx512) return observe_avx512(ids.data(), each, n, entered);
  if (simd() == Simd::avx2) return observe_avx2(ids.data(), each, n, entered);
#endif
  observe_portable(ids.data(), each, n, entered);
}

void FilteredCounters::observe_rest(const Key* ids, const std::int64_t* weights, std::size_t begin,
                                    std::size_t n, std::vector<Entered>& entered) {
  for (std::size_t i = begin; i < n; ++i)
    observe_slowly(ids[i], weights == nullptr ? 1 : static_cast<Count>(weights[i]), i, entered);
}

void FilteredCounters::observe_slowly(Key id, Count weight, std::size_t row,
                                      std::vector<Entered>& entered) {
  if (weight == 0) return;
  if (const std::size_t slot = find(id); slot != slots()) {
    count_ref(slot) += weight;
    return;
  }
  const std::size_t index = cell_of(id);
  const Count sum = cell(index) + weight;
  if (sum <= floor_)
    set_cell(index, sum);
  else
    entered.push_back({enter(id, sum, sum - weight), row});
}

std::size_t FilteredCounters::find(Key id) const noexcept {
  std::size_t at = cell_of(id) / kCells;
  for (std::size_t step = 0; step < groups_.size(); ++step, at = after(at)) {
    const Group& group = groups_[at];
    for (std::size_t way = 0; way < kWays; ++way)
      if (group.ids[way] == id && group.counts[way] != 0) return at * kWays + way;
    if ((group.ids[kWays] & spill_bit(id)) == 0) break;
  }
  return slots();
}

bool FilteredCounters::holds(std::size_t slot, Key id) const noexcept {
  return groups_[slot / kWays].ids[slot % kWays] == id && count_at(slot) != 0;
}

std::size_t FilteredCounters::enter(Key id, Count count, Count error) {
  const std::size_t slot = place(id, count, error);
  if (++entered_ >= step_) raise_floor();
  return slot;
}

std::size_t FilteredCounters::place(Key id, Count count, Count error) {
  std::size_t at = cell_of(id) / kCells;
  for (std::size_t step = 0;; ++step, at = after(at)) {
    if (step == groups_.size()) raise_floor();  // fewer than capacity ways stay above the new floor
    Group& group = groups_[at];
    std::size_t least = kWays;
    Count most = floor_;
    for (std::size_t way = 0; way < kWays; ++way) {
      const bool better = group.counts[way] <= most;
      least = better ? way : least;
      most = better ? group.counts[way] : most;
    }
    if (least == kWays) {
      group.ids[kWays] |= spill_bit(id);
      continue;
    }
    if (group.counts[least] == 0)
      ++size_;
    else if (const std::size_t index = cell_of(group.ids[least]); cell(index) < most)
      set_cell(index, most);
    group.ids[least] = id;
    group.counts[least] = count;
    const std::size_t slot = at * kWays + least;
    errors_[slot] = error;
    return slot;
  }
}

void FilteredCounters::raise_floor() {
  entered_ = 0;
  std::vector<Count> counts;
  counts.reserve(size_);
  for (const Group& group : groups_)
    for (std::size_t way = 0; way < kWays; ++way)
      if (group.counts[way] > floor_) counts.push_back(group.counts[way]);
  if (counts.size() >= capacity_) {
    const auto border = counts.begin() + static_cast<std::ptrdiff_t>(capacity_ - 1);
    std::nth_element(counts.begin(), border, counts.end(), std::greater<>());
    set_floor(*border);
  }
  mark_spills();
}

void FilteredCounters::set_floor(Count floor) noexcept {
  floor_ = floor;
  const auto fits = [&] {
    const Count unit = Count{1} << unit_bits_;
    return (floor_ + unit - 1) >> unit_bits_ <= kMostCell;
  };
  while (!fits()) {
    ++unit_bits_;
    for (Group& group : groups_)
      for (std::uint32_t& cell : group.cells) cell = cell / 2 + cell % 2;
  }
}

void FilteredCounters::mark_spills() noexcept {
  for (Group& group : groups_) group.ids[kWays] = 0;
  for (std::size_t at = 0; at < groups_.size(); ++at) {
    for (std::size_t way = 0; way < kWays; ++way) {
      if (groups_[at].counts[way] == 0) continue;
      const Key id = groups_[at].ids[way];
      for (std::size_t past = cell_of(id) / kCells; past != at; past = after(past))
        groups_[past].ids[kWays] |= spill_bit(id);
    }
  }
}

void FilteredCounters::merge(const FilteredCounters& other) {
  if (other.total_ > kMaxCount - total_)
    throw std::invalid_argument("other: expected totals that add up to less than 2^63, got more");
  // Every id known to either side; where one side does not monitor it, that side's cell stands for
  // it.
  std::vector<Entry> merged = entries();
  for (Entry& entry : merged) {
    const std::size_t slot = other.find(entry.id);
    const bool both = slot != other.slots();
    const Count cell = other.cell(other.cell_of(entry.id));
    entry.count += both ? other.count_at(slot) : cell;
    entry.error += both ? other.errors_[slot] : cell;
  }
  for (Entry entry : other.entries()) {
    if (find(entry.id) != slots()) continue;
    const Count cell = this->cell(cell_of(entry.id));
    entry.count += cell;
    entry.error += cell;
    merged.push_back(entry);
  }
  // A cell covers a range of hashes; where the filters differ in size, the largest of the other's
  // cells that meet the range stands for it.
  const std::size_t mine = cells(), theirs = other.cells();
  const auto first_hash = [&](std::size_t index) {  // the least low32 that lies in this cell
    return ((static_cast<std::uint64_t>(index) << 32) + mine - 1) / mine;
  };
  std::vector<Count> filter(mine);
  for (std::size_t i = 0; i < mine; ++i) {
    const auto from = static_cast<std::size_t>(first_hash(i) * theirs >> 32);
    const auto to = static_cast<std::size_t>((first_hash(i + 1) - 1) * theirs >> 32);
    Count largest = 0;
    for (std::size_t j = from; j <= to; ++j) largest = std::max(largest, other.cell(j));
    filter[i] = cell(i) + largest;
  }
  const Count total = total_ + other.total_;
  Count floor = floor_ + other.floor_;
  std::sort(merged.begin(), merged.end(), before);
  for (std::size_t i = capacity_; i < merged.size(); ++i) {
    Count& cell = filter[cell_of(merged[i].id)];
    cell = std::max(cell, merged[i].count);
    floor = std::max(floor, merged[i].count);
  }
  reset();
  total_ = total;
  for (std::size_t i = 0; i < std::min(capacity_, merged.size()); ++i)
    place(merged[i].id, merged[i].count, merged[i].error);
  set_floor(floor);
  for (std::size_t i = 0; i < mine; ++i) set_cell(i, filter[i]);
}

void FilteredCounters::decay(double factor) {
  if (!(factor >= 0 && factor <= 1))
    throw std::invalid_argument("factor: expected 0 to 1, got " + std::to_string(factor));
  if (factor == 0) return reset();
  for (std::size_t slot = 0; slot < slots(); ++slot) {
    Count& count = count_ref(slot);
    if (count == 0) continue;
    const Count sure = scale_down(count - errors_[slot], factor);
    count = scale_up(count, factor);
    errors_[slot] = count - sure;
  }
  std::vector<Count> filter(cells());
  for (std::size_t i = 0; i < filter.size(); ++i) filter[i] = scale_up(cell(i), factor);
  total_ = scale_up(total_, factor);
  unit_bits_ = 0;
  for (Group& group : groups_) std::fill(std::begin(group.cells), std::end(group.cells), 0u);
  set_floor(scale_up(floor_, factor));
  for (std::size_t i = 0; i < filter.size(); ++i) set_cell(i, filter[i]);
}

void FilteredCounters::reset() {
  std::fill(groups_.begin(), groups_.end(), Group{});
  std::fill(errors_.begin(), errors_.end(), 0);
  size_ = 0;
  entered_ = 0;
  total_ = 0;
  floor_ = 0;
  unit_bits_ = 0;
}

Count FilteredCounters::estimate(Key id) const noexcept {
  const std::size_t slot = find(id);
  return slot == slots() ? cell(cell_of(id)) : count_at(slot);
}

std::vector<FilteredCounters::Entry> FilteredCounters::entries() const {
  auto out = entries_unordered(size_);
  std::sort(out.begin(), out.end(), before);
  return out;
}

std::vector<FilteredCounters::Entry> FilteredCounters::entries_unordered(std::size_t most) const {
  std::vector<Entry> out;
  out.reserve(size_);
  for (std::size_t slot = 0; slot < slots(); ++slot)
    if (count_at(slot) != 0)
      out.push_back({groups_[slot / kWays].ids[slot % kWays], count_at(slot), errors_[slot], slot});
  if (most < out.size()) {
    std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(most), out.end(),
                     before);
    out.resize(most);
  }
  return out;
}

std::size_t FilteredCounters::bytes_used() const noexcept {
  return groups_.size() * sizeof(Group) + errors_.size() * sizeof(Count);
}

// Where an id lies decides which one is evicted next, so places belong to the state.
bool FilteredCounters::operator==(const FilteredCounters& other) const {
  if (capacity_ != other.capacity_ || spread_ != other.spread_ || size_ != other.size_ ||
      entered_ != other.entered_ || total_ != other.total_ || floor_ != other.floor_ ||
      unit_bits_ != other.unit_bits_)
    return false;
  for (std::size_t i = 0; i < cells(); ++i)
    if (cell(i) != other.cell(i)) return false;
  for (std::size_t slot = 0; slot < slots(); ++slot) {
    if (count_at(slot) != other.count_at(slot)) return false;
    if (count_at(slot) == 0) continue;
    if (errors_[slot] != other.errors_[slot] ||
        !other.holds(slot, groups_[slot / kWays].ids[slot % kWays]))
      return false;
  }
  return true;
}

//   capacity, total, floor, entered, size, then per monitored id in the order of its place: places
//   skipped since the last, id u64, count, error; then every cell. Varints where not said
//   otherwise.
void FilteredCounters::write(Writer& to) const {
  to.varint(capacity_);
  to.varint(total_);
  to.varint(floor_);
  to.varint(entered_);
  to.varint(size_);
  std::size_t next = 0;
  for (std::size_t slot = 0; slot < slots(); ++slot) {
    if (count_at(slot) == 0) continue;
    to.varint(slot - next);
    next = slot + 1;
    to.u64(groups_[slot / kWays].ids[slot % kWays]);
    to.varint(count_at(slot));
    to.varint(errors_[slot]);
  }
  for (std::size_t i = 0; i < cells(); ++i) to.varint(groups_[i / kCells].cells[i % kCells]);
}

FilteredCounters FilteredCounters::read(Reader& from, std::size_t spread) {
  const auto capacity = static_cast<std::size_t>(from.varint("capacity", kMostCapacity));
  Reader::check(capacity > 0, "capacity", "at least 1");
  const Count total = from.varint("total", kMaxCount), floor = from.varint("floor", kMaxCount);
  const std::uint64_t entered = from.varint("entered");
  // A cell takes at least a byte, so nobody can ask for much memory with a short message.
  Reader::check(groups_for(capacity, spread) * kCells <= from.left(), "capacity",
                "a byte for each cell");
  const std::size_t size = from.count("size", 11);
  FilteredCounters out(capacity, spread);
  Reader::check(entered < out.step_, "entered", "less than the step");
  Reader::check(size <= out.slots(), "size", "no more keys than ways");
  out.total_ = total;
  out.set_floor(floor);
  out.entered_ = static_cast<std::size_t>(entered);
  out.size_ = size;
  std::size_t next = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const std::uint64_t skipped = from.varint("place");
    Reader::check(skipped < out.slots() - next, "place", "a way");
    const std::size_t slot = next + static_cast<std::size_t>(skipped);
    next = slot + 1;
    Reader::check(next <= out.slots(), "place", "a way");
    out.groups_[slot / kWays].ids[slot % kWays] = from.u64();
    const Count count = from.varint("count", kMaxCount);
    Reader::check(count > 0, "count", "at least 1");
    out.count_ref(slot) = count;
    out.errors_[slot] = from.varint("error", count);
  }
  for (std::size_t i = 0; i < out.cells(); ++i)
    out.groups_[i / kCells].cells[i % kCells] =
        static_cast<std::uint32_t>(from.varint("cell", kMostCell));
  out.mark_spills();
  for (std::size_t slot = 0; slot < out.slots(); ++slot)
    if (out.count_at(slot) != 0)
      Reader::check(out.find(out.groups_[slot / kWays].ids[slot % kWays]) == slot, "entries",
                    "distinct keys");
  return out;
}

}  // namespace pyroute
