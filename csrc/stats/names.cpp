#include "stats/names.hpp"

#include <algorithm>

namespace pyroute {

void Names::add(Key id, const Batch& batch, std::size_t row) {
  if (self_naming(kinds_)) return;
  const auto [at, fresh] = names_.try_emplace(id);
  if (fresh) batch.encode(row, at->second);
}

void Names::add_all(const Names& other) { names_.insert(other.names_.begin(), other.names_.end()); }

std::string Names::encoded(Key id) const {
  if (const auto at = names_.find(id); at != names_.end()) return at->second;
  std::string out(1, '\1');
  if (self_naming(kinds_))
    encode_value(name_from_id(kinds_, id), out);
  else if (kinds_.size() == 1 && id == kSeed)
    encode_value({}, out);  // a null that came before any text: nulls alone name themselves
  else
    encode_value({Kind::identity, static_cast<std::int64_t>(id)}, out);
  return out;
}

std::size_t Names::bytes_used() const noexcept {
  std::size_t bytes = names_.bucket_count() * sizeof(void*);
  for (const auto& [id, name] : names_)
    bytes += sizeof(id) + sizeof(name) + 2 * sizeof(void*) + (name.size() > 15 ? name.size() : 0);
  return bytes;
}

//   kinds, then where they do not name themselves: count, and per id ascending its encoded name,
//   sized
void Names::write(Writer& to, std::vector<Key> ids) const {
  write_kinds(to, kinds_);
  if (self_naming(kinds_) || kinds_.empty()) return;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  to.varint(ids.size());
  for (const Key id : ids) to.sized(encoded(id));
}

Names Names::read(Reader& from, const std::vector<Key>& allowed) {
  Names out;
  out.kinds_ = read_kinds(from);
  check_ids(out.kinds_, allowed);
  if (self_naming(out.kinds_) || out.kinds_.empty()) return out;
  std::vector<Key> ids = allowed;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  Reader::check(from.count("names", 2) == ids.size(), "names", "one for each key");
  for (const Key id : ids) {
    const std::string_view name = from.sized("name");
    Reader::check(hash_named(out.kinds_, name) == id, "name", "the value of its key");
    out.names_.emplace(id, name);
  }
  return out;
}

}  // namespace pyroute
