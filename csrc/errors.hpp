// What a kernel throws besides std::invalid_argument (a wrong value) and std::bad_alloc. Every
// message says name, expected, got. bindings/errors.hpp maps them to Python's exceptions.
#pragma once

#include <stdexcept>

namespace pyroute {

struct TypeMismatch : std::invalid_argument {  // Python: TypeError
  using std::invalid_argument::invalid_argument;
};

struct FormatError : std::runtime_error {  // bytes that are not what they claim to be
  using std::runtime_error::runtime_error;
};

}  // namespace pyroute
