// NumPy <-> std::span. Nothing here decides anything.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "errors.hpp"
#include "ids.hpp"

namespace pyroute {

namespace py = pybind11;
using namespace pybind11::literals;

template <class T>
using Array = py::array_t<T, py::array::c_style | py::array::forcecast>;

template <class T>
[[nodiscard]] std::span<const T> view(const Array<T>& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}

[[nodiscard]] inline std::string_view view(const py::bytes& data) { return data; }

template <class T>
[[nodiscard]] std::vector<T> vector_of(const Array<T>& array) {
  const auto values = view(array);
  return {values.begin(), values.end()};
}

template <class T>
[[nodiscard]] Array<T> fresh(std::size_t size) {
  return Array<T>(static_cast<py::ssize_t>(size));
}

template <class T>
[[nodiscard]] std::span<T> fill(Array<T>& array) {
  return {array.mutable_data(), static_cast<std::size_t>(array.size())};
}

// A read-only array over memory that `owner` keeps alive.
template <class T>
[[nodiscard]] py::array readonly(std::span<const T> data, const py::object& owner) {
  py::array out(py::dtype::of<T>(), {static_cast<py::ssize_t>(data.size())},
                {static_cast<py::ssize_t>(sizeof(T))}, data.data(), owner);
  py::detail::array_proxy(out.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
  return out;
}

template <class T>
[[nodiscard]] py::array copied(std::span<const T> data) {
  return py::array(static_cast<py::ssize_t>(data.size()), data.data());
}

template <class T>
[[nodiscard]] py::array copied(const std::vector<T>& data) {
  return copied(std::span<const T>(data));
}

// A read-only view of a kernel's column, for a property.
template <class K, class T>
[[nodiscard]] auto column(std::vector<T> K::* member) {
  return [member](const py::object& self) {
    return readonly(std::span<const T>(self.cast<const K&>().*member), self);
  };
}

// For long work without the GIL: throws where the user pressed Ctrl-C.
inline void check_signals() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// A mutable kernel with its lock. Order: release the GIL first, then lock; the other order
// deadlocks.
template <class K>
struct Locked {
  template <class... Args>
  explicit Locked(Args&&... args) : kernel(std::forward<Args>(args)...) {}
  K kernel;
  mutable std::mutex mutex;

  template <class Body>
  decltype(auto) with(Body&& body) {
    py::gil_scoped_release nogil;
    const std::lock_guard lock(mutex);
    return body(kernel);
  }
  template <class Body>
  decltype(auto) with(Body&& body) const {
    py::gil_scoped_release nogil;
    const std::lock_guard lock(mutex);
    return body(kernel);
  }
  void merge(const Locked& other) {
    py::gil_scoped_release nogil;
    if (&other == this) {
      const std::lock_guard lock(mutex);
      const K copy = kernel;
      kernel.merge(copy);
      return;
    }
    const std::scoped_lock lock(mutex, other.mutex);
    kernel.merge(other.kernel);
  }
  [[nodiscard]] bool equals(const Locked& other) const {
    if (&other == this) return true;
    py::gil_scoped_release nogil;
    const std::scoped_lock lock(mutex, other.mutex);
    return kernel == other.kernel;
  }
};

// merge, decay, reset, ==, bytes and pickling, which all mutable kernels have alike.
template <class K, class Class>
void bind_bytes(Class& c) {
  c.def("to_bytes",
        [](const Locked<K>& self) {
          return py::bytes(self.with([](const K& kernel) { return kernel.to_bytes(); }));
        })
      .def_static(
          "from_bytes",
          [](const py::bytes& data) {
            const std::string_view bytes = view(data);
            py::gil_scoped_release nogil;
            return std::make_unique<Locked<K>>(K::from_bytes(bytes));
          },
          "data"_a, py::pos_only())
      .def("equals", &Locked<K>::equals, "other"_a, py::pos_only());
}

template <class K, class Class>
void bind_sketch(Class& c) {
  bind_bytes<K>(c);
  c.def("merge", &Locked<K>::merge, "other"_a, py::pos_only())
      .def(
          "decay",
          [](Locked<K>& self, double factor) {
            self.with([&](K& kernel) { kernel.decay(factor); });
          },
          "factor"_a, py::pos_only())
      .def("reset", [](Locked<K>& self) { self.with([](K& kernel) { kernel.reset(); }); });
}

}  // namespace pyroute
