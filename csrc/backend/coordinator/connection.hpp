// A socket as its loop sees it: frames come in, bytes to send collect in out() until flush(). At the other end is a
// rank of this host, or (over TCP) the relay of another host, or its coordinator. Loop thread only.
#pragma once
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "backend/protocol/frame.hpp"

namespace prism {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  struct Handlers {
    std::function<void(Connection&, const wire::Frame&)> frame;
    std::function<void(Connection&, const Error& why)> closed;  // once; not after close()
  };
  Connection(Socket socket, Handlers handlers);
  void start();
  // Reads what is there now; for a process that has ended and whose last words may still be in the socket.
  void read_what_is_there();
  wire::Buffer& out();
  // The next bytes to send are those of a frame's body, from where they stand; they stay there as long as `keep`.
  void send_from(std::span<const std::uint8_t> bytes, std::shared_ptr<const void> keep);
  void flush();
  bool flushed() const { return queue_.empty() || (queue_.size() == 1 && queue_.front().bytes().empty()); }
  void close();
  bool is_open() const { return socket_.is_open(); }
  int fd() { return socket_.native_handle(); }
  // Of the process at the other end.
  int pid() const { return peer_.pid; }  // 0: not known here
  bool is_of_this_user() const { return peer_.uid == getuid(); }

  int rank = -1;  // once it has said who it is
  std::size_t frame_limit = wire::kMaxHelloBytes;
  int host = -1;  // at whose relay's end this is, once it has said so
  const std::int64_t made_ns;
  std::int64_t heard_ns;  // when something came last

 private:
  void wait_readable();
  bool read_once();  // false: nothing more to read now
  void take(std::span<const std::uint8_t> bytes);
  void fail(const Error& why);
  void drop_queue();

  Socket socket_;
  Handlers handlers_;
  ucred peer_{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
  wire::Buffer partial_;  // the beginning of a frame
  struct Piece {          // still to be sent
    wire::Buffer own;
    std::span<const std::uint8_t> borrowed;
    std::shared_ptr<const void> keep;
    std::span<const std::uint8_t> bytes() const { return keep ? borrowed : std::span(own); }
  };
  std::deque<Piece> queue_;
  std::size_t sent_ = 0;  // of the first piece
  bool waits_writable_ = false;
};

// A tensor's bytes, from where they stand, as frames of BlockBytes.
void send_block(Connection& connection, std::span<const std::uint8_t> bytes, const std::shared_ptr<const void>& keep);
// Frames for or from a rank, in as many frames of the link as their size asks for.
void append_rank_frames(wire::Buffer& out, int rank, std::span<const std::uint8_t> frames);

}  // namespace prism
