// Columns of grouping values as they lie in memory, and batches of them: values -> keys.
//
// A Column borrows buffers in one of the layouts of Arrow and NumPy; nothing is copied. A Batch is
// n rows of one or more columns, each in one or more chunks. ids() hashes any range of rows, so
// kernels work block by block and a batch of any length needs no array of ids.
//
// Guarantees: framing (chunks, slices and block borders never show in an id), null_is_42.
// check() finds every value that has no key (a uint64 or decimal beyond bigint, a timestamp that is
// not whole microseconds, a lone surrogate in UTF-32) before any kernel runs; after it nothing here
// throws. Arrow promises that its text is UTF-8: its bytes are hashed as they are.
// Cost: one pass, no allocation per row. Threads: immutable once built.
#pragma once

#include <memory>
#include <span>

#include "value.hpp"

namespace pyroute {

enum class Layout : std::uint8_t {
  nothing,  // every row null
  i8,
  i16,
  i32,
  i64,
  u8,
  u16,
  u32,
  u64,
  bits,       // bitmap, first row at bit `offset`
  decimal,    // two's complement of `width` bytes
  offsets32,  // Arrow string, binary
  offsets64,  // Arrow large_string, large_binary
  views,      // Arrow string_view, binary_view
  fixed,      // `width` bytes each
  padded,     // `width` bytes each, zero bytes at the end do not count (NumPy S)
  ucs4,       // `width` / 4 code points each, zeros at the end do not count (NumPy U)
  uuid,       // 16 bytes, hashed as their text
  ids,        // keys already
};

// How an integer becomes the number that is hashed.
enum class Scale : std::uint8_t { none, times1000, times1000000, exact_div1000, floor_div86400000 };

struct Column {
  Kind kind = Kind::null;
  Layout layout = Layout::nothing;
  Scale scale = Scale::none;
  std::size_t size = 0;
  std::size_t offset = 0;  // first row inside the buffers
  std::size_t width = 0;
  const void* data = nullptr;                     // numbers, characters, views
  const void* offsets = nullptr;                  // offsets32, offsets64
  const void* const* buffers = nullptr;           // the data buffers of views
  const std::uint8_t* validity = nullptr;         // bitmap from bit `offset`; null: no nulls
  bool nat_is_null = false;                       // i64: the smallest value is NumPy's NaT
  std::shared_ptr<const Column> dictionary = {};  // then the layout is that of the codes
  bool negative_code_is_null = false;             // pandas' categories
  std::vector<Key> dictionary_ids = {};           // keys of the dictionary's rows, where it is set

  [[nodiscard]] bool is_null(std::size_t row) const noexcept {
    if (validity == nullptr) return false;
    const std::size_t bit = offset + row;
    return (validity[bit >> 3] >> (bit & 7) & 1) == 0;
  }
};

// Room for a value that has to be rewritten to be read (UTF-32 to UTF-8, UUID to text).
using Scratch = std::string;

// Precondition: row < column.size and check(column) passed.
[[nodiscard]] Value value_at(const Column& column, std::size_t row, Scratch& scratch);

// Throws std::invalid_argument for the first value that has no key.
void check(const Column& column, const char* name);

// Fills dictionary_ids; call once when the column is built.
void prepare(Column& column);

class Batch {
 public:
  Batch() = default;
  // One entry per column, each a list of chunks of one kind (or null). Throws std::invalid_argument
  // when the columns differ in length, TypeMismatch when chunks of a column differ in kind.
  explicit Batch(std::vector<std::vector<Column>> columns, const char* name = "values");

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] const Kinds& kinds() const noexcept { return kinds_; }
  [[nodiscard]] std::size_t arity() const noexcept { return columns_.size(); }

  // Keys of rows [begin, begin + count).
  void ids(std::size_t begin, std::size_t count, Key* out) const noexcept;
  // The keys of all rows where they lie in memory already, else empty.
  [[nodiscard]] std::span<const Key> whole() const noexcept;
  // Says where they lie. Precondition: one per row, equal to ids(), and they outlive the batch.
  void remember(std::span<const Key> ids) noexcept { remembered_ = ids; }

  [[nodiscard]] Value value(std::size_t column, std::size_t row, Scratch& scratch) const;
  // The encoding of value.hpp, appended.
  void encode(std::size_t row, std::string& out) const;
  // Whether the row's value is the encoded one.
  [[nodiscard]] bool equals(std::size_t row, std::string_view encoded) const;

  // body(begin, keys) for consecutive blocks of at most kBlock rows.
  template <class Body>
  void for_each_block(Body&& body) const {
    if (const auto all = whole(); !all.empty()) {
      for (std::size_t begin = 0; begin < size_; begin += kBlock)
        body(begin, all.subspan(begin, std::min(kBlock, size_ - begin)));
      return;
    }
    Key block[kBlock];
    for (std::size_t begin = 0; begin < size_; begin += kBlock) {
      const std::size_t count = std::min(kBlock, size_ - begin);
      ids(begin, count, block);
      body(begin, std::span<const Key>(block, count));
    }
  }

 private:
  struct Chunks {
    std::vector<Column> chunks;
    std::vector<std::size_t> starts;  // first row of each chunk, and the size at the end
    [[nodiscard]] std::size_t find(std::size_t row) const noexcept;
  };
  std::vector<Chunks> columns_;
  Kinds kinds_;
  std::size_t size_ = 0;
  std::span<const Key> remembered_;
};

}  // namespace pyroute
