#include "backend/coordinator/connection.hpp"

#include <array>
#include <cerrno>
#include <cstring>

namespace prism {
namespace {

constexpr std::size_t kReadBytes = 128u << 10;
constexpr int kReadsInARow = 8;  // then others have their turn

}  // namespace

Connection::Connection(Socket socket, Handlers handlers) : socket_(std::move(socket)), handlers_(std::move(handlers)) {
  socklen_t length = sizeof peer_;
  getsockopt(fd(), SOL_SOCKET, SO_PEERCRED, &peer_, &length);
}

void Connection::start() { wait_readable(); }

void Connection::wait_readable() {
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](boost::system::error_code error) {
    if (error || !self->is_open()) return;
    for (int i = 0; i < kReadsInARow; ++i)
      if (!self->read_once()) break;
    if (self->is_open()) self->wait_readable();
  });
}

void Connection::read_what_is_there() {
  const auto self = shared_from_this();
  while (is_open() && read_once()) {
  }
}

bool Connection::read_once() {
  // One for all connections: the loop is one thread, and nothing of it outlives take().
  thread_local std::array<std::uint8_t, kReadBytes> scratch;
  const ssize_t got = recv(fd(), scratch.data(), scratch.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    fail({ErrorCode::kPeerFailed, got == 0 ? "its connection has closed" : std::strerror(errno)});
    return false;
  }
  const auto bytes = std::span(scratch).first(static_cast<std::size_t>(got));
  if (partial_.empty()) {
    take(bytes);
  } else {
    partial_.insert(partial_.end(), bytes.begin(), bytes.end());
    const auto frame = wire::first_frame(partial_, frame_limit);
    if (!frame || *frame) {
      wire::Buffer whole;
      whole.swap(partial_);
      take(whole);
    }
  }
  return is_open() && bytes.size() == scratch.size();
}

void Connection::take(std::span<const std::uint8_t> bytes) {
  while (is_open()) {
    const auto frame = wire::first_frame(bytes, frame_limit);
    if (!frame) return fail(frame.error());
    if (!*frame) break;
    handlers_.frame(*this, **frame);
    bytes = bytes.subspan(wire::kFrameHeaderBytes + (*frame)->body.size());
  }
  partial_.assign(bytes.begin(), bytes.end());
}

void Connection::flush() {
  while (is_open() && !flushed() && !waits_writable_) {
    const ssize_t sent = send(fd(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      sent_ += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      waits_writable_ = true;
      socket_.async_wait(Socket::wait_write, [self = shared_from_this()](boost::system::error_code error) {
        self->waits_writable_ = false;
        if (!error) self->flush();
      });
      return;
    } else if (errno != EINTR) {
      sent_ = out_.size();  // the reading side will tell that the other end is gone
    }
  }
  if (!flushed()) return;
  out_.clear();
  sent_ = 0;
}

void Connection::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void Connection::fail(const Error& why) {
  if (!is_open()) return;
  close();
  handlers_.closed(*this, why);
}

}  // namespace prism
