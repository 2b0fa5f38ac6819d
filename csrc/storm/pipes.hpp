// Pipes: a Splicer between two file descriptors, Storm's stdin and stdout of a child.
//
// Reads what is there, splices, and writes when `flush_size` bytes wait, or when the oldest of them
// has waited for `linger` and no input is left; so output is late by `linger` at most, and a busy
// stream is written in large pieces. run() comes back for a message that is not for the splicer,
// with everything before it written, and when the time it was given is over.
//
// Storm writes messages one by one. While output waits anyway and little came, the child does not
// wait for the next message but sleeps (`rest` at most): a writer whose reader sleeps in poll pays
// for waking it, with every message.
//
// Guarantees, each a test of that name in tests/test_multilang.py:
//   linger_bound     output does not wait for input that does not come
//   closed_pipe      the end of either pipe is reported, and whether a message was cut off
// Cost: one read per pipe full of input, one write per flush. The kernel's copies are about half of
// it. Threads: one at a time.
#pragma once

#include <chrono>

#include "storm/multilang.hpp"

namespace pyroute {

class Pipes {
 public:
  enum class Why : int {
    message = 0,      // message() is for the caller
    timeout = 1,      // the time is over
    closed = 2,       // the other side closed the input; left() bytes of a message came before it
    unread = 3,       // the other side closed the output
    interrupted = 4,  // a signal came
    too_long = 5,     // a message has more than max_message bytes
  };
  struct Options {
    std::size_t read_size = std::size_t{1} << 18;
    std::size_t flush_size = std::size_t{1} << 16;
    std::size_t max_message = std::size_t{1} << 28;
    std::chrono::nanoseconds linger = std::chrono::microseconds(100);
    std::chrono::nanoseconds rest = std::chrono::microseconds(200);
    int pipe_size = 0;  // bytes to ask of the kernel for both pipes; 0 leaves them
  };

  // Borrows the file descriptors.
  Pipes(int in, int out, Splicer splicer, const Options& options);

  // timeout below 0: none. Throws std::system_error where reading or writing fails otherwise.
  [[nodiscard]] Why run(std::chrono::nanoseconds timeout);

  // Bytes that were read elsewhere before; they come before all that is read here.
  void push(std::string_view bytes);
  [[nodiscard]] std::string_view message() const noexcept { return message_; }
  [[nodiscard]] std::size_t left() const noexcept { return filled_ - begin_; }
  [[nodiscard]] Splicer& splicer() noexcept { return splicer_; }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] bool flush();  // false: nobody reads
  void make_room();
  [[nodiscard]] int wait(Clock::time_point until, bool forever);

  int in_, out_;
  Splicer splicer_;
  Options options_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, filled_ = 0;  // of what was read and is not done
  std::size_t seen_ = 0;                // of it, bytes without an end of a message
  std::size_t came_ = 0;                // bytes of the last read
  bool fresh_ = false;                  // there is input that was not looked at
  Output output_;
  Clock::time_point oldest_;  // when the first byte of the output was put there
  std::string_view message_;
};

}  // namespace pyroute
