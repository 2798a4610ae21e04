#include "backend/coordinator/process_watch.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace prism {

std::shared_ptr<ProcessWatch> ProcessWatch::start(boost::asio::io_context& io, int pid, std::function<void()> ended) {
  const int pidfd = pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1;
  return pidfd < 0 ? nullptr : start_on(io, pidfd, std::move(ended));
}

std::shared_ptr<ProcessWatch> ProcessWatch::start_on(boost::asio::io_context& io, int fd, std::function<void()> ended) {
  const std::shared_ptr<ProcessWatch> watch(new ProcessWatch(io, fd, std::move(ended)));
  watch->wait();
  return watch;
}

ProcessWatch::ProcessWatch(boost::asio::io_context& io, int fd, std::function<void()> ended)
    : fd_(io, fd), ended_(std::move(ended)) {}

bool ProcessWatch::has_ended() {
  pollfd end{fd_.native_handle(), POLLIN, 0};
  return ::poll(&end, 1, 0) > 0;
}

// Asio completes a wait that it should not where a descriptor is closed and another opened between two events that one
// epoll_wait() has brought: the second event, of the closed one, is taken for the new one's. So the process is asked.
void ProcessWatch::wait() {
  fd_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                 [weak = weak_from_this()](boost::system::error_code error) {
                   const auto self = weak.lock();
                   if (!self || error) return;
                   if (!self->has_ended()) return self->wait();
                   self->ended_();
                 });
}

}  // namespace prism
