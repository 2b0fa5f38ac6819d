// A choice that the compiler may not turn into a branch: where the condition is as good as random,
// a branch is mispredicted every other time, which costs more than the kernels around it.
#pragma once

#include <cstdint>

namespace pyroute {

// All bits set where the condition holds, else none.
[[gnu::always_inline]] inline std::uint64_t ones_if(bool condition) noexcept {
  std::uint64_t mask = std::uint64_t{0} - static_cast<std::uint64_t>(condition);
  __asm__("" : "+r"(mask));  // hides that it is one of two values
  return mask;
}

}  // namespace pyroute
