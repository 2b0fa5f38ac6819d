// Keys from NumPy arrays and Python lists, and Python objects from values.
// clang-format off: datetime.h needs Python.h before it
#include <Python.h>
#include <datetime.h>
// clang-format on
#include <pybind11/gil_safe_call_once.h>

#include "keys.hpp"

namespace pyroute {
namespace {

constexpr std::int64_t kMicrosPerDay = 86'400'000'000;

std::string type_name(const py::handle& object) { return Py_TYPE(object.ptr())->tp_name; }

// ---- NumPy ----

Layout integer_layout(char kind, py::ssize_t size) {
  const bool is_signed = kind == 'i';
  switch (size) {
    case 1:
      return is_signed ? Layout::i8 : Layout::u8;
    case 2:
      return is_signed ? Layout::i16 : Layout::u16;
    case 4:
      return is_signed ? Layout::i32 : Layout::u32;
    default:
      return is_signed ? Layout::i64 : Layout::u64;
  }
}

// astype wraps around where the value does not fit; the way back shows it.
py::array converted(const py::array& source, const char* dtype, const char* name) {
  const py::array out = source.attr("astype")(dtype);
  const py::module_ numpy = py::module_::import("numpy");
  const py::object same = numpy.attr("logical_or")(
      out.attr("astype")(source.dtype()).attr("__eq__")(source), numpy.attr("isnat")(source));
  if (!same.attr("all")().cast<bool>())
    throw py::value_error(std::string(name) + ": expected times within " + dtype +
                          ", got one beyond");
  return out;
}

Column datetime_column(py::array& source, const char* name) {
  const auto unit = py::str(source.dtype().attr("str")).cast<std::string>();  // "<M8[us]"
  const std::size_t open = unit.find('[');
  const std::string step =
      open == std::string::npos ? "" : unit.substr(open + 1, unit.size() - open - 2);
  Column out{.kind = Kind::timestamp, .layout = Layout::i64, .nat_is_null = true};
  if (step == "s")
    out.scale = Scale::times1000000;
  else if (step == "ms")
    out.scale = Scale::times1000;
  else if (step == "ns")
    out.scale = Scale::exact_div1000;
  else if (step == "D")
    out.kind = Kind::date;
  else if (step == "Y" || step == "M" || step == "W") {
    source = converted(source, "datetime64[D]", name);
    out.kind = Kind::date;
  } else if (step == "h" || step == "m") {
    source = converted(source, "datetime64[us]", name);
  } else if (step.empty()) {  // NaT alone has no unit
    source = source.attr("astype")("datetime64[us]");
  } else if (step != "us") {
    throw py::type_error(std::string(name) +
                         ": expected datetime64 in years to nanoseconds, got unit " + step);
  }
  return out;
}

}  // namespace

std::vector<Column> column_from_numpy(const py::array& given, const char* name, Holds& holds) {
  if (given.ndim() != 1)
    throw py::value_error(std::string(name) + ": expected one dimension, got " +
                          std::to_string(given.ndim()));
  py::array source = given;
  const char kind = source.dtype().kind();
  Column out;
  switch (kind) {
    case 'i':
    case 'u':
      out = {.kind = Kind::integer, .layout = integer_layout(kind, source.itemsize())};
      break;
    case 'b':
      out = {.kind = Kind::boolean, .layout = Layout::u8};
      break;
    case 'M':
      out = datetime_column(source, name);
      break;
    case 'U':
      out = {.kind = Kind::text, .layout = Layout::ucs4};
      break;
    case 'S':
      out = {.kind = Kind::bytes, .layout = Layout::padded};
      break;
    case 'T':
      return {column_from_string_dtype(source, holds)};
    case 'f':
    case 'c':
      throw py::type_error(std::string(name) + ": expected integers, text, bytes or times, got " +
                           py::str(source.dtype()).cast<std::string>() +
                           " (0.1 + 0.2 is not 0.3: convert to integers or to text first)");
    default:
      throw py::type_error(std::string(name) + ": expected integers, text, bytes or times, got " +
                           py::str(source.dtype()).cast<std::string>());
  }
  if (source.dtype().byteorder() == '>')
    source = source.attr("astype")(source.dtype().attr("newbyteorder")("="));
  source = py::module_::import("numpy").attr("ascontiguousarray")(source);
  out.size = static_cast<std::size_t>(source.size());
  out.width = static_cast<std::size_t>(source.itemsize());
  out.data = source.data();
  if (out.width == 0) {  // "U0", "S0": every value is empty
    const auto& text = keep(holds, OwnText{"", std::vector<std::int64_t>(out.size + 1)});
    out.layout = Layout::offsets64;
    out.offsets = text.offsets.data();
    out.data = text.characters.data();
  }
  holds.objects.push_back(source);
  return {out};
}

namespace {

// ---- lists ----

struct PythonTypes {
  py::object uuid, decimal, np_bool, np_datetime;
};

const PythonTypes& python_types() {
  PYBIND11_CONSTINIT static py::gil_safe_call_once_and_store<PythonTypes> storage;
  return storage
      .call_once_and_store_result([] {
        const auto numpy = py::module_::import("numpy");
        return PythonTypes{py::module_::import("uuid").attr("UUID"),
                           py::module_::import("decimal").attr("Decimal"), numpy.attr("bool_"),
                           numpy.attr("datetime64")};
      })
      .get_stored();
}

std::int64_t days_from_civil(int year, int month, int day) noexcept {
  const std::int64_t y = year - (month <= 2 ? 1 : 0);
  const std::int64_t era = (y >= 0 ? y : y - 399) / 400;
  const std::int64_t of_era = y - era * 400;
  const std::int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

std::int64_t micros_of(PyObject* item) {
  std::int64_t micros =
      days_from_civil(PyDateTime_GET_YEAR(item), PyDateTime_GET_MONTH(item),
                      PyDateTime_GET_DAY(item)) *
          kMicrosPerDay +
      (PyDateTime_DATE_GET_HOUR(item) * 3600LL + PyDateTime_DATE_GET_MINUTE(item) * 60LL +
       PyDateTime_DATE_GET_SECOND(item)) *
          1'000'000LL +
      PyDateTime_DATE_GET_MICROSECOND(item);
  const py::object offset = py::handle(item).attr("utcoffset")();
  if (!offset.is_none())
    micros -= PyDateTime_DELTA_GET_DAYS(offset.ptr()) * kMicrosPerDay +
              PyDateTime_DELTA_GET_SECONDS(offset.ptr()) * 1'000'000LL +
              PyDateTime_DELTA_GET_MICROSECONDS(offset.ptr());
  return micros;
}

// A list column as it grows: the kind of its first value that is not None, and numbers or text.
class ListColumn {
 public:
  explicit ListColumn(const char* name) : name_(name) {}

  void add(PyObject* item) {
    if (item == Py_None) {
      add_null();
    } else if (PyUnicode_Check(item)) {
      add_text(item);
    } else if (PyBool_Check(item)) {
      add_number(Kind::boolean, item == Py_True ? 1 : 0, "bool");
    } else if (PyLong_Check(item)) {
      add_integer(item);
    } else if (PyBytes_Check(item)) {
      add_bytes({PyBytes_AS_STRING(item), static_cast<std::size_t>(PyBytes_GET_SIZE(item))});
    } else {
      add_other(item);
    }
  }

  [[nodiscard]] Column finish(Holds& holds) {
    Column out{.kind = kind_, .size = validity_.size};
    if (kind_ == Kind::null) return out;
    if (is_number(kind_)) {
      out.layout = Layout::i64;
      out.data = keep(holds, std::move(numbers_)).data();
    } else {
      out.layout = Layout::offsets64;
      const OwnText& text = keep(holds, std::move(text_));
      out.data = text.characters.data();
      out.offsets = text.offsets.data();
    }
    if (validity_.any_null) out.validity = keep(holds, std::move(validity_)).bits.data();
    return out;
  }

 private:
  void add_null() {
    validity_.add(false);
    if (is_number(kind_))
      numbers_.push_back(0);
    else if (kind_ != Kind::null)
      text_.add("");
  }

  void expect(Kind kind, const std::string& type) {
    if (kind_ == kind) return;
    if (kind_ != Kind::null)
      throw py::type_error(std::string(name_) + ": expected values of one type, got " +
                           first_type_ + " in row " + std::to_string(first_row_) + " and " + type +
                           " in row " + std::to_string(validity_.size));
    kind_ = kind;
    first_type_ = type;
    first_row_ = validity_.size;
    if (is_number(kind))
      numbers_.resize(validity_.size);
    else
      for (std::size_t i = 0; i < validity_.size; ++i) text_.add("");
  }

  void add_number(Kind kind, std::int64_t number, const std::string& type) {
    expect(kind, type);
    numbers_.push_back(number);
    validity_.add(true);
  }

  void add_integer(PyObject* item) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(item, &overflow);
    if (overflow != 0)
      throw py::value_error(std::string(name_) +
                            ": expected integers of 64 bits, got a larger one " + "in row " +
                            std::to_string(validity_.size));
    if (number == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
    add_number(Kind::integer, number, "int");
  }

  void add_text(PyObject* item) {
    expect(Kind::text, "str");
    if (PyUnicode_IS_COMPACT_ASCII(item)) {
      text_.add({reinterpret_cast<const char*>(PyUnicode_1BYTE_DATA(item)),
                 static_cast<std::size_t>(PyUnicode_GET_LENGTH(item))});
    } else {
      // Encoded into a throw-away object: asking the str itself would keep a second copy inside it.
      PyObject* const encoded = PyUnicode_AsUTF8String(item);
      if (encoded == nullptr) {
        PyErr_Clear();
        throw py::value_error(std::string(name_) +
                              ": expected Unicode text, got a lone surrogate " + "in row " +
                              std::to_string(validity_.size));
      }
      text_.add({PyBytes_AS_STRING(encoded), static_cast<std::size_t>(PyBytes_GET_SIZE(encoded))});
      Py_DECREF(encoded);
    }
    validity_.add(true);
  }

  void add_bytes(std::string_view data) {
    expect(Kind::bytes, "bytes");
    text_.add(data);
    validity_.add(true);
  }

  // What __index__ gives, or nothing.
  static py::object index_of(PyObject* item) {
    if (!PyIndex_Check(item)) return {};
    PyObject* const number = PyNumber_Index(item);
    if (number == nullptr) PyErr_Clear();
    return py::reinterpret_steal<py::object>(number);
  }

  void add_other(PyObject* item) {
    const PythonTypes& types = python_types();
    const py::handle object(item);
    if (PyDateTime_Check(item)) {
      if (object.ptr()->ob_type->tp_name == std::string_view("NaTType")) return add_null();
      if (py::hasattr(object, "nanosecond") && object.attr("nanosecond").cast<int>() != 0)
        throw py::value_error(std::string(name_) + ": expected whole microseconds (round the " +
                              "nanoseconds first), got " + py::str(object).cast<std::string>());
      add_number(Kind::timestamp, micros_of(item), "datetime");
    } else if (PyDate_Check(item)) {
      add_number(Kind::date,
                 days_from_civil(PyDateTime_GET_YEAR(item), PyDateTime_GET_MONTH(item),
                                 PyDateTime_GET_DAY(item)),
                 "date");
    } else if (py::isinstance(object, types.np_bool)) {
      add_number(Kind::boolean, PyObject_IsTrue(item), "bool");
    } else if (py::isinstance(object, types.uuid)) {
      add_text(py::str(object).ptr());
    } else if (py::isinstance(object, types.decimal)) {
      if (!object.attr("is_finite")().cast<bool>() ||
          !object.attr("__eq__")(object.attr("to_integral_value")()).cast<bool>())
        throw py::type_error(std::string(name_) + ": expected decimals without a fraction, got " +
                             py::str(object).cast<std::string>());
      if (object.attr("adjusted")().cast<std::int64_t>() > 19)
        throw py::value_error(std::string(name_) + ": expected integers of 64 bits, got a larger " +
                              "decimal in row " + std::to_string(validity_.size));
      add_integer(py::reinterpret_steal<py::object>(PyNumber_Long(item)).ptr());
    } else if (py::isinstance(object, types.np_datetime)) {
      Holds holds;
      const py::array one = py::module_::import("numpy").attr("asarray")(py::make_tuple(object));
      const Column column = column_from_numpy(one, name_, holds).at(0);
      check(column, name_);
      Scratch scratch;
      const Value value = value_at(column, 0, scratch);
      if (value.kind == Kind::null) return add_null();
      add_number(value.kind, value.number, "datetime64");
    } else if (PyByteArray_Check(item)) {
      add_bytes(
          {PyByteArray_AS_STRING(item), static_cast<std::size_t>(PyByteArray_GET_SIZE(item))});
    } else if (const auto number = index_of(item)) {
      add_integer(number.ptr());
    } else {
      throw py::type_error(std::string(name_) +
                           ": expected int, str, bytes, bool, date, datetime, UUID or None, got " +
                           type_name(object) + " in row " + std::to_string(validity_.size) +
                           (PyFloat_Check(item)
                                ? " (0.1 + 0.2 is not 0.3: convert to integers or to text first)"
                                : ""));
    }
  }

  const char* name_;
  Kind kind_ = Kind::null;
  std::string first_type_;
  std::size_t first_row_ = 0;
  std::vector<std::int64_t> numbers_;
  OwnText text_;
  OwnValidity validity_;
};

}  // namespace

std::vector<std::vector<Column>> columns_from_list(const py::object& source, const char* name,
                                                   Holds& holds) {
  // A tuple of its own: converting an item may run Python code, which may change the list.
  const py::tuple own(source);
  const py::ssize_t size = PyTuple_GET_SIZE(own.ptr());
  PyObject* const* const items = PySequence_Fast_ITEMS(own.ptr());
  if (size == 0 || !PyTuple_Check(items[0])) {
    ListColumn column(name);
    for (py::ssize_t i = 0; i < size; ++i) column.add(items[i]);
    return {{column.finish(holds)}};
  }
  const py::ssize_t arity = PyTuple_GET_SIZE(items[0]);
  std::vector<ListColumn> columns(static_cast<std::size_t>(arity), ListColumn(name));
  for (py::ssize_t i = 0; i < size; ++i) {
    if (!PyTuple_Check(items[i]) || PyTuple_GET_SIZE(items[i]) != arity)
      throw py::type_error(
          std::string(name) + ": expected tuples of " + std::to_string(arity) + ", got " +
          (PyTuple_Check(items[i]) ? "one of " + std::to_string(PyTuple_GET_SIZE(items[i]))
                                   : type_name(items[i])) +
          " in row " + std::to_string(i));
    for (py::ssize_t c = 0; c < arity; ++c)
      columns[static_cast<std::size_t>(c)].add(PyTuple_GET_ITEM(items[i], c));
  }
  std::vector<std::vector<Column>> out;
  for (ListColumn& column : columns) out.push_back({column.finish(holds)});
  return out;
}

std::span<const Key> Keys::ids() {
  if (const auto whole = batch_.whole(); !whole.empty() || batch_.size() == 0) return whole;
  std::unique_ptr<Key[]> ids(new Key[batch_.size()]);
  {
    py::gil_scoped_release nogil;
    batch_.ids(0, batch_.size(), ids.get());
  }
  if (batch_.whole().empty()) {  // another thread may have been faster
    ids_ = std::move(ids);
    batch_.remember({ids_.get(), batch_.size()});
  }
  return batch_.whole();
}

namespace {

py::object number_to_python(const Value& value) {
  static constexpr std::int64_t kFirstDay = -719162, kLastDay = 2932896;  // years 1 and 9999
  const py::module_ numpy = py::module_::import("numpy");
  switch (value.kind) {
    case Kind::boolean:
      return py::bool_(value.number != 0);
    case Kind::date:
      if (value.number < kFirstDay || value.number > kLastDay)
        return numpy.attr("datetime64")(value.number, "D");
      return py::module_::import("datetime")
          .attr("date")
          .attr("fromordinal")(value.number + 719163);
    case Kind::timestamp: {
      if (value.number < kFirstDay * kMicrosPerDay ||
          value.number >= (kLastDay + 1) * kMicrosPerDay)
        return numpy.attr("datetime64")(value.number, "us");
      const py::module_ datetime = py::module_::import("datetime");
      return datetime.attr("datetime")(1970, 1, 1) +
             datetime.attr("timedelta")("microseconds"_a = value.number);
    }
    case Kind::identity:
      return py::int_(static_cast<Key>(value.number));
    default:
      return py::int_(value.number);
  }
}

py::object value_to_python(const Value& value) {
  const auto size = static_cast<py::ssize_t>(value.bytes.size());
  if (value.kind == Kind::null) return py::none();
  if (value.kind == Kind::integer) return py::int_(value.number);
  if (value.kind == Kind::bytes) return py::bytes(value.bytes.data(), value.bytes.size());
  if (value.kind == Kind::text)
    return py::reinterpret_steal<py::object>(
        PyUnicode_DecodeUTF8(value.bytes.data(), size, "surrogateescape"));
  return number_to_python(value);
}

}  // namespace

py::object to_python(std::string_view encoded) {
  std::vector<Value> values;
  if (!decode_values(encoded, values)) throw FormatError("value: expected an encoding, got other");
  if (values.size() == 1) return value_to_python(values[0]);
  py::tuple out(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = value_to_python(values[i]);
  return out;
}

py::list names_of(std::span<const Key> ids, const ValueList& names) {
  py::list out(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) out[i] = to_python(names.encoded(i, ids[i]));
  return out;
}

py::list to_python(const std::vector<std::string>& encoded) {
  py::list out(encoded.size());
  for (std::size_t i = 0; i < encoded.size(); ++i) out[i] = to_python(encoded[i]);
  return out;
}

namespace {

std::vector<std::vector<Column>> columns_of(const py::object& source, const char* name,
                                            Holds& holds);

// Categories: codes into a list of values, below 0 where missing. The values are copied, once each.
Column column_from_categories(const py::array& codes, const py::object& categories,
                              const char* name, Holds& holds) {
  Holds borrowed;
  const auto parts = columns_of(categories, name, borrowed);
  for (const Column& chunk : parts.at(0)) check(chunk, name);
  const Batch batch({parts.at(0)}, name);
  const Array<std::int64_t> wide(codes);
  Column out{.kind = batch.kinds()[0], .size = view(wide).size()};
  if (out.kind == Kind::null) return out;
  OwnText text;
  OwnValidity validity;
  std::vector<std::int64_t> numbers;
  Scratch scratch;
  for (std::size_t row = 0; row < batch.size(); ++row) {
    const Value value = batch.value(0, row, scratch);
    validity.add(value.kind != Kind::null);
    numbers.push_back(value.number);
    text.add(value.bytes);
  }
  Column values{.kind = out.kind, .layout = Layout::i64, .size = batch.size()};
  if (is_number(out.kind)) {
    values.data = keep(holds, std::move(numbers)).data();
  } else {
    values.layout = Layout::offsets64;
    const OwnText& kept = keep(holds, std::move(text));
    values.data = kept.characters.data();
    values.offsets = kept.offsets.data();
  }
  if (validity.any_null) values.validity = keep(holds, std::move(validity)).bits.data();
  out.layout = Layout::i64;
  out.data = wide.data();
  out.negative_code_is_null = true;
  out.dictionary = std::make_shared<const Column>(values);
  holds.objects.push_back(wide);
  return out;
}

std::vector<std::vector<Column>> columns_of(const py::object& source, const char* name,
                                            Holds& holds) {
  if (py::hasattr(source, "__pyroute_categories__")) {
    const py::tuple parts = source.attr("__pyroute_categories__")();
    return {{column_from_categories(parts[0], parts[1], name, holds)}};
  }
  if (py::isinstance<py::array>(source)) {
    const py::array array(source);
    if (array.ndim() != 1)
      throw py::value_error(std::string(name) + ": expected one dimension, got " +
                            std::to_string(array.ndim()));
    if (array.dtype().kind() != 'O') return {column_from_numpy(array, name, holds)};
    return columns_from_list(source, name, holds);
  }
  if (py::hasattr(source, "__arrow_c_array__") || py::hasattr(source, "__arrow_c_stream__"))
    return {column_from_arrow(source, name, holds)};
  if (PyTuple_Check(source.ptr()) || PyList_Check(source.ptr()))
    return columns_from_list(source, name, holds);
  throw py::type_error(std::string(name) +
                       ": expected a NumPy or Arrow array, a Series or a list, got " +
                       type_name(source));
}

std::unique_ptr<Keys> make_keys(const py::args& columns, const std::string& name) {
  Holds holds;
  std::vector<std::vector<Column>> out;
  for (const py::handle& column : columns)
    for (auto& part : columns_of(py::reinterpret_borrow<py::object>(column), name.c_str(), holds))
      out.push_back(std::move(part));
  py::gil_scoped_release nogil;
  for (auto& column : out) {
    for (Column& chunk : column) {
      check(chunk, name.c_str());
      prepare(chunk);
    }
  }
  return std::make_unique<Keys>(Batch(std::move(out), name.c_str()), std::move(holds));
}

std::unique_ptr<Keys> from_ids(const Array<Key>& ids) {
  Holds holds;
  holds.objects.push_back(ids);
  Column column{.kind = Kind::identity,
                .layout = Layout::ids,
                .size = static_cast<std::size_t>(ids.size()),
                .data = ids.data()};
  return std::make_unique<Keys>(Batch({{column}}), std::move(holds));
}

}  // namespace

void bind_keys(py::module_& m) {
  PyDateTime_IMPORT;
  py::class_<Keys>(m, "Keys")
      .def(py::init([](const py::args& columns, const std::string& name) {
             return make_keys(columns, name);
           }),
           "name"_a = "values")
      .def_static("from_ids", &from_ids, "ids"_a, py::pos_only())
      .def_property_readonly(
          "ids", [](const py::object& self) { return readonly(self.cast<Keys&>().ids(), self); })
      .def_property_readonly("kinds",
                             [](const Keys& self) { return describe(self.batch().kinds()); })
      .def_property_readonly("arity", [](const Keys& self) { return self.batch().arity(); })
      .def("values",
           [](const Keys& self) {
             const Batch& batch = self.batch();
             py::list out(batch.size());
             std::string encoded;
             for (std::size_t row = 0; row < batch.size(); ++row) {
               encoded.clear();
               batch.encode(row, encoded);
               out[row] = to_python(encoded);
             }
             return out;
           })
      .def("__len__", [](const Keys& self) { return self.batch().size(); });
}

}  // namespace pyroute
