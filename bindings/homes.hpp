// Homes and routers as Python holds them: a home is shared with every router over it.
#pragma once

#include "keys.hpp"
#include "route/router.hpp"

namespace pyroute {

struct HomeBox {
  std::shared_ptr<const Home> home;
};
struct RingBox : HomeBox {
  explicit RingBox(Ring ring) : HomeBox{std::make_shared<const Home>(std::move(ring))} {}
  explicit RingBox(std::shared_ptr<const Home> shared) : HomeBox{std::move(shared)} {}
  [[nodiscard]] const Ring& ring() const { return std::get<Ring>(*home); }
};
struct EngineBox : HomeBox {
  explicit EngineBox(EngineHome engine)
      : HomeBox{std::make_shared<const Home>(std::move(engine))} {}
  explicit EngineBox(std::shared_ptr<const Home> shared) : HomeBox{std::move(shared)} {}
  [[nodiscard]] const EngineHome& engine() const { return std::get<EngineHome>(*home); }
};

struct RouterBox {
  std::shared_ptr<const Router> router;
};

using Weights = std::vector<std::pair<TaskId, double>>;

[[nodiscard]] inline std::vector<Weighted> weighted(const Weights& tasks) {
  std::vector<Weighted> out;
  for (const auto& [task, weight] : tasks) out.push_back({task, weight});
  return out;
}

}  // namespace pyroute
