#include "backend/coordinator/connection.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "backend/protocol/link.hpp"
#include "core/deadline.hpp"

namespace prism {
namespace {

constexpr std::size_t kReadBytes = 128u << 10;
constexpr int kReadsInARow = 8;  // then others have their turn

}  // namespace

Connection::Connection(Socket socket, Handlers handlers)
    : made_ns(now_ns()), heard_ns(made_ns), socket_(std::move(socket)), handlers_(std::move(handlers)) {
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
  heard_ns = now_ns();
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

wire::Buffer& Connection::out() {
  if (queue_.empty() || queue_.back().keep) queue_.emplace_back();
  return queue_.back().own;
}

void Connection::send_from(std::span<const std::uint8_t> bytes, std::shared_ptr<const void> keep) {
  if (!bytes.empty()) queue_.push_back({{}, bytes, std::move(keep)});
}

void Connection::flush() {
  while (is_open() && !flushed() && !waits_writable_) {
    const auto left = queue_.front().bytes().subspan(sent_);
    const ssize_t sent = left.empty() ? 0 : send(fd(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      sent_ += static_cast<std::size_t>(sent);
      if (static_cast<std::size_t>(sent) < left.size()) continue;
      sent_ = 0;
      if (queue_.size() == 1 && !queue_.front().keep) {
        queue_.front().own.clear();  // its memory serves again
      } else {
        const Piece done = std::move(queue_.front());  // whose keeper, when it goes, may have something to send
        queue_.pop_front();
      }
    } else if (errno == EAGAIN) {
      waits_writable_ = true;
      socket_.async_wait(Socket::wait_write, [self = shared_from_this()](boost::system::error_code error) {
        self->waits_writable_ = false;
        if (!error) self->flush();
      });
    } else if (errno != EINTR) {
      drop_queue();  // the reading side will tell that the other end is gone
    }
  }
}

void Connection::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
  drop_queue();
}

void Connection::drop_queue() {
  std::deque<Piece> dropped;
  dropped.swap(queue_);
  sent_ = 0;
}

void Connection::fail(const Error& why) {
  if (!is_open()) return;
  close();
  handlers_.closed(*this, why);
}

void send_block(Connection& connection, std::span<const std::uint8_t> bytes, const std::shared_ptr<const void>& keep) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), wire::kChunkBytes));
    auto& out = connection.out();
    wire::append_frame(out, wire::BlockBytes{});
    const auto size = static_cast<std::uint32_t>(piece.size());
    std::memcpy(out.data() + out.size() - wire::kFrameHeaderBytes, &size, sizeof size);
    connection.send_from(piece, keep);
    bytes = bytes.subspan(piece.size());
  }
}

void append_rank_frames(wire::Buffer& out, int rank, std::span<const std::uint8_t> frames) {
  while (!frames.empty()) {
    std::size_t size = 0;
    while (size < frames.size() && size < wire::kTogetherBytes) {
      std::uint32_t body = 0;
      std::memcpy(&body, frames.data() + size, sizeof body);
      size += wire::kFrameHeaderBytes + body;
    }
    wire::append_frame(out, wire::RankFrames{static_cast<std::uint32_t>(rank), frames.first(size)});
    frames = frames.subspan(size);
  }
}

}  // namespace prism
