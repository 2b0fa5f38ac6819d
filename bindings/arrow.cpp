// Arrow arrays through the PyCapsule interface (Arrow C data interface): buffers are borrowed,
// never copied.
#include <charconv>
#include <cstring>

#include "keys.hpp"

extern "C" {
// Arrow C data interface, as its specification defines it.
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  std::int64_t flags;
  std::int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  std::int64_t length;
  std::int64_t null_count;
  std::int64_t offset;
  std::int64_t n_buffers;
  std::int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};
}

namespace pyroute {
namespace {

// Owns one of the three structs; moving out of a capsule leaves a released one behind.
template <class T>
class Owned {
 public:
  Owned() = default;
  explicit Owned(T* from) : value_(*from) { from->release = nullptr; }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (value_.release != nullptr) value_.release(&value_);
  }
  [[nodiscard]] T* get() noexcept { return &value_; }

 private:
  T value_{};
};

template <class T>
std::shared_ptr<Owned<T>> take(const py::handle& capsule, const char* name) {
  auto* pointer = static_cast<T*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (pointer == nullptr) throw py::error_already_set();
  if (pointer->release == nullptr)
    throw py::value_error("values: expected a live Arrow capsule, got a used one");
  return std::make_shared<Owned<T>>(pointer);
}

[[noreturn]] void refuse(const char* name, const std::string& got, const char* instead) {
  throw py::type_error(std::string(name) + ": expected a column of integers, booleans, dates, " +
                       "timestamps, text or bytes, got Arrow " + got + " (" + instead + ")");
}

// The value of `key` in a schema's metadata, "" where it has none.
std::string metadata_of(const char* metadata, std::string_view key) {
  if (metadata == nullptr) return "";
  const auto number = [&metadata] {
    std::int32_t value;
    std::memcpy(&value, metadata, sizeof value);
    metadata += sizeof value;
    return static_cast<std::size_t>(value);
  };
  const auto text = [&] {
    const std::size_t size = number();
    const std::string_view out(metadata, size);
    metadata += size;
    return out;
  };
  for (std::size_t left = number(); left > 0; --left) {
    const std::string_view found = text();
    const std::string_view value = text();
    if (found == key) return std::string(value);
  }
  return "";
}

struct Type {
  Kind kind = Kind::null;
  Layout layout = Layout::nothing;
  Scale scale = Scale::none;
  std::size_t width = 0;
};

Type fixed_type(const char* name, std::string_view format, const ArrowSchema& schema) {
  std::size_t width = 0;
  std::from_chars(format.data() + 2, format.data() + format.size(), width);
  if (width == 16 && metadata_of(schema.metadata, "ARROW:extension:name") == "arrow.uuid")
    return {Kind::text, Layout::uuid, Scale::none, 16};
  if (width == 0) refuse(name, "fixed_size_binary(0)", "it holds nothing");
  return {Kind::bytes, Layout::fixed, Scale::none, width};
}

Type decimal_type(const char* name, std::string_view format) {
  int precision = 0, scale = 0, bits = 128;
  const char* at = format.data() + 2;
  const char* const end = format.data() + format.size();
  at = std::from_chars(at, end, precision).ptr;
  if (at < end) at = std::from_chars(at + 1, end, scale).ptr;
  if (at < end) std::from_chars(at + 1, end, bits);
  if (scale != 0)
    refuse(name, "decimal with scale " + std::to_string(scale),
           "cast it to an integer or to text first");
  return {Kind::integer, Layout::decimal, Scale::none, static_cast<std::size_t>(bits) / 8};
}

Type timestamp_type(std::string_view format) {
  switch (format[2]) {
    case 's':
      return {Kind::timestamp, Layout::i64, Scale::times1000000};
    case 'm':
      return {Kind::timestamp, Layout::i64, Scale::times1000};
    case 'u':
      return {Kind::timestamp, Layout::i64};
    default:
      return {Kind::timestamp, Layout::i64, Scale::exact_div1000};
  }
}

Type type_of(const char* name, const ArrowSchema& schema) {
  const std::string_view format = schema.format;
  if (const std::string extension = metadata_of(schema.metadata, "ARROW:extension:name");
      !extension.empty() && extension != "arrow.uuid" && extension != "arrow.json")
    refuse(name, "extension type " + extension,
           "what identifies its values is not known: pass its storage");
  if (format.size() == 1) {
    switch (format[0]) {
      case 'n':
        return {};
      case 'b':
        return {Kind::boolean, Layout::bits};
      case 'c':
        return {Kind::integer, Layout::i8};
      case 's':
        return {Kind::integer, Layout::i16};
      case 'i':
        return {Kind::integer, Layout::i32};
      case 'l':
        return {Kind::integer, Layout::i64};
      case 'C':
        return {Kind::integer, Layout::u8};
      case 'S':
        return {Kind::integer, Layout::u16};
      case 'I':
        return {Kind::integer, Layout::u32};
      case 'L':
        return {Kind::integer, Layout::u64};
      case 'u':
        return {Kind::text, Layout::offsets32};
      case 'U':
        return {Kind::text, Layout::offsets64};
      case 'z':
        return {Kind::bytes, Layout::offsets32};
      case 'Z':
        return {Kind::bytes, Layout::offsets64};
      case 'e':
      case 'f':
      case 'g':
        refuse(name, "floating point", "0.1 + 0.2 is not 0.3: cast it to an integer or to text");
      default:
        break;
    }
  }
  if (format == "vu") return {Kind::text, Layout::views};
  if (format == "vz") return {Kind::bytes, Layout::views};
  if (format.starts_with("w:")) return fixed_type(name, format, schema);
  if (format.starts_with("d:")) return decimal_type(name, format);
  if (format == "tdD") return {Kind::date, Layout::i32};
  if (format == "tdm") return {Kind::date, Layout::i64, Scale::floor_div86400000};
  if (format.starts_with("ts")) return timestamp_type(format);
  if (format.starts_with("+s")) refuse(name, "struct", "pass its fields as columns: pr.keys(a, b)");
  if (format.starts_with("+m")) refuse(name, "map", "pass the entries that identify the key");
  if (format.starts_with("+r")) refuse(name, "run-end encoded", "decode it first");
  if (format.starts_with("+"))
    refuse(name, "list or union", "pass the elements that identify the key");
  refuse(name, "type " + std::string(format), "cast it to an integer or to text first");
}

Column column_of(const char* name, const ArrowSchema& schema, const ArrowArray& array) {
  if (schema.dictionary != nullptr) {
    auto values = std::make_shared<Column>(column_of(name, *schema.dictionary, *array.dictionary));
    if (values->dictionary) refuse(name, "dictionary of a dictionary", "decode it first");
    ArrowSchema codes = schema;
    codes.dictionary = nullptr;
    Column out = column_of(name, codes, array);
    if (values->kind == Kind::null) return Column{.size = out.size};
    out.kind = values->kind;
    out.dictionary = std::move(values);
    return out;
  }
  const Type type = type_of(name, schema);
  Column out{.kind = type.kind, .layout = type.layout, .scale = type.scale};
  out.size = static_cast<std::size_t>(array.length);
  out.offset = static_cast<std::size_t>(array.offset);
  out.width = type.width;
  if (type.layout == Layout::nothing || out.size == 0) return out;
  if (array.null_count != 0) out.validity = static_cast<const std::uint8_t*>(array.buffers[0]);
  if (type.layout == Layout::offsets32 || type.layout == Layout::offsets64) {
    out.offsets = array.buffers[1];
    out.data = array.buffers[2];
  } else {
    out.data = array.buffers[1];
    if (type.layout == Layout::views) out.buffers = array.buffers + 2;
  }
  return out;
}

}  // namespace

std::vector<Column> column_from_arrow(const py::object& source, const char* name, Holds& holds) {
  std::vector<Column> out;
  if (py::hasattr(source, "__arrow_c_array__")) {
    const py::tuple capsules = source.attr("__arrow_c_array__")();
    const auto schema = take<ArrowSchema>(capsules[0], "arrow_schema");
    const auto array = take<ArrowArray>(capsules[1], "arrow_array");
    holds.memory.push_back(array);
    out.push_back(column_of(name, *schema->get(), *array->get()));
    return out;
  }
  const py::object capsule = source.attr("__arrow_c_stream__")();
  const auto stream = take<ArrowArrayStream>(capsule, "arrow_array_stream");
  const auto failed = [&] {
    const char* error = stream->get()->get_last_error(stream->get());
    return py::value_error(std::string(name) + ": expected a readable Arrow stream, got " +
                           (error != nullptr ? error : "an error"));
  };
  Owned<ArrowSchema> schema;
  if (stream->get()->get_schema(stream->get(), schema.get()) != 0) throw failed();
  for (;;) {
    const auto array = std::make_shared<Owned<ArrowArray>>();
    if (stream->get()->get_next(stream->get(), array->get()) != 0) throw failed();
    if (array->get()->release == nullptr) break;
    holds.memory.push_back(array);
    out.push_back(column_of(name, *schema.get(), *array->get()));
  }
  if (out.empty()) {  // a stream of no chunks has a type all the same
    const ArrowArray empty{};
    if (schema.get()->dictionary == nullptr)
      out.push_back(column_of(name, *schema.get(), empty));
    else
      out.push_back(column_of(name, *schema.get()->dictionary, empty));
  }
  return out;
}

}  // namespace pyroute
