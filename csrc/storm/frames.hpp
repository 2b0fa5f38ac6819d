// FrameRouter: the child's side of the RouterShellBolt: (sequence, key) in, (sequence, task) out.
//
// After the greeting, which is the text of multilang, both pipes carry frames; numbers are
// little-endian (docs/storm-frames.md).
//
//   to the child    1 sequence u32, key     a record
//                   2 size u32, JSON        any other message of multilang, without "\nend\n"
//                   3                       heartbeat
//   key             0 null | 1 i64 | 2 size u32, UTF-8 | 3 size u32, bytes | 4 false | 5 true
//                   | 6 count u8, so many of the former: a composite key
//   to the JVM      1 sequence u32, task i32   emit the record to Storm's task, then ack it
//                   2 size u32, JSON           a command of multilang
//                   3 sequence u32             ack it, emit nothing
//                   4 sequence u32             fail it
//                   5                          alive
//
// A record is answered by 1 with Storm's id of the router's task for its key, a heartbeat by 5.
// A message is handed back. Anything else throws FormatError, and so does a key or message longer
// than kLongest: nothing is allocated for what has not come.
//
// Guarantees, each a test of that name in tests/test_frames.py:
//   routes     equal to Router.route for every key that pr.keys takes
//   framing    cutting the input anywhere changes neither output nor what is handed back
//   hostile    no input makes it crash, or read where it must not
//   counts     statistics are those of a SpaceSaving that observes the same keys, one for each
//              type of keys (key_counts.hpp)
// Cost: one pass; a hash and a lookup per record. Threads: none of its own; the owner locks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "route/router.hpp"
#include "storm/key_counts.hpp"

namespace pyroute {

class FrameRouter {
 public:
  static constexpr std::size_t kLongest = std::size_t{1} << 28;

  // capacity: of the statistics, 0 for none.
  explicit FrameRouter(std::size_t capacity);

  // storm_tasks[i] is Storm's id of the i-th task of the router, ascending. Throws
  // std::invalid_argument: not one per task, an id below 1, a router that needs more than a key.
  void set_router(std::shared_ptr<const Router> router, std::span<const TaskId> storm_tasks);

  struct Result {
    std::size_t consumed;      // bytes of whole frames that are done
    std::string_view message;  // handed back, and counted in consumed; data() null where none is
  };
  // Does what it can with the whole frames in data, appends to out, and stops after a message.
  // Precondition: a router is set.
  [[nodiscard]] Result consume(std::string_view data, std::string& out);

  [[nodiscard]] const std::optional<KeyCounts>& statistics() const noexcept { return stats_; }
  [[nodiscard]] std::optional<KeyCounts>& statistics() noexcept { return stats_; }
  [[nodiscard]] std::uint64_t records() const noexcept { return records_; }

 private:
  struct Cursor;
  bool read_key(Cursor& from, Key& key);
  bool read_value(Cursor& from, Value& value, bool inside);
  void count();

  std::shared_ptr<const Router> router_;
  std::vector<TaskId> storm_;  // by the router's task
  std::uint64_t records_ = 0;

  std::optional<KeyCounts> stats_;
  std::size_t arity_ = 1;
  std::vector<Key> keys_;      // of the block, to be counted
  std::vector<Value> values_;  // keys x arity; text and bytes lie in the input
};

}  // namespace pyroute
