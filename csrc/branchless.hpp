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

// Unless value < limit, value and tag become the others.
[[gnu::always_inline]] inline void replace_unless_less(std::int64_t& value, std::uint64_t& tag,
                                                       std::int64_t limit, std::int64_t other,
                                                       std::uint64_t other_tag) noexcept {
#if defined(__x86_64__)
  __asm__("cmpq %[limit], %[value]\n\tcmovgeq %[other], %[value]\n\tcmovgeq %[other_tag], %[tag]"
          : [value] "+&r"(value), [tag] "+&r"(tag)
          : [limit] "r"(limit), [other] "r"(other), [other_tag] "r"(other_tag)
          : "cc");
#else
  const std::uint64_t keep = ones_if(value < limit);
  value = other ^ static_cast<std::int64_t>(static_cast<std::uint64_t>(value ^ other) & keep);
  tag = other_tag ^ ((tag ^ other_tag) & keep);
#endif
}

}  // namespace pyroute
