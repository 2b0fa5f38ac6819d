// Consistent-hash ring: the home of every key that the routing table does not pin.
//
// A circle of 2^bits identifiers, each with an owner. Task t with weight w puts max(1,
// round(replicas * w / mean)) points on the circle, halves rounded up, mean that of the weights
// above 0; none where w is 0. Point j lies at hash_int64(j, seed =
// hash_int64(t, seed = hash_int64(salt))), a 64-bit position. Identifiers are taken in ascending
// order; identifier i goes to the first point at or after i * 2^(64 - bits), points ordered by
// (position, task) and around the circle, whose task still has room; room is what apportion() gives
// its weight (circle.hpp). A key's home is the owner at its top `bits` bits.
// with_tasks() keeps bits, replicas and salt, and moves the fewest identifiers (move_fewest, wanted
// = the new ring made from scratch, start = hash_int64(1, seed = hash_int64(salt)) >> (64 - bits)).
// From then on history matters, so the owners themselves travel.
//
// Guarantees, each a test of that name in tests/test_ring.py:
//   stable        Ring(tasks, bits, replicas, salt) is a pure function, in any process on any
//                 platform
//   even          every task owns its exact share of the circle, rounded down or up
//   fewest        with_tasks() moves as few identifiers as any circle with those shares could
//   independent   rings of two salts place a key independently
//   unchanged     with_tasks() of the same tasks changes nothing
// Cost: one array lookup per key. Memory: 4 * 2^bits bytes. Threads: immutable, so any number may
// read.
#pragma once

#include <memory>
#include <optional>

#include "column.hpp"
#include "table/circle.hpp"

namespace pyroute {

class Ring {
 public:
  static constexpr unsigned kMostBits = 22;
  // bits: nothing means max(16, ceil(log2(64 * tasks))), at most 22. Throws std::invalid_argument
  // for wrong tasks (circle.hpp), bits outside 3 to 22, replicas outside 1 to 65536, and more
  // than 2^bits / 8 tasks.
  Ring(std::span<const Weighted> tasks, std::optional<unsigned> bits, unsigned replicas,
       std::uint64_t salt);

  [[nodiscard]] Ring with_tasks(std::span<const Weighted> tasks) const;

  [[nodiscard]] TaskId home(Key key) const noexcept { return owners_[key >> (64 - bits_)]; }
  // Precondition: out.size() == keys.size().
  void homes(std::span<const Key> keys, TaskId* out) const noexcept;

  [[nodiscard]] std::span<const TaskId> owners() const noexcept { return owners_; }
  [[nodiscard]] const std::vector<Weighted>& tasks() const noexcept { return tasks_; }
  [[nodiscard]] unsigned bits() const noexcept { return bits_; }
  [[nodiscard]] unsigned replicas() const noexcept { return replicas_; }
  [[nodiscard]] std::uint64_t salt() const noexcept { return salt_; }
  [[nodiscard]] std::uint64_t fingerprint() const noexcept { return fingerprint_; }
  [[nodiscard]] bool operator==(const Ring& other) const;

  [[nodiscard]] std::string to_bytes() const;
  [[nodiscard]] static Ring from_bytes(std::string_view data);

 private:
  Ring(std::vector<Weighted> tasks, unsigned bits, unsigned replicas, std::uint64_t salt,
       std::vector<TaskId> owners);

  std::vector<Weighted> tasks_;  // ascending, so the order given can never show in a result
  unsigned bits_;
  unsigned replicas_;
  std::uint64_t salt_;
  std::vector<TaskId> owners_;  // one per identifier
  std::uint64_t fingerprint_;
};

}  // namespace pyroute
