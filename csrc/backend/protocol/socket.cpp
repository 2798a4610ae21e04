#include "backend/protocol/socket.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>

namespace prism {

void UniqueFd::reset() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

Result<AbstractAddress> abstract_address(const std::string& name) {
  AbstractAddress result;
  auto& path = result.address.sun_path;
  if (name.empty() || name.size() >= sizeof path)
    return Error{ErrorCode::kInvalidInput, fmt::format("the coordinator's address '{}' has {} characters; accepted: 1 "
                                                       "to {}",
                                                       name, name.size(), sizeof path - 1)};
  result.address.sun_family = AF_UNIX;
  std::memcpy(path + 1, name.data(), name.size());  // behind a zero: a name that is no file
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

Result<UniqueFd> connect_to(const std::string& name, Deadline deadline) {
  PRISM_ASSIGN_OR_RETURN(const auto address, abstract_address(name));
  auto pause = std::chrono::milliseconds(1);
  while (true) {
    // Not blocking while it connects: where the listener's queue is full, connect() would wait without a limit.
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd.get() < 0) return Error{ErrorCode::kIo, fmt::format("socket: {}", std::strerror(errno))};
    if (connect(fd.get(), address.get(), address.length) == 0 && fcntl(fd.get(), F_SETFL, 0) == 0) return fd;
    // A listener that is not there yet, or whose queue of a thousand starting ranks is full for the moment.
    const bool may_come = errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR;
    if (!may_come || deadline.passed())
      return Error{ErrorCode::kPeerFailed,
                   fmt::format("no coordinator answers at '{}': {}", name, std::strerror(errno))};
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
}

bool send_all(int fd, std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

bool send_with_fds(int socket, std::span<const std::uint8_t> bytes, std::span<const int> fds) {
  if (fds.empty() || fds.size() > kMostFds) return false;
  iovec piece{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  ssize_t sent = 0;
  do sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}

std::ptrdiff_t receive_with_fds(int socket, std::span<std::uint8_t> bytes, std::vector<UniqueFd>& fds) {
  iovec piece{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t received = 0;
  do received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (received < 0 && errno == EINTR);
  if (received <= 0) return received;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= header->cmsg_len; at += sizeof(int)) {
      int passed = -1;
      std::memcpy(&passed, CMSG_DATA(header) + at, sizeof passed);
      fds.emplace_back(passed);
    }
  }
  return received;
}

void allow_tracing_by_peer_of(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid > 0)
    prctl(PR_SET_PTRACER, static_cast<unsigned long>(peer.pid), 0, 0, 0);  // without Yama: refused, and not needed
}

}  // namespace prism
