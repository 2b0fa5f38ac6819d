#include "value_list.hpp"

namespace pyroute {

ValueList::ValueList(const Batch& batch) : kinds_(batch.kinds()) {
  if (!stored()) return;
  starts_.reserve(batch.size() + 1);
  for (std::size_t row = 0; row < batch.size(); ++row) {
    batch.encode(row, bytes_);
    starts_.push_back(bytes_.size());
  }
}

void ValueList::push(std::string_view encoded) {
  if (!stored()) return;
  bytes_ += encoded;
  starts_.push_back(bytes_.size());
}

std::string ValueList::encoded(std::size_t position, Key id) const {
  if (stored()) return std::string(at(position));
  std::string out(1, '\1');
  encode_value(name_from_id(kinds_, id), out);
  return out;
}

ValueList ValueList::reordered(std::span<const std::size_t> order) const {
  ValueList out(kinds_);
  if (stored())
    for (const std::size_t position : order) out.push(at(position));
  return out;
}

//   kinds, then where values are stored: each encoded value, sized
void ValueList::write(Writer& to) const {
  write_kinds(to, kinds_);
  if (stored())
    for (std::size_t i = 0; i + 1 < starts_.size(); ++i) to.sized(at(i));
}

ValueList ValueList::read(Reader& from, std::span<const Key> ids) {
  ValueList out(read_kinds(from));
  check_ids(out.kinds_, {ids.begin(), ids.end()});
  if (!out.stored()) return out;
  for (const Key id : ids) {
    const std::string_view encoded = from.sized("value");
    Reader::check(hash_named(out.kinds_, encoded) == id, "value", "the value of its key");
    out.push(encoded);
  }
  return out;
}

}  // namespace pyroute
