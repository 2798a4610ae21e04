// A rank's socket as the loop sees it: frames come in, bytes to send collect in out() until flush(). Loop thread only.
#pragma once
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/local/stream_protocol.hpp>
#include <functional>
#include <memory>
#include <string>

#include "backend/protocol/frame.hpp"

namespace prism {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::local::stream_protocol::socket;
  struct Handlers {
    std::function<void(Connection&, const wire::Frame&)> frame;
    std::function<void(Connection&, const Error& why)> closed;  // once; not after close()
  };
  Connection(Socket socket, Handlers handlers);
  void start();
  // Reads what is there now; for a process that has ended and whose last words may still be in the socket.
  void read_what_is_there();
  wire::Buffer& out() { return out_; }
  void flush();
  bool flushed() const { return sent_ == out_.size(); }
  void close();
  bool is_open() const { return socket_.is_open(); }
  int fd() { return socket_.native_handle(); }
  // Of the process at the other end.
  int pid() const { return peer_.pid; }  // 0: not known here
  bool is_of_this_user() const { return peer_.uid == getuid(); }

  int rank = -1;  // once it has said who it is
  std::size_t frame_limit = wire::kMaxHelloBytes;

 private:
  void wait_readable();
  bool read_once();  // false: nothing more to read now
  void take(std::span<const std::uint8_t> bytes);
  void fail(const Error& why);

  Socket socket_;
  Handlers handlers_;
  ucred peer_{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
  wire::Buffer partial_, out_;  // the beginning of a frame; what is still to be sent
  std::size_t sent_ = 0;
  bool waits_writable_ = false;
};

}  // namespace prism
