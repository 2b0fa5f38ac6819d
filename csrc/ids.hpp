// The vocabulary as types. Key and TaskId differ in width and sign on purpose, so that
// -Wconversion -Wsign-conversion -Werror rejects one passed for the other.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace pyroute {

static_assert(std::endian::native == std::endian::little, "pyroute's formats are little-endian");

using Key = std::uint64_t;       // identity of a record's grouping value, see hash.hpp
using TaskId = std::int32_t;     // never negative
using Count = std::uint64_t;     // records, or the sum of their integer weights; at most 2^63 - 1
using Cost = double;             // work that a record or key asks of a task, in the caller's unit
using StateSize = std::int64_t;  // bytes that move if a key moves

inline constexpr Count kMaxCount = (Count{1} << 63) - 1;

// Rows that one pass of a batch kernel handles: ids of a block stay in the first-level cache, so a
// batch of any length is hashed and used without ever holding all of its ids.
inline constexpr std::size_t kBlock = 512;

}  // namespace pyroute
