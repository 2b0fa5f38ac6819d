#include "simd.hpp"

#include <stdexcept>
#include <string>

namespace pyroute {
namespace {

Simd best() noexcept {
#if PYROUTE_X86
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return Simd::avx512;
  if (avx2) return Simd::avx2;
#endif
  return Simd::portable;
}

Simd chosen = best();

constexpr std::string_view kNames[] = {"portable", "avx2", "avx512"};

}  // namespace

Simd simd() noexcept { return chosen; }

std::string_view simd_name() noexcept { return kNames[static_cast<int>(chosen)]; }

void choose_simd(std::string_view name) {
  if (name.empty()) {
    chosen = best();
    return;
  }
  for (int path = 0; path < 3; ++path) {
    if (kNames[path] != name) continue;
    if (path > static_cast<int>(best()))
      throw std::invalid_argument("PYROUTE_SIMD: expected a path this machine has, got " +
                                  std::string(name));
    chosen = static_cast<Simd>(path);
    return;
  }
  throw std::invalid_argument("PYROUTE_SIMD: expected portable, avx2 or avx512, got " +
                              std::string(name));
}

}  // namespace pyroute
