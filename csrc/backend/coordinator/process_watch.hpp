// The end of a process, as an event of the loop.
#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>

namespace prism {

class ProcessWatch : public std::enable_shared_from_this<ProcessWatch> {
 public:
  // `ended` is called once from the loop, unless the watch has been let go by then. Null where the process is not known
  // (pid <= 0, or gone without a trace) or the system has no pidfd.
  static std::shared_ptr<ProcessWatch> start(boost::asio::io_context& io, int pid, std::function<void()> ended);
  // The same of whoever holds the other end of a pipe; `fd` is taken over.
  static std::shared_ptr<ProcessWatch> start_on(boost::asio::io_context& io, int fd, std::function<void()> ended);
  bool has_ended();

 private:
  ProcessWatch(boost::asio::io_context& io, int fd, std::function<void()> ended);
  void wait();

  boost::asio::posix::stream_descriptor fd_;
  std::function<void()> ended_;
};

}  // namespace prism
