// Which SIMD path the kernels take: chosen once, at import, from what the machine has.
//
// Every path gives equal results (test simd_equal and the kernel tests under each path). Functions
// of a path carry __attribute__((target(...))); no file is compiled for a newer machine as a whole,
// because the linker may then keep such a copy of an inline function for everybody.
// Threads: choose_simd() is called once, before any kernel; simd() may be read by any thread.
#pragma once

#include <string_view>

namespace pyroute {

enum class Simd : int { portable = 0, avx2 = 1, avx512 = 2 };

[[nodiscard]] Simd simd() noexcept;
[[nodiscard]] std::string_view simd_name() noexcept;

// "" takes the best there is; a name forces that path. Throws std::invalid_argument for a name that
// is unknown or that this machine does not have.
void choose_simd(std::string_view name);

#if defined(__x86_64__)
#define PYROUTE_X86 1
#define PYROUTE_AVX2 __attribute__((target("avx2,bmi,bmi2")))
#define PYROUTE_AVX512 \
  __attribute__((target("avx2,bmi,bmi2,avx512f,avx512dq,avx512vl,prefer-vector-width=512")))
#else
#define PYROUTE_X86 0
#endif

}  // namespace pyroute
