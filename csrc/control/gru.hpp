// Forecast of one number per worker by stacks of GRU layers: the flat DRNN and the I-DRNN of paper
// 003, and the residual variant, trained elsewhere and run here.
//
// A window is `window` time steps of machine + workers * features columns: those of the machine,
// then those of each worker, whose first is the target. Every column is made ready alike:
//
//   missing    a value that is not finite is that of the step before; before the first finite one
//              it is the first finite one; in a column without any it is the offset
//   log        where the column says so, ln(1 + max(x, 0) / unit)
//   scale      (x - offset) * scale, then clipped to low..high
//
// Tier 1 (layers1 > 0) reads all columns and gives `width` numbers at every step. Without a tier 2
// these are the workers' outputs: the flat DRNN. Tier 2 (layers2 > 0) runs once per worker and reads
// the sigmoid of tier 1's numbers, the first `own` columns of the worker, the first `common` of the
// machine and, if `relative`, how far the scaled target is from its last value; the last hidden
// state times a weight is the output; with `skip`, a linear layer over all the steps it reads
// (without tier 1's numbers) is added. Weights of tier 2 are one set (`shared`) or one per worker.
// A GRU layer, h starting at 0 (the paper's equations 1 to 4, with a bias: trap P4):
//
//   r = sigmoid(x W_r + h U_r + b_r)    z = sigmoid(x W_z + h U_z + b_z)
//   c = tanh(x W_c + (r * h) U_c + b_c)    h' = (1 - z) * h + z * c
//
// The forecast, in the scale of the target: its last value (not clipped) plus the output if
// `residual`, else the sigmoid of the output; the mean of all members; then scale and log undone. A
// worker whose target is missing in the whole window gets NaN.
//
// An `elastic` model (no tier 1, shared) has one scale per feature and takes any number of workers;
// others have one scale per column.
//
// Guarantees, each a test of that name in tests/test_gru.py:
//   matches_reference  equal to plain NumPy in float64 within 1e-5 of the target's scale (and to
//                      the network in JAX that was trained: tests/control/test_predictor.py)
//   paths_agree        SIMD paths differ by rounding alone (fused multiply-add rounds once): 2e-6
//   missing_is_filled  one worker's missing values leave the others' forecasts finite
//   any_workers        an elastic model forecasts each worker as if it were alone
// sigmoid and tanh are within 3e-7 of the exact ones.
// Cost: per step and layer 3 * hidden * (inputs + hidden) multiply-adds a row, a row being a worker
// in tier 2; no allocation after the first call of a thread. Threads: immutable, any number may
// predict.
//
// Payload, version 1 (sizes are varints, weights f32, the frame is that of bytes.hpp):
//
//   flags u8: 1 shared, 2 residual, 4 skip, 8 relative, 16 elastic
//   window | machine | workers | features | own | common
//   layers1 | hidden1 | width | layers2 | hidden2 | members
//   step f64 (seconds between two steps) | low f64 | high f64
//   machine + features names, sized UTF-8
//   per column (elastic: machine + features, else machine + workers * features):
//     log u8 | unit f64 | offset f64 | scale f64
//   per member: weights of tier 1's layers, of its head, of every tier 2
//     a layer: W inputs x 3 hidden, U hidden x 3 hidden, b 3 hidden; rows, gates in order r, z, c
//     head of tier 1: hidden1 x width, width
//     tier 2: layers, hidden2, 1, skip: window x (own + common + relative)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pyroute {

struct GruShape {
  std::size_t window = 1, machine = 0, workers = 1, features = 1, own = 1, common = 0;
  std::size_t layers1 = 0, hidden1 = 0, width = 0, layers2 = 0, hidden2 = 0, members = 1;
  bool shared = true, residual = true, skip = false, relative = false, elastic = false;
  double step = 1, low = -1e300, high = 1e300;

  static constexpr std::size_t kMostWindow = 1024, kMostColumns = 1 << 20, kMostHidden = 1024,
                               kMostLayers = 8, kMostMembers = 64;

  // Throws std::invalid_argument for sizes out of their range or that contradict each other.
  void check() const;
  [[nodiscard]] std::size_t read() const { return own + common + (relative ? 1 : 0); }
  [[nodiscard]] std::size_t inputs2() const { return read() + (layers1 > 0 ? width : 0); }
  [[nodiscard]] std::size_t scales() const {
    return machine + (elastic ? features : workers * features);
  }
  [[nodiscard]] std::size_t columns(std::size_t count) const { return machine + count * features; }
  // Weights of one member.
  [[nodiscard]] std::size_t weights() const;
  bool operator==(const GruShape&) const = default;
};

struct GruScale {
  bool log = false;
  double unit = 1, offset = 0, scale = 1;
  bool operator==(const GruScale&) const = default;
};

class GruModel {
 public:
  // Names are those of the machine's columns, then of a worker's. Throws std::invalid_argument for a
  // number of names, scales or weights that does not fit the shape, and for values that are not
  // finite; units and scales must be above 0.
  GruModel(const GruShape& shape, std::vector<std::string> names, std::vector<GruScale> scales,
           std::vector<float> weights);

  // How many workers a window of so many columns has. Throws std::invalid_argument if it has none
  // or the wrong number.
  [[nodiscard]] std::size_t workers_of(std::size_t columns) const;
  // Precondition: window has shape().window rows of columns(count) values; out has count places.
  void predict(const double* window, std::size_t count, double* out) const;
  // The same in the scale of the target and without the last value: what the networks give, the
  // change or the level, as the mean of the members.
  void outputs(const double* window, std::size_t count, float* out) const;

  [[nodiscard]] const GruShape& shape() const noexcept { return shape_; }
  [[nodiscard]] std::span<const std::string> names() const noexcept { return names_; }
  [[nodiscard]] std::span<const GruScale> scales() const noexcept { return scales_; }
  [[nodiscard]] std::span<const float> weights() const noexcept { return weights_; }
  [[nodiscard]] bool operator==(const GruModel& other) const;

  [[nodiscard]] std::string to_bytes() const;
  [[nodiscard]] static GruModel from_bytes(std::string_view data);

 private:
  // One layer as the kernels read it: every row of W, of U's r and z columns and of U's c columns,
  // hidden units padded with zeros to whole vectors of the widest path.
  struct Layer {
    std::size_t inputs, hidden, padded;
    std::size_t w, gates, candidate, bias;  // where in packed_
  };
  struct Tier {
    std::vector<Layer> layers;
    std::size_t head, head_bias, skip;  // where in packed_
  };
  struct Scratch;

  Tier pack(std::size_t layers, std::size_t inputs, std::size_t hidden, std::size_t outputs,
            std::size_t skip, const float*& from);
  const float* run(const Tier& tier, std::size_t rows, Scratch& s) const;
  void member(std::size_t index, std::size_t count, Scratch& s) const;
  void tier2(const Tier& tier, std::size_t first, std::size_t rows, std::size_t columns,
             Scratch& s) const;
  void add(std::size_t worker, float output, Scratch& s) const;
  void prepare(const double* window, std::size_t count, Scratch& s) const;
  void all_outputs(const double* window, std::size_t count, Scratch& s) const;

  GruShape shape_;
  std::vector<std::string> names_;
  std::vector<GruScale> scales_;
  std::vector<float> weights_;
  std::vector<float> packed_;
  std::vector<Tier> tier1_, tier2_;  // per member; tier 2 per member and network
};

}  // namespace pyroute
