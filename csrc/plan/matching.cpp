#include "plan/matching.hpp"

#include <limits>

namespace pyroute {

std::vector<Position> best_matching(std::span<const std::int64_t> kept, std::size_t n) {
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  // Rows and columns from 1; column 0 holds the row that is being placed. Costs are -kept.
  std::vector<std::int64_t> row_price(n + 1), column_price(n + 1);
  std::vector<std::size_t> row_of(n + 1), came_from(n + 1);
  for (std::size_t i = 1; i <= n; ++i) {
    row_of[0] = i;
    std::size_t column = 0;
    std::vector<std::int64_t> least(n + 1, kFar);
    std::vector<std::uint8_t> seen(n + 1);
    do {
      seen[column] = 1;
      const std::size_t row = row_of[column];
      std::int64_t step = kFar;
      std::size_t next = 0;
      for (std::size_t j = 1; j <= n; ++j) {
        if (seen[j] != 0) continue;
        const std::int64_t cost = -kept[(row - 1) * n + (j - 1)] - row_price[row] - column_price[j];
        if (cost < least[j]) {
          least[j] = cost;
          came_from[j] = column;
        }
        if (least[j] < step) {
          step = least[j];
          next = j;
        }
      }
      for (std::size_t j = 0; j <= n; ++j) {
        if (seen[j] != 0) {
          row_price[row_of[j]] += step;
          column_price[j] -= step;
        } else {
          least[j] -= step;
        }
      }
      column = next;
    } while (row_of[column] != 0);
    while (column != 0) {
      const std::size_t before = came_from[column];
      row_of[column] = row_of[before];
      column = before;
    }
  }
  std::vector<Position> out(n);
  for (std::size_t j = 1; j <= n; ++j) out[row_of[j] - 1] = static_cast<Position>(j - 1);
  return out;
}

}  // namespace pyroute
