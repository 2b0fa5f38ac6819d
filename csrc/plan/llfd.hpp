// Least-load-fit-decreasing: the three phases of paper 002 (III), on keys or on records of them.
//
// Before the phases (not in the paper):
//   giants   Where a key is dearer than the greatest limit of any open task, no plan is within the
//            limits. Such keys, dearest first (ties: smaller id), each get a task of their own: the
//            one they are on, if it is open and not given away, else of the open tasks not given
//            away the one of greatest capacity, then of the least level as things are without this
//            key and the giants before it, then smallest. At most open tasks - 1 keys are giants,
//            the rest are plain keys. A task given away takes no other key. What else is on it
//            leaves in phase II, dearest first (ties: smaller id), until as many keys as the
//            table has room for at the start (max_table - keys whose start is not their home, not
//            below 0, divided by the number of giants and rounded down) have left (all, where the
//            table has no bound) and what stays costs at most max_imbalance * the giant's cost;
//            keys that cost nothing stay.
//   start    A key starts where it is (current). From a task that is not open it starts at its home
//            where that is open and not given away, else it is a candidate of phase III at once.
// Phase I    (cleaning) sends some entries home. An entry is a key whose start is not its home,
//            where the home is open and not given away; giants are none. Which: none, all, or the
//            first n in this order: useful ones, harmless ones, others, each by ascending state
//            size (ties: smaller id). Both are not in the paper. Useful is what balance asks for
//            anyway: going through the entries by ascending state size, a record whose cost (of all
//            its keys) is at most what its start is still over the limit and at most the room that
//            is still left on its home, both counted down by it. Then, going through the others in
//            the same order, one whose cost is at most the room still left on its home, counted
//            down by it, is harmless. A record may be sent in part.
// Phase II   (preparing) For each task over its limit, ascending: takes keys off in the order psi
//            until the load is within the limit (F8); then goes through the taken from the last to
//            the first and puts back whatever fits within the limit. Taken keys are candidates.
//            Keys that cost nothing are never taken (F13). A run may be gentle (not in the paper),
//            so that no more leaves than has to, and nothing that would displace others where it
//            goes. With `dear` the greatest room of a task that takes keys, after phase I, going
//            through a task's keys in the order psi, a key is taken if its cost is at most `dear`
//            and at most what the task is over its limit, else passed over, until the load is
//            within the limit, 1024 records were passed over or none is left. While the load is
//            then still over the limit, of those passed over that cost at least what it is over and
//            at most `dear` the one of the smallest state size is taken (ties: the earlier in psi);
//            where there is none, without regard to `dear`; where there is none, the earliest, as
//            many of its keys as have to go. What fits is put back here too.
// Phase III  (assigning, LLFD) Candidates dearest first (ties: smaller id), those that come up
//            later among them (F3). Each is offered to the open tasks not given away, ascending by
//            level (ties: smaller), loads being those of this moment, candidates removed (F1). A
//            task takes it where its load with the key is within the limit (F2), or with Adjust:
//            where taking off an exchangeable set E makes it so. E: keys on that task, not placed
//            by this phase (F6), cheaper than the candidate (ii), above 0; added in the order psi
//            until the load with the candidate is within the limit (iii), then, from the last to
//            the first, left out where it still is without them (F5). E joins the candidates. A key
//            that no task takes goes to the least level among them and counts as stuck (F4).
// Where a record stands for several keys, each is treated as a key of its own: taken, added to E or
// placed one by one; of E's last record and of a put-back only as many as needed (F18).
// psi        cost: highest cost; gamma: greatest c^beta / max(S, 1), c * sqrt(c) / S where beta is
//            1.5; ties: smaller id.
// Every candidate is placed at most once, because E is strictly cheaper: at most one pop per key.
//
// Guarantees, each a test of that name in tests/test_llfd.py:
//   matches_reference   equal to the plain twin
//   terminates          no key is popped twice
//   nothing_lost        every key has exactly one task, an open one
//   theorem_1           with equal capacities, where a perfect assignment exists and no key reaches
//                       the mean, no level is above the limit or 1 + (1 - 1 / tasks) / 3 of the
//                       mean, whichever is greater
// Cost: O(records) once, then about O(moved * log) per run: the orders by psi are built for the
// tasks that need them, as far as they need them, and kept between runs. Threads: one run at a
// time.
#pragma once

#include <memory>

#include "plan/problem.hpp"

namespace pyroute {

enum class Psi : std::uint8_t { cost, gamma };

class Llfd {
 public:
  // The problem must outlive it. Precondition: lengths agree, at least one open task, costs finite
  // and >= 0, sizes >= 0, positions in range, home open unless current is to be kept.
  Llfd(const Problem& problem, Psi psi, double beta);
  ~Llfd();
  Llfd(const Llfd&) = delete;
  Llfd& operator=(const Llfd&) = delete;

  // Entries that cleaning can send home.
  [[nodiscard]] std::int64_t entries() const noexcept;
  // The useful ones among them.
  [[nodiscard]] std::int64_t useful() const noexcept;
  // Runs the three phases from the start, with the first `clean` entries sent home.
  void run(std::int64_t clean, bool gently);
  // What the last run left: keys away from their home, state moved, keys stuck.
  [[nodiscard]] std::int64_t table_size() const noexcept;
  [[nodiscard]] StateSize migration() const noexcept;
  [[nodiscard]] std::int64_t stuck() const noexcept;
  // Runs so far.
  [[nodiscard]] std::int64_t trials() const noexcept;
  [[nodiscard]] Placement placement() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pyroute
