#include "plan/discretize.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

namespace pyroute {

void check_degree(std::int64_t degree) {
  if (degree < 1 || degree > (std::int64_t{1} << 30) ||
      !std::has_single_bit(static_cast<std::uint64_t>(degree)))
    throw std::invalid_argument("degree: expected a power of two from 1 to 2^30, got " +
                                std::to_string(degree));
}

void discretize(std::span<const double> values, std::int64_t degree, std::span<double> out) {
  std::vector<std::uint32_t> order;
  order.reserve(values.size());
  double unit = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    out[i] = 0;
    if (!(values[i] > 0)) continue;
    order.push_back(static_cast<std::uint32_t>(i));
    unit = unit == 0 ? values[i] : std::min(unit, values[i]);
  }
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
  if (order.empty()) return;
  unit = std::max(unit, std::ldexp(values[order.front()], -52));
  // Where the greatest is below R the step is 1: there is no halving part then.
  const double greatest = values[order.front()] / unit;
  const double step = greatest < static_cast<double>(degree) ? 1 : static_cast<double>(degree);
  const double top = std::floor(greatest / step) * step;
  double deviation = 0;
  for (const std::uint32_t i : order) {
    const double x = std::max(values[i] / unit, 1.0);
    double rounded = top;
    if (x < top) {
      double lower, upper;
      if (x >= step) {
        lower = std::floor(x / step) * step;
        upper = lower + step;
      } else {
        lower = std::exp2(std::floor(std::log2(x)));
        if (lower > x) lower /= 2;  // log2 is rounded
        if (2 * lower <= x) lower *= 2;
        upper = 2 * lower;
      }
      const double with_lower = deviation + (x - lower), with_upper = deviation + (x - upper);
      rounded = std::abs(with_upper) < std::abs(with_lower) ? upper : lower;
    }
    deviation += x - rounded;
    out[i] = rounded * unit;
  }
}

}  // namespace pyroute
