#include "storm/pipes.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

namespace pyroute {
namespace {

constexpr std::size_t kLittle = 16384;  // bytes of a read: who brings more is not waiting for us

void ask_for_size([[maybe_unused]] int fd, [[maybe_unused]] int size) noexcept {
#ifdef F_SETPIPE_SZ
  if (size > 0) static_cast<void>(fcntl(fd, F_SETPIPE_SZ, size));  // a wish: the kernel may refuse
#endif
}

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

Pipes::Pipes(int in, int out, Splicer splicer, const Options& options)
    : in_(in), out_(out), splicer_(std::move(splicer)), options_(options) {
  buffer_.resize(options_.read_size + Splicer::kPadding);
  ask_for_size(in_, options_.pipe_size);
  ask_for_size(out_, options_.pipe_size);
}

void Pipes::push(std::string_view bytes) {
  while (buffer_.size() - Splicer::kPadding - filled_ < bytes.size())
    buffer_.resize(2 * buffer_.size());
  std::memcpy(buffer_.data() + filled_, bytes.data(), bytes.size());
  filled_ += bytes.size();
  fresh_ = true;
}

// At least a quarter of the buffer is free afterwards.
void Pipes::make_room() {
  if (begin_ == filled_) {
    begin_ = filled_ = 0;
  } else if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, filled_ - begin_);
    filled_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() - Splicer::kPadding - filled_ < buffer_.size() / 4)
    buffer_.resize(2 * buffer_.size());
}

bool Pipes::flush() {
  std::string_view rest = output_.view();
  while (!rest.empty()) {
    const ssize_t done = ::write(out_, rest.data(), rest.size());
    if (done >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(done));
    } else if (errno == EPIPE) {
      output_.clear();
      return false;
    } else if (errno == EAGAIN) {  // somebody made the pipe non-blocking
      pollfd ready{out_, POLLOUT, 0};
      static_cast<void>(::poll(&ready, 1, -1));
    } else if (errno != EINTR) {
      fail("write");
    }
  }
  output_.clear();
  return true;
}

// Above 0: there is input, or its end. 0: the time is over. Below: a signal came.
int Pipes::wait(Clock::time_point until, bool forever) {
  pollfd ready{in_, POLLIN, 0};
  const auto left = forever ? std::chrono::nanoseconds(0)
                            : std::max(std::chrono::nanoseconds(until - Clock::now()),
                                       std::chrono::nanoseconds(0));
#ifdef __linux__
  const timespec time{static_cast<time_t>(left.count() / 1000000000),
                      static_cast<long>(left.count() % 1000000000)};
  const int got = ::ppoll(&ready, 1, forever ? nullptr : &time, nullptr);
#else
  const auto rounded = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  const int got = ::poll(&ready, 1, forever ? -1 : static_cast<int>(rounded));
#endif
  if (got < 0 && errno != EINTR) fail("poll");
  return got;
}

Pipes::Why Pipes::run(std::chrono::nanoseconds timeout) {
  const bool forever = timeout.count() < 0;
  const Clock::time_point over = forever ? Clock::time_point() : Clock::now() + timeout;
  message_ = {};
  while (true) {
    if (fresh_) {
      fresh_ = false;
      const bool was_empty = output_.size() == 0;
      const auto [consumed, message] =
          splicer_.splice(buffer_.data() + begin_, filled_ - begin_, seen_, output_);
      begin_ += consumed;
      seen_ = filled_ - begin_;
      if (was_empty && output_.size() > 0) oldest_ = Clock::now();
      if (message.data() != nullptr) {
        if (!flush()) return Why::unread;
        message_ = message;
        seen_ = 0;
        fresh_ = filled_ > begin_;
        return Why::message;
      }
      if (seen_ > options_.max_message) return Why::too_long;
      if (output_.size() >= options_.flush_size && !flush()) return Why::unread;
      // A stream that never pauses must not keep its owner from what it has to do now and then.
      if (!forever && Clock::now() >= over) return flush() ? Why::timeout : Why::unread;
    }
    if (output_.size() > 0) {
      Clock::time_point due = oldest_ + options_.linger;
      if (!forever) due = std::min(due, over);
      const Clock::time_point now = Clock::now();
      if (now < due && came_ < kLittle)
        std::this_thread::sleep_until(std::min(due, now + options_.rest));
      const int got = now < due ? wait(due, false) : 0;
      if (got < 0) return flush() ? Why::interrupted : Why::unread;
      if (got == 0) {
        if (!flush()) return Why::unread;
        continue;
      }
    } else if (!forever) {
      const int got = wait(over, false);
      if (got < 0) return Why::interrupted;
      if (got == 0) return Why::timeout;
    }
    make_room();
    const ssize_t done =
        ::read(in_, buffer_.data() + filled_, buffer_.size() - Splicer::kPadding - filled_);
    if (done > 0) {
      came_ = static_cast<std::size_t>(done);
      filled_ += came_;
      fresh_ = true;
    } else if (done == 0) {
      return flush() ? Why::closed : Why::unread;
    } else if (errno == EINTR) {
      return flush() ? Why::interrupted : Why::unread;
    } else if (errno == EAGAIN) {
      static_cast<void>(wait(over, forever));
    } else {
      fail("read");
    }
  }
}

}  // namespace pyroute
