// Splicer: routes records of Storm's multilang without parsing what it does not need.
//
// Input is what the JVM writes: messages of UTF-8 JSON, each followed by "\nend\n". A record is
//   {"comp":C,"tuple":[..],"task":T,"stream":S,"id":I}      in any order, with any white space
// where (C, S) is one of the sources. For each one, in order, the output gets
//   {"command":"emit","anchors":[I],"task":N,"tuple":[..]}\nend\n{"command":"ack","id":I}\nend\n
// ("stream" before "task" where the output is not the default stream). I and the tuple are the
// bytes that came, unchanged. N is 2^32 plus Storm's id of the router's task for the key: since
// 2.6.0 Storm takes a number of at most 32 bits there for an error, and 2^32 falls off in its cast.
// The key is that of pyroute for the value of the key field: integers, text (after its escapes are
// undone), booleans and null; several fields are one composite key. Where the router splits keys,
// the salt of a record is the hash of its id.
// A heartbeat (stream "__heartbeat", task -1) is answered by {"command":"sync"}. Every other message
// is handed back, and so is a record that is not valid JSON, or whose key field is missing, a number
// with a fraction or beyond 64 bits, an array, an object or text with a lone surrogate: the caller
// parses it and says what is wrong.
//
// How it works. The JVM writes its fields in one order, so messages of a source differ in tuple,
// task and id alone. What lies between these is learned from the first message and compared with
// the next ones; between two literal pieces one value is read. Whatever does not fit goes the slow
// way. Keys are hashed, looked up and counted a block at a time.
//
// Guarantees, each a test of that name in tests/test_multilang.py:
//   matches_json    equal to a twin that parses whole messages with a JSON library
//   key_identity    the key is that of pr.keys for the parsed value
//   framing         cutting the input anywhere changes neither output nor what is handed back
//   hostile         no input makes it crash, or read or write where it must not
//   counts          statistics are those of a SpaceSaving that observes the same keys, one for
//                   each type of keys (key_counts.hpp)
// Cost: one pass over the input, one over the output. Memory: blocks of fixed size and the output.
// Threads: none of its own; the owner locks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "route/router.hpp"
#include "storm/key_counts.hpp"

namespace pyroute {

// Records of one stream of a component, and the positions of their key fields.
struct Source {
  std::string component, stream;
  std::vector<std::uint32_t> fields;
};

// Bytes with room to write past their end: appending never asks for memory within reserve().
class Output {
 public:
  static constexpr std::size_t kSlack = 64;
  // At least `more` bytes and the slack can be written at end().
  void reserve(std::size_t more);
  [[nodiscard]] char* end() noexcept { return data_.get() + size_; }
  void advance_to(const char* at) noexcept { size_ = static_cast<std::size_t>(at - data_.get()); }
  void append(std::string_view text);
  void clear() noexcept { size_ = 0; }
  [[nodiscard]] std::string_view view() const noexcept { return {data_.get(), size_}; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  std::unique_ptr<char[]> data_;
  std::size_t size_ = 0, capacity_ = 0;
};

class Splicer {
 public:
  static constexpr std::size_t kPadding = 64;

  // stream: JSON of the name of the output stream, or empty for the default one. capacity: of the
  // statistics, 0 for none. Throws std::invalid_argument: no sources, one twice, a source without
  // fields or with one twice, a position above 65535, or not as many fields in all of them.
  Splicer(std::vector<Source> sources, std::string stream, std::size_t capacity);

  // storm_tasks[i] is Storm's id of the i-th task of the router, ascending. Throws
  // std::invalid_argument: not one per task, or an id below 1.
  void set_router(std::shared_ptr<const Router> router, std::span<const TaskId> storm_tasks);

  struct Result {
    std::size_t consumed;      // bytes of whole messages that are done
    std::string_view message;  // handed back, and counted in consumed; data() null where none is
  };
  // Does what it can with the whole messages in data[0, size): appends to `out`, and stops after a
  // message that it hands back. `seen` are bytes at the start that an earlier call found without an
  // end of a message. Precondition: a router is set; kPadding more bytes can be read and written
  // after the data; they are overwritten.
  // Throws what Router::route throws for keys that an engine's home cannot hash.
  [[nodiscard]] Result splice(char* data, std::size_t size, std::size_t seen, Output& out);

  [[nodiscard]] const std::optional<KeyCounts>& statistics() const noexcept { return stats_; }
  [[nodiscard]] std::optional<KeyCounts>& statistics() noexcept { return stats_; }
  [[nodiscard]] std::uint64_t records() const noexcept { return records_; }
  // Records that were sent to each task of the router, ascending.
  [[nodiscard]] const std::vector<std::uint64_t>& sent() const noexcept { return sent_; }

 private:
  static constexpr std::size_t kBatch = 256;
  static constexpr std::size_t kShapes = 8;
  static constexpr std::size_t kLiteral = 160;  // longest literal piece of a shape
  enum class Field : std::uint8_t { tuple, task, id };
  enum class Slow : std::uint8_t { record, heartbeat, handed_back };

  struct Target {  // a source, as a record is read
    Source source;
    std::vector<std::int16_t> columns;  // position -> column of the key, or -1
  };
  struct Literal {
    std::size_t size = 0;
    char bytes[kLiteral + 32] = {};
  };
  struct Shape {
    const Target* target = nullptr;
    Field order[3] = {};
    Literal literals[4];  // before each field, and after the last with the end of the message
  };
  struct Row {
    const char* tuple;
    const char* id;  // with its quotes
    std::uint32_t tuple_size, id_size;
  };
  struct Parsed;  // a message as the slow way sees it
  template <class Isa>
  struct Reader;

  template <class Isa>
  Result splice_with(char* data, std::size_t size, std::size_t seen, Output& out);
  Result splice_portable(char*, std::size_t, std::size_t, Output&);
  Result splice_avx2(char*, std::size_t, std::size_t, Output&);
  template <class Isa>
  const char* fast(const char* at, const char* limit);
  template <class Isa>
  Slow slow(const char* at, const char* end);
  template <class Isa>
  bool parse(const char* at, const char* end, Parsed& parsed);
  void learn(const Target& target, const Parsed& parsed, const char* at, const char* end);
  bool key_text(std::string_view raw, bool escaped, Value& value);
  void write_rows(Output& out);
  void hash_rows();
  void route_rows();
  std::size_t route_run(std::size_t begin);

  std::vector<Target> targets_;
  std::size_t arity_;
  std::string stream_;
  std::optional<KeyCounts> stats_;

  std::shared_ptr<const Router> router_;
  std::vector<std::uint32_t> place_;  // router's task -> its position
  std::vector<char> middles_;         // per task: what stands between id and tuple
  std::size_t middle_size_ = 0, stride_ = 0;
  std::vector<std::uint64_t> sent_;
  std::uint64_t records_ = 0;

  std::vector<std::unique_ptr<Shape>> shapes_;  // the one that fitted last comes first
  std::size_t rows_ = 0, bytes_ = 0;            // in the block, and their variable bytes
  std::vector<Row> row_;
  std::vector<Value> values_;  // rows x arity
  std::vector<Key> keys_;
  std::vector<TaskId> tasks_;
  std::string unescaped_;  // room for the texts of a block that had escapes
};

}  // namespace pyroute
