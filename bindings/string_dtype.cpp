// NumPy's variable-width strings, the one dtype that needs NumPy's own C API. Text is copied: an
// array changed by another thread while the GIL is released may move its characters.
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL pyroute_numpy_api
#include <numpy/arrayobject.h>

#include "keys.hpp"

namespace pyroute {

Column column_from_string_dtype(const py::array& source, Holds& holds) {
  if (PyArray_ImportNumPyAPI() < 0) throw py::error_already_set();
  auto* const array = reinterpret_cast<PyArrayObject*>(source.ptr());
  auto* const descr = reinterpret_cast<PyArray_StringDTypeObject*>(PyArray_DESCR(array));
  OwnText text;
  OwnValidity validity;
  bool failed = false;
  npy_string_allocator* const allocator = NpyString_acquire_allocator(descr);
  const char* at = PyArray_BYTES(array);
  for (npy_intp i = 0; i < PyArray_SIZE(array) && !failed; ++i, at += PyArray_STRIDE(array, 0)) {
    npy_static_string item{0, nullptr};
    const int null =
        NpyString_load(allocator, reinterpret_cast<const npy_packed_static_string*>(at), &item);
    failed = null < 0;
    if (null > 0 && descr->has_string_na) item = descr->default_string;
    const bool missing = null > 0 && !descr->has_string_na;
    validity.add(!missing);
    text.add(missing ? std::string_view() : std::string_view(item.buf, item.size));
  }
  NpyString_release_allocator(allocator);
  if (failed) throw py::value_error("values: expected readable NumPy strings, got damaged ones");
  Column out{.kind = Kind::text, .layout = Layout::offsets64};
  out.size = static_cast<std::size_t>(PyArray_SIZE(array));
  const OwnText& kept = keep(holds, std::move(text));
  out.data = kept.characters.data();
  out.offsets = kept.offsets.data();
  if (validity.any_null) out.validity = keep(holds, std::move(validity)).bits.data();
  return out;
}

}  // namespace pyroute
