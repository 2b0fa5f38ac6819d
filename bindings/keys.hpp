// Keys: identity as a type. Holds the columns it was made from, so that engines' homes and names
// have the values; ids are computed block by block by whoever needs them, and kept once asked for.
#pragma once

#include <memory>

#include "arrays.hpp"
#include "column.hpp"
#include "value_list.hpp"

namespace pyroute {

// What a column borrows from: Python objects, Arrow arrays, or memory of our own.
struct Holds {
  std::vector<py::object> objects;
  std::vector<std::shared_ptr<void>> memory;
};

class Keys {
 public:
  Keys(Batch batch, Holds holds) : batch_(std::move(batch)), holds_(std::move(holds)) {}
  [[nodiscard]] const Batch& batch() const noexcept { return batch_; }
  // Threads: called with the GIL held.
  [[nodiscard]] std::span<const Key> ids();

 private:
  Batch batch_;
  Holds holds_;
  std::unique_ptr<Key[]> ids_;  // not a vector: it would be zeroed first
};

// The chunks of one column. Throws py::type_error for what has no identity, naming `name`.
[[nodiscard]] std::vector<Column> column_from_arrow(const py::object& source, const char* name,
                                                    Holds& holds);
[[nodiscard]] std::vector<Column> column_from_numpy(const py::array& source, const char* name,
                                                    Holds& holds);
// A list of NumPy StringDType; its own file, because it needs NumPy's C API.
[[nodiscard]] Column column_from_string_dtype(const py::array& source, Holds& holds);
// One or, for tuples, several columns.
[[nodiscard]] std::vector<std::vector<Column>> columns_from_list(const py::object& source,
                                                                 const char* name, Holds& holds);

// The value of an encoding (value.hpp) as a Python object.
[[nodiscard]] py::object to_python(std::string_view encoded);
[[nodiscard]] py::list to_python(const std::vector<std::string>& encoded);
[[nodiscard]] py::list names_of(std::span<const Key> ids, const ValueList& names);

// A text or bytes column of our own: characters and one more offset than rows.
struct OwnText {
  std::string characters;
  std::vector<std::int64_t> offsets{0};
  void add(std::string_view text) {
    characters += text;
    offsets.push_back(static_cast<std::int64_t>(characters.size()));
  }
};

// Marks rows as null in a bitmap of our own.
struct OwnValidity {
  std::vector<std::uint8_t> bits;
  bool any_null = false;
  std::size_t size = 0;
  void add(bool valid) {
    if (size % 8 == 0) bits.push_back(0);
    if (valid) bits.back() = static_cast<std::uint8_t>(bits.back() | 1u << (size % 8));
    any_null = any_null || !valid;
    ++size;
  }
};

template <class T>
const T& keep(Holds& holds, T value) {
  auto owned = std::make_shared<T>(std::move(value));
  holds.memory.push_back(owned);
  return *owned;
}

}  // namespace pyroute
