#include "simulate/child_process.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/deadline.hpp"

extern char** environ;

namespace prism::simulate {
namespace {

constexpr std::size_t kLongestLine = 1 << 16, kReadAtOnce = 1 << 14, kLastWords = 400;
constexpr auto kToDie = std::chrono::milliseconds(500);  // between closing its socket and being gone

Error system_error(const std::string& what) {
  return {ErrorCode::kIo, fmt::format("{}: {}", what, std::strerror(errno))};
}

std::string how(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

// The program starts with the signals that a shell would give it, not with those that its parent ignores or holds up.
int spawn(pid_t* pid, const std::string& program, int socket, int errors) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, socket, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, socket, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, errors, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, pipe;
  sigemptyset(&none);
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &pipe);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  char* const arguments[] = {const_cast<char*>(program.c_str()), nullptr};
  const int failed = posix_spawn(pid, program.c_str(), &files, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return failed;
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const std::string& program, std::chrono::nanoseconds silence) {
  ChildProcess child(program.substr(program.rfind('/') + 1), silence);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return system_error("socketpair");
  child.socket_ = ends[0];
  child.errors_ = memfd_create("prism-child-errors", MFD_CLOEXEC);
  const int failed = child.errors_ < 0 ? errno : spawn(&child.pid_, program, ends[1], child.errors_);
  close(ends[1]);
  if (failed == 0) return child;
  child.pid_ = -1;
  return Error{ErrorCode::kIo, fmt::format("{} cannot be started: {}", program, std::strerror(failed))};
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : name_(std::move(other.name_)),
      silence_(other.silence_),
      pid_(std::exchange(other.pid_, -1)),
      socket_(std::exchange(other.socket_, -1)),
      errors_(std::exchange(other.errors_, -1)),
      input_(std::move(other.input_)),
      taken_(other.taken_) {}

ChildProcess::~ChildProcess() {
  for (const int file : {socket_, errors_})
    if (file >= 0) close(file);
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<void> ChildProcess::wait_for(short events) {
  const auto deadline = Deadline::after(silence_);
  for (;;) {
    pollfd one{socket_, events, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    const int ready = poll(&one, 1, static_cast<int>(std::min<std::int64_t>(left, 1'000'000)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return system_error("poll");
    if (deadline.passed())
      return Error{ErrorCode::kTimeout, fmt::format("{} has been silent for {:g} s", name_,
                                                    std::chrono::duration<double>(silence_).count())};
  }
}

// It has closed its end; that it is gone follows at once, or is made to.
Error ChildProcess::ended() {
  if (pid_ < 0) return {ErrorCode::kPeerFailed, fmt::format("{} has ended", name_)};
  const auto deadline = Deadline::after(kToDie);
  int status = 0;
  pid_t got = 0;
  while ((got = waitpid(pid_, &status, WNOHANG)) == 0 && !deadline.passed()) poll(nullptr, 0, 1);
  if (got != pid_) return {ErrorCode::kPeerFailed, fmt::format("{} has closed its output{}", name_, last_words())};
  pid_ = -1;
  return {ErrorCode::kPeerFailed, fmt::format("{} {}{}", name_, how(status), last_words())};
}

// ": " and the last line of what it has written to standard error.
std::string ChildProcess::last_words() const {
  const auto size = lseek(errors_, 0, SEEK_END);
  if (size <= 0) return "";
  std::string text(std::min<std::size_t>(static_cast<std::size_t>(size), kLastWords), '\0');
  const auto got = pread(errors_, text.data(), text.size(), size - static_cast<off_t>(text.size()));
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  text.resize(text.find_last_not_of(" \n") + 1);
  return ": " + text.substr(text.rfind('\n') + 1);
}

Result<void> ChildProcess::write(std::string_view text) {
  while (!text.empty()) {
    const auto sent = send(socket_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      text.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      PRISM_RETURN_IF_ERROR(wait_for(POLLOUT));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return {};  // it may have said why: the next read_line() tells
    } else if (errno != EINTR) {
      return system_error("send to " + name_);
    }
  }
  return {};
}

Result<std::string> ChildProcess::read_line() {
  for (;;) {
    const auto end = input_.find('\n', taken_);
    if (end != std::string::npos) {
      auto line = input_.substr(taken_, end - taken_);
      taken_ = end + 1;
      return line;
    }
    input_.erase(0, std::exchange(taken_, 0));
    if (input_.size() > kLongestLine)
      return Error{ErrorCode::kPeerFailed, fmt::format("{}: a line of more than {} bytes", name_, kLongestLine)};
    char buffer[kReadAtOnce];
    const auto got = recv(socket_, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) {
      input_.append(buffer, static_cast<std::size_t>(got));
    } else if (got == 0 || errno == ECONNRESET) {
      return ended();
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      PRISM_RETURN_IF_ERROR(wait_for(POLLIN));
    } else if (errno != EINTR) {
      return system_error("receive from " + name_);
    }
  }
}

}  // namespace prism::simulate
