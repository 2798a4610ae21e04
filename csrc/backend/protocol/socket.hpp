// Abstract Unix stream sockets, as far as a rank needs them: no file, so nothing to leave behind.
#pragma once
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/deadline.hpp"
#include "core/result.hpp"

namespace prism {

// A descriptor that closes itself.
class UniqueFd {
 public:
  explicit UniqueFd(int fd = -1) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() { reset(); }
  void reset();
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};
Result<AbstractAddress> abstract_address(const std::string& name);

// Connects to the abstract socket `name`; tries again until `deadline` while nobody listens there.
Result<UniqueFd> connect_to(const std::string& name, Deadline deadline);
// Writes all of `bytes`; false when the other end is gone.
bool send_all(int fd, std::span<const std::uint8_t> bytes);
// Sends `bytes` (a few) with descriptors (at most kMostFds); false when the other end is gone or would block.
constexpr std::size_t kMostFds = 2;
bool send_with_fds(int socket, std::span<const std::uint8_t> bytes, std::span<const int> fds);
// Receives up to bytes.size() bytes, and the descriptors that may come with them; 0 at the end, -1 with errno.
std::ptrdiff_t receive_with_fds(int socket, std::span<std::uint8_t> bytes, std::vector<UniqueFd>& fds);
// Lets the process that listens at the other end reach into this one as a debugger may, where the system asks for that
// (Yama): the accelerator's driver does so.
void allow_tracing_by_peer_of(int socket);

}  // namespace prism
