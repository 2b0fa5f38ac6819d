#include "control/gru.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "bytes.hpp"
#include "simd.hpp"

#if PYROUTE_X86
#include <immintrin.h>
#endif

namespace pyroute {
namespace {

// to = base + from * weights, matrices by rows; all columns are whole vectors of the widest path.
struct Product {
  const float* from;
  std::size_t from_stride, rows, inner;
  const float* weights;
  std::size_t weights_stride, columns;
  const float* base;
  std::size_t base_stride;
  float* to;
  std::size_t to_stride;
};

constexpr std::size_t kPad = 16;       // floats of the widest vector
constexpr std::size_t kMostRows = 40;  // workers at a time: what they need stays in the cache

constexpr std::size_t padded(std::size_t size) { return (size + kPad - 1) / kPad * kPad; }

namespace portable {
#define LANES 4
#define ROWS 3
#define TARGET
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#include "control/gru_path.inc"
#undef LANES
#undef ROWS
#undef TARGET
#undef MULTIPLY_ADD
}  // namespace portable

#if PYROUTE_X86
namespace avx2 {
#define LANES 8
#define ROWS 5
#define TARGET __attribute__((target("avx2,fma")))
#define MULTIPLY_ADD(a, b, c) \
  ((Vector)_mm256_fmadd_ps((__m256)(Vector)(a), (__m256)(Vector)(b), (__m256)(Vector)(c)))
#include "control/gru_path.inc"
#undef LANES
#undef ROWS
#undef TARGET
#undef MULTIPLY_ADD
}  // namespace avx2

namespace avx512 {
#define LANES 16
#define ROWS 10
#define TARGET __attribute__((target("avx2,fma,avx512f,prefer-vector-width=512")))
#define MULTIPLY_ADD(a, b, c) \
  ((Vector)_mm512_fmadd_ps((__m512)(Vector)(a), (__m512)(Vector)(b), (__m512)(Vector)(c)))
#include "control/gru_path.inc"
#undef LANES
#undef ROWS
#undef TARGET
#undef MULTIPLY_ADD
}  // namespace avx512
#endif

struct Kernels {
  void (*multiply)(Product);
  void (*reset)(const float*, const float*, std::size_t, std::size_t, float*);
  void (*update)(const float*, const float*, std::size_t, const float*, std::size_t, std::size_t,
                 float*);
};

// By Simd; a machine with AVX2 and no fused multiply-add, if there is one, takes the portable path.
const Kernels& kernels() noexcept {
  static constexpr Kernels plain{portable::multiply, portable::reset, portable::update};
#if PYROUTE_X86
  static constexpr Kernels fused2{avx2::multiply, avx2::reset, avx2::update};
  static constexpr Kernels fused512{avx512::multiply, avx512::reset, avx512::update};
  static const bool fma = __builtin_cpu_supports("fma");
  if (fma && simd() == Simd::avx512) return fused512;
  if (fma && simd() == Simd::avx2) return fused2;
#endif
  return plain;
}

float logistic(float x) { return 1.0f / (1.0f + std::exp(-x)); }

std::invalid_argument wrong(const char* name, const std::string& expected, const std::string& got) {
  return std::invalid_argument(std::string(name) + ": expected " + expected + ", got " + got);
}

void within(const char* name, std::size_t value, std::size_t least, std::size_t most) {
  if (value < least || value > most)
    throw wrong(name, std::to_string(least) + " to " + std::to_string(most), std::to_string(value));
}

}  // namespace

void GruShape::check() const {
  within("window", window, 1, kMostWindow);
  within("machine", machine, 0, kMostColumns);
  within("workers", workers, 1, kMostColumns);
  within("features", features, 1, kMostColumns);
  within("columns", columns(workers), 1, kMostColumns);
  within("own", own, 1, features);
  within("common", common, 0, machine);
  within("layers1", layers1, 0, kMostLayers);
  within("layers2", layers2, layers1 > 0 ? 0 : 1, kMostLayers);
  within("hidden1", hidden1, layers1 > 0 ? 1 : 0, layers1 > 0 ? kMostHidden : 0);
  within("hidden2", hidden2, layers2 > 0 ? 1 : 0, layers2 > 0 ? kMostHidden : 0);
  if (layers1 == 0)
    within("width", width, 0, 0);
  else if (layers2 == 0)
    within("width", width, workers, workers);
  else
    within("width", width, 1, kMostHidden);
  within("members", members, 1, kMostMembers);
  if (layers2 == 0 && (skip || relative || !shared))
    throw wrong("skip, relative, shared", "false, false, true without a tier 2", "other");
  if (elastic && (layers1 > 0 || !shared))
    throw wrong("elastic", "false with a tier 1 or without shared weights", "true");
  if (!std::isfinite(step) || step <= 0)
    throw wrong("step", "a finite number > 0", std::to_string(step));
  if (!std::isfinite(low) || !std::isfinite(high) || !(low < high))
    throw wrong("low, high", "finite numbers, low < high",
                std::to_string(low) + ", " + std::to_string(high));
}

namespace {
std::size_t stack_weights(std::size_t layers, std::size_t inputs, std::size_t hidden) {
  std::size_t out = 0;
  for (std::size_t i = 0; i < layers; ++i)
    out += 3 * hidden * ((i == 0 ? inputs : hidden) + hidden + 1);
  return out;
}
}  // namespace

std::size_t GruShape::weights() const {
  std::size_t out = 0;
  if (layers1 > 0) out += stack_weights(layers1, columns(workers), hidden1) + width * (hidden1 + 1);
  if (layers2 > 0)
    out += (shared ? 1 : workers) * (stack_weights(layers2, inputs2(), hidden2) + hidden2 + 1 +
                                     (skip ? window * read() : 0));
  return out;
}

namespace {
// Whether bytes are UTF-8 as Unicode defines it: shortest forms, no surrogates, at most U+10FFFF.
bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&text](std::size_t at) { return static_cast<unsigned char>(text[at]); };
    const unsigned first = byte(i);
    const std::size_t more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    if ((first >= 0x80 && first < 0xc2) || first > 0xf4 || text.size() - i <= more) return false;
    for (std::size_t k = 1; k <= more; ++k)
      if ((byte(i + k) & 0xc0U) != 0x80U) return false;
    const unsigned second = more > 0 ? byte(i + 1) : 0;
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f))
      return false;
    i += more + 1;
  }
  return true;
}
}  // namespace

struct GruModel::Scratch {
  std::vector<float> ready;   // window x columns: scaled
  std::vector<double> last;   // per worker: the target's last value, after the log, not clipped
  std::vector<float> inputs;  // of tier 2: step x row x inputs
  std::vector<float> projected, gates, candidate, reset, hidden, zero;
  std::vector<float> width;   // tier 1's numbers at every step
  std::vector<float> output;  // per worker, the sum over members
};

GruModel::GruModel(const GruShape& shape, std::vector<std::string> names,
                   std::vector<GruScale> scales, std::vector<float> weights)
    : shape_(shape),
      names_(std::move(names)),
      scales_(std::move(scales)),
      weights_(std::move(weights)) {
  shape_.check();
  if (names_.size() != shape_.machine + shape_.features)
    throw wrong("names", std::to_string(shape_.machine + shape_.features),
                std::to_string(names_.size()));
  if (scales_.size() != shape_.scales())
    throw wrong("scales", std::to_string(shape_.scales()), std::to_string(scales_.size()));
  if (weights_.size() != shape_.members * shape_.weights())
    throw wrong("weights", std::to_string(shape_.members * shape_.weights()),
                std::to_string(weights_.size()));
  for (const std::string& name : names_)
    if (!is_utf8(name)) throw wrong("names", "UTF-8", "other bytes");
  for (const GruScale& s : scales_)
    if (!std::isfinite(s.offset) || !std::isfinite(s.unit) || !std::isfinite(s.scale) ||
        s.unit <= 0 || s.scale <= 0)
      throw wrong("scales", "finite numbers, unit and scale > 0", "others");
  for (const float w : weights_)
    if (!std::isfinite(w)) throw wrong("weights", "finite numbers", std::to_string(w));
  const float* from = weights_.data();
  for (std::size_t m = 0; m < shape_.members; ++m) {
    if (shape_.layers1 > 0)
      tier1_.push_back(pack(shape_.layers1, shape_.columns(shape_.workers), shape_.hidden1,
                            shape_.width, 0, from));
    for (std::size_t n = 0; shape_.layers2 > 0 && n < (shape_.shared ? 1 : shape_.workers); ++n)
      tier2_.push_back(pack(shape_.layers2, shape_.inputs2(), shape_.hidden2, 1,
                            shape_.skip ? shape_.window * shape_.read() : 0, from));
  }
}

GruModel::Tier GruModel::pack(std::size_t layers, std::size_t inputs, std::size_t hidden,
                              std::size_t outputs, std::size_t skip, const float*& from) {
  Tier tier;
  const std::size_t wide = padded(hidden);
  const auto place = [&](std::size_t size) {
    const std::size_t at = packed_.size();
    packed_.resize(at + size);
    return at;
  };
  for (std::size_t l = 0; l < layers; ++l) {
    const std::size_t in = l == 0 ? inputs : hidden;
    const Layer layer{in,
                      hidden,
                      wide,
                      place(in * 3 * wide),
                      place(hidden * 2 * wide),
                      place(hidden * wide),
                      place(3 * wide)};
    for (std::size_t k = 0; k < in; ++k)
      for (std::size_t gate = 0; gate < 3; ++gate)
        for (std::size_t i = 0; i < hidden; ++i)
          packed_[layer.w + (k * 3 + gate) * wide + i] = *from++;
    for (std::size_t k = 0; k < hidden; ++k)
      for (std::size_t gate = 0; gate < 3; ++gate)
        for (std::size_t i = 0; i < hidden; ++i)
          packed_[gate < 2 ? layer.gates + (k * 2 + gate) * wide + i
                           : layer.candidate + k * wide + i] = *from++;
    for (std::size_t gate = 0; gate < 3; ++gate)
      for (std::size_t i = 0; i < hidden; ++i) packed_[layer.bias + gate * wide + i] = *from++;
    tier.layers.push_back(layer);
  }
  const auto copy = [&](std::size_t size) {
    const std::size_t at = place(size);
    for (std::size_t i = 0; i < size; ++i) packed_[at + i] = *from++;
    return at;
  };
  tier.head = copy(hidden * outputs);
  tier.head_bias = copy(outputs);
  tier.skip = copy(skip);
  return tier;
}

std::size_t GruModel::workers_of(std::size_t columns) const {
  const std::size_t machine = shape_.machine, features = shape_.features;
  if (!shape_.elastic && columns != shape_.columns(shape_.workers))
    throw wrong("window", std::to_string(shape_.columns(shape_.workers)) + " columns",
                std::to_string(columns));
  if (columns <= machine || (columns - machine) % features != 0 || columns > GruShape::kMostColumns)
    throw wrong(
        "window",
        std::to_string(machine) + " columns and " + std::to_string(features) + " for each worker",
        std::to_string(columns));
  return (columns - machine) / features;
}

// The scaled window, missing values filled, and the last value of every worker's target.
void GruModel::prepare(const double* window, std::size_t count, Scratch& s) const {
  const std::size_t columns = shape_.columns(count), steps = shape_.window;
  s.ready.resize(steps * columns);
  s.last.resize(count);
  std::size_t scale_at = 0, feature = 0, worker = 0;
  for (std::size_t c = 0; c < columns; ++c) {
    const GruScale& scale = scales_[scale_at];
    const auto changed = [&scale](double x) {
      return scale.log ? std::log1p(std::max(x, 0.0) / scale.unit) : x;
    };
    double x = std::numeric_limits<double>::quiet_NaN();
    for (std::size_t t = 0; t < steps && !std::isfinite(x); ++t) x = window[t * columns + c];
    const bool known = std::isfinite(x);
    double u = known ? changed(x) : scale.offset;
    for (std::size_t t = 0; t < steps; ++t) {
      const double now = window[t * columns + c];
      if (std::isfinite(now)) u = changed(now);
      const double scaled = (u - scale.offset) * scale.scale;
      s.ready[t * columns + c] =
          static_cast<float>(std::min(std::max(scaled, shape_.low), shape_.high));
    }
    if (c < shape_.machine) {
      ++scale_at;
      continue;
    }
    if (feature == 0) s.last[worker] = known ? u : std::numeric_limits<double>::quiet_NaN();
    ++scale_at;
    if (++feature == shape_.features) {
      feature = 0;
      ++worker;
      if (shape_.elastic) scale_at = shape_.machine;
    }
  }
}

// Runs the layers over s.inputs (step x row x inputs); returns the last layer's h of every step, rows
// of `padded` numbers.
const float* GruModel::run(const Tier& tier, std::size_t rows, Scratch& s) const {
  const Kernels& k = kernels();
  const std::size_t steps = shape_.window;
  for (const Layer& layer : tier.layers) {
    const std::size_t wide = layer.padded, every = steps * rows;
    const bool first = &layer == tier.layers.data();
    s.projected.resize(every * 3 * wide);
    s.gates.resize(rows * 2 * wide);
    s.candidate.resize(rows * wide);
    s.reset.resize(rows * wide);
    const float* const from = first ? s.inputs.data() : s.hidden.data();
    k.multiply({from, first ? layer.inputs : padded(layer.inputs), every, layer.inputs,
                packed_.data() + layer.w, 3 * wide, 3 * wide, packed_.data() + layer.bias, 0,
                s.projected.data(), 3 * wide});
    s.hidden.resize(every * wide);
    s.zero.assign(rows * wide, 0.0f);
    const float* before = s.zero.data();
    for (std::size_t t = 0; t < steps; ++t) {
      float* const projected = s.projected.data() + t * rows * 3 * wide;
      float* const after = s.hidden.data() + t * rows * wide;
      const std::size_t inner = t == 0 ? 0 : layer.hidden;  // h is 0 at first
      k.multiply({before, wide, rows, inner, packed_.data() + layer.gates, 2 * wide, 2 * wide,
                  projected, 3 * wide, s.gates.data(), 2 * wide});
      if (t > 0) k.reset(s.gates.data(), before, rows, wide, s.reset.data());
      k.multiply({s.reset.data(), wide, rows, inner, packed_.data() + layer.candidate, wide, wide,
                  projected + 2 * wide, 3 * wide, s.candidate.data(), wide});
      k.update(s.gates.data(), s.candidate.data(), wide, before, rows, wide, after);
      before = after;
    }
  }
  return s.hidden.data();
}

void GruModel::member(std::size_t index, std::size_t count, Scratch& s) const {
  const std::size_t steps = shape_.window, columns = shape_.columns(count);
  if (shape_.layers1 > 0) {
    const Tier& tier = tier1_[index];
    s.inputs.assign(s.ready.begin(), s.ready.end());
    const float* const h = run(tier, 1, s);
    s.width.resize(steps * shape_.width);
    for (std::size_t t = shape_.layers2 > 0 ? 0 : steps - 1; t < steps; ++t) {
      const float* const row = h + t * padded(shape_.hidden1);
      for (std::size_t o = 0; o < shape_.width; ++o) {
        float sum = packed_[tier.head_bias + o];
        for (std::size_t i = 0; i < shape_.hidden1; ++i)
          sum += row[i] * packed_[tier.head + i * shape_.width + o];
        s.width[t * shape_.width + o] = shape_.layers2 > 0 ? logistic(sum) : sum;
      }
    }
    if (shape_.layers2 == 0) {
      for (std::size_t w = 0; w < count; ++w) add(w, s.width[(steps - 1) * shape_.width + w], s);
      return;
    }
  }
  if (shape_.shared) {
    for (std::size_t from = 0; from < count; from += kMostRows)
      tier2(tier2_[index], from, std::min(kMostRows, count - from), columns, s);
  } else {
    for (std::size_t w = 0; w < count; ++w) tier2(tier2_[index * count + w], w, 1, columns, s);
  }
}

// Adds the outputs of `rows` workers from `first` on.
void GruModel::tier2(const Tier& tier, std::size_t first, std::size_t rows, std::size_t columns,
                     Scratch& s) const {
  const std::size_t steps = shape_.window, wide = padded(shape_.hidden2);
  const std::size_t inputs = shape_.inputs2(), read = shape_.read(), before = inputs - read;
  s.inputs.resize(steps * rows * inputs);
  float* to = s.inputs.data();
  const float* const last = s.ready.data() + (steps - 1) * columns;
  for (std::size_t t = 0; t < steps; ++t) {
    const float* const line = s.ready.data() + t * columns;
    for (std::size_t r = 0; r < rows; ++r) {
      const std::size_t at = shape_.machine + (first + r) * shape_.features;
      for (std::size_t o = 0; o < before; ++o) *to++ = s.width[t * shape_.width + o];
      for (std::size_t f = 0; f < shape_.own; ++f) *to++ = line[at + f];
      for (std::size_t f = 0; f < shape_.common; ++f) *to++ = line[f];
      if (shape_.relative) *to++ = line[at] - last[at];
    }
  }
  const float* const h = run(tier, rows, s) + (steps - 1) * rows * wide;
  for (std::size_t r = 0; r < rows; ++r) {
    float sum = packed_[tier.head_bias];
    for (std::size_t i = 0; i < shape_.hidden2; ++i)
      sum += h[r * wide + i] * packed_[tier.head + i];
    const float* weight = packed_.data() + tier.skip;
    for (std::size_t t = 0; t < steps && shape_.skip; ++t) {
      const float* const line = s.inputs.data() + (t * rows + r) * inputs + before;
      for (std::size_t i = 0; i < read; ++i) sum += line[i] * *weight++;
    }
    add(first + r, sum, s);
  }
}

void GruModel::add(std::size_t worker, float output, Scratch& s) const {
  s.output[worker] += shape_.residual ? output : logistic(output);
}

void GruModel::all_outputs(const double* window, std::size_t count, Scratch& s) const {
  prepare(window, count, s);
  s.output.assign(count, 0.0f);
  for (std::size_t m = 0; m < shape_.members; ++m) member(m, count, s);
  const float share = 1.0f / static_cast<float>(shape_.members);
  for (float& output : s.output) output *= share;
}

void GruModel::predict(const double* window, std::size_t count, double* out) const {
  static thread_local Scratch scratch;
  all_outputs(window, count, scratch);
  for (std::size_t w = 0; w < count; ++w) {
    const GruScale& scale = scales_[shape_.machine + (shape_.elastic ? 0 : w * shape_.features)];
    const double output = static_cast<double>(scratch.output[w]) / scale.scale;
    const double u =
        shape_.residual ? scratch.last[w] + output : output + scale.offset + 0 * scratch.last[w];
    out[w] = scale.log ? scale.unit * std::expm1(u) : u;
  }
}

void GruModel::outputs(const double* window, std::size_t count, float* out) const {
  static thread_local Scratch scratch;
  all_outputs(window, count, scratch);
  for (std::size_t w = 0; w < count; ++w) out[w] = scratch.output[w];
}

bool GruModel::operator==(const GruModel& other) const {
  return shape_ == other.shape_ && names_ == other.names_ && scales_ == other.scales_ &&
         weights_ == other.weights_;
}

std::string GruModel::to_bytes() const {
  Writer out(Kernel::gru, 1);
  const GruShape& s = shape_;
  out.u8(static_cast<std::uint8_t>((s.shared ? 1 : 0) | (s.residual ? 2 : 0) | (s.skip ? 4 : 0) |
                                   (s.relative ? 8 : 0) | (s.elastic ? 16 : 0)));
  for (const std::size_t size : {s.window, s.machine, s.workers, s.features, s.own, s.common,
                                 s.layers1, s.hidden1, s.width, s.layers2, s.hidden2, s.members})
    out.varint(size);
  for (const double number : {s.step, s.low, s.high}) out.f64(number);
  for (const std::string& name : names_) out.sized(name);
  for (const GruScale& scale : scales_) {
    out.u8(scale.log ? 1 : 0);
    for (const double number : {scale.unit, scale.offset, scale.scale}) out.f64(number);
  }
  for (const float weight : weights_) {
    std::uint32_t bits;
    std::memcpy(&bits, &weight, sizeof bits);
    out.u32(bits);
  }
  return std::move(out).finish();
}

GruModel GruModel::from_bytes(std::string_view data) {
  Reader in(data, Kernel::gru, 1);
  GruShape s;
  const std::uint8_t flags = in.u8();
  Reader::check(flags < 32, "flags", "at most 31");
  s.shared = (flags & 1) != 0;
  s.residual = (flags & 2) != 0;
  s.skip = (flags & 4) != 0;
  s.relative = (flags & 8) != 0;
  s.elastic = (flags & 16) != 0;
  const std::pair<const char*, std::size_t*> sizes[] = {
      {"window", &s.window},     {"machine", &s.machine}, {"workers", &s.workers},
      {"features", &s.features}, {"own", &s.own},         {"common", &s.common},
      {"layers1", &s.layers1},   {"hidden1", &s.hidden1}, {"width", &s.width},
      {"layers2", &s.layers2},   {"hidden2", &s.hidden2}, {"members", &s.members}};
  for (const auto& [name, size] : sizes)
    *size = static_cast<std::size_t>(in.varint(name, GruShape::kMostColumns));
  s.step = in.f64();
  s.low = in.f64();
  s.high = in.f64();
  try {
    s.check();
    // Nothing is allocated for what cannot be there.
    const std::size_t least =
        s.machine + s.features + 25 * s.scales() + 4 * s.members * s.weights();
    Reader::check(in.left() >= least, "data", "as many bytes as its sizes ask for");
    std::vector<std::string> names(s.machine + s.features);
    for (std::string& name : names) name = in.sized("name");
    std::vector<GruScale> scales(s.scales());
    for (GruScale& scale : scales) {
      const std::uint8_t log = in.u8();
      Reader::check(log < 2, "log", "0 or 1");
      scale.log = log == 1;
      scale.unit = in.f64();
      scale.offset = in.f64();
      scale.scale = in.f64();
    }
    Reader::check(in.left() == 4 * s.members * s.weights(), "weights",
                  "as many as the sizes ask for");
    std::vector<float> weights(s.members * s.weights());
    for (float& weight : weights) {
      const std::uint32_t bits = in.u32();
      std::memcpy(&weight, &bits, sizeof bits);
    }
    in.end();
    return GruModel(s, std::move(names), std::move(scales), std::move(weights));
  } catch (const std::invalid_argument& error) {
    throw FormatError(error.what());
  }
}

}  // namespace pyroute
