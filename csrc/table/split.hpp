// A key with several owners, where the work is declared mergeable. Threads: plain value.
#pragma once

#include <vector>

#include "ids.hpp"

namespace pyroute {

struct Split {
  Key id;
  std::vector<TaskId> tasks;  // in the order given
  [[nodiscard]] bool operator==(const Split&) const = default;
};

}  // namespace pyroute
