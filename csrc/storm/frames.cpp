#include "storm/frames.hpp"

#include <algorithm>
#include <array>

namespace pyroute {

struct FrameRouter::Cursor {
  const char* at;
  const char* end;

  [[nodiscard]] std::size_t left() const noexcept { return static_cast<std::size_t>(end - at); }
  template <class T>
  bool read(T& value) noexcept {
    if (left() < sizeof value) return false;
    value = xx::load<T>(at);
    at += sizeof value;
    return true;
  }
  // False: not all there yet.
  bool sized(std::string_view& bytes) {
    std::uint32_t size;
    if (!read(size)) return false;
    if (size > kLongest)
      throw FormatError("frame: expected at most " + std::to_string(kLongest) + " bytes, got " +
                        std::to_string(size));
    if (left() < size) return false;
    bytes = {at, size};
    at += size;
    return true;
  }
};

FrameRouter::FrameRouter(std::size_t capacity) {
  if (capacity > 0) stats_.emplace(capacity);
}

void FrameRouter::set_router(std::shared_ptr<const Router> router,
                             std::span<const TaskId> storm_tasks) {
  if (!router->one_record())
    throw std::invalid_argument("router: expected a ring without split keys, got another");
  const std::vector<TaskId> tasks = router->tasks();
  if (tasks.size() != storm_tasks.size())
    throw std::invalid_argument("storm_tasks: expected " + std::to_string(tasks.size()) + ", got " +
                                std::to_string(storm_tasks.size()));
  for (const TaskId task : storm_tasks)
    if (task < 1)
      throw std::invalid_argument("storm_tasks: expected ids from 1, got " + std::to_string(task));
  std::vector<TaskId> storm(static_cast<std::size_t>(tasks.back()) + 1);
  for (std::size_t i = 0; i < tasks.size(); ++i)
    storm[static_cast<std::size_t>(tasks[i])] = storm_tasks[i];
  storm_ = std::move(storm);
  router_ = std::move(router);
}

bool FrameRouter::read_value(Cursor& from, Value& value, bool inside) {
  std::uint8_t kind;
  if (!from.read(kind)) return false;
  switch (kind) {
    case 0:
      value = {};
      return true;
    case 1:
      value.kind = Kind::integer;
      return from.read(value.number);
    case 2:
    case 3:
      value.kind = kind == 2 ? Kind::text : Kind::bytes;
      return from.sized(value.bytes);
    case 4:
    case 5:
      value = {Kind::boolean, kind - 4, {}};
      return true;
    default:
      throw FormatError("key: expected kind 0 to " + std::string(inside ? "5" : "6") + ", got " +
                        std::to_string(kind));
  }
}

bool FrameRouter::read_key(Cursor& from, Key& key) {
  if (from.left() == 0) return false;
  const std::size_t before = values_.size();
  std::size_t arity = 1;
  if (*from.at == 6) {
    ++from.at;
    std::uint8_t count;
    if (!from.read(count)) return false;
    if (count < 2)
      throw FormatError("key: expected at least 2 columns, got " + std::to_string(count));
    arity = count;
  }
  key = kSeed;
  for (std::size_t i = 0; i < arity; ++i) {
    Value value;
    if (!read_value(from, value, arity > 1)) {
      values_.resize(before);
      return false;
    }
    key = value.hash(key);
    if (arity > 1 && value.kind == Kind::null) key = hash_null_mark(key);
    if (stats_) values_.push_back(value);
  }
  if (stats_) {
    if (arity != arity_ || keys_.size() == kBlock) {
      std::vector<Value> last(values_.begin() + static_cast<std::ptrdiff_t>(before), values_.end());
      count();
      arity_ = arity;
      values_ = std::move(last);
    }
    keys_.push_back(key);
  }
  return true;
}

void FrameRouter::count() {
  stats_->observe_block(keys_, values_.data(), arity_);
  keys_.clear();
  values_.clear();
}

FrameRouter::Result FrameRouter::consume(std::string_view data, std::string& out) {
  Cursor from{data.data(), data.data() + data.size()};
  Result result{0, {}};
  const auto put = [&out](auto... values) {
    const auto append = [&out](auto value) {
      char bytes[sizeof value];
      std::memcpy(bytes, &value, sizeof value);
      out.append(bytes, sizeof value);
    };
    (append(values), ...);
  };
  keys_.clear();
  values_.clear();
  const auto records = [&] {
    while (true) {
      std::uint8_t kind;
      if (!from.read(kind)) return;
      if (kind == 1) {
        std::uint32_t sequence;
        Key key;
        if (!from.read(sequence) || !read_key(from, key)) return;
        const TaskId task = router_->route_one(key);
        put(std::uint8_t{1}, sequence, storm_[static_cast<std::size_t>(task)]);
        ++records_;
      } else if (kind == 3) {
        put(std::uint8_t{5});
      } else if (kind == 2) {
        if (!from.sized(result.message)) {
          result.message = {};
          return;
        }
        if (result.message.data() == nullptr) result.message = {from.at, 0};
        result.consumed = static_cast<std::size_t>(from.at - data.data());
        return;
      } else {
        throw FormatError("frame: expected kind 1 to 3, got " + std::to_string(kind));
      }
      result.consumed = static_cast<std::size_t>(from.at - data.data());
    }
  };
  records();
  if (stats_) count();
  return result;
}

}  // namespace pyroute
