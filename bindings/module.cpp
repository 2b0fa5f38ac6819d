// pyroute._core: one bind_x(m) call per kernel.
#include <cstdlib>

#include "arrays.hpp"
#include "simd.hpp"

namespace pyroute {
void bind_keys(py::module_& m);
void bind_space_saving(py::module_& m);
void bind_cost_sketch(py::module_& m);
void bind_key_stats(py::module_& m);
void bind_ring(py::module_& m);
void bind_dynamic_grouping(py::module_& m);
void bind_homes(py::module_& m);
void bind_router(py::module_& m);
void bind_planner(py::module_& m);
void bind_plan(py::module_& m);
void bind_key_group(py::module_& m);
void bind_colocate(py::module_& m);
void bind_posg(py::module_& m);
void bind_gru(py::module_& m);
}  // namespace pyroute

PYBIND11_MODULE(_core, m) {
  using namespace pyroute;
  m.doc() = "The native kernels of pyroute. Use the package pyroute: these names may change.";
  py::register_exception<FormatError>(m, "FormatError", PyExc_ValueError);
  py::register_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const TypeMismatch& mismatch) {
      py::set_error(PyExc_TypeError, mismatch.what());
    }
  });
  const char* const wish = std::getenv("PYROUTE_SIMD");
  choose_simd(wish != nullptr ? wish : "");
  m.def("simd", [] { return std::string(simd_name()); });
  bind_keys(m);
  bind_space_saving(m);
  bind_cost_sketch(m);
  bind_key_stats(m);
  bind_ring(m);
  bind_dynamic_grouping(m);
  bind_homes(m);
  bind_router(m);
  bind_planner(m);
  bind_plan(m);
  bind_key_group(m);
  bind_colocate(m);
  bind_posg(m);
  bind_gru(m);
}
