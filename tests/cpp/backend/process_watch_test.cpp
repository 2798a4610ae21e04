#include "backend/coordinator/process_watch.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "catch2.hpp"

using prism::ProcessWatch;

namespace {

class SleepingChild {
 public:
  SleepingChild() : pid(fork()) {
    if (pid == 0) {
      pause();
      _exit(0);
    }
  }
  ~SleepingChild() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  void die() const {
    kill(pid, SIGKILL);
    siginfo_t info;
    REQUIRE(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);  // dead, and still known
  }
  const int pid;
};

}  // namespace

TEST_CASE("a rank that joins while another's end is being handled is not taken for ended") {
  boost::asio::io_context io;
  const SleepingChild first, second;
  int finish[2];
  REQUIRE(pipe(finish) == 0);
  boost::asio::posix::stream_descriptor finished(io, finish[0]);
  std::shared_ptr<ProcessWatch> watch_of_first, watch_of_second;
  int first_ended = 0, second_ended = 0;
  // As in the coordinator: the first rank's last message lets its watch go, and the second rank's greeting comes next.
  finished.async_wait(boost::asio::posix::stream_descriptor::wait_read, [&](boost::system::error_code) {
    watch_of_first.reset();
    watch_of_second = ProcessWatch::start(io, second.pid, [&] { ++second_ended; });
  });
  watch_of_first = ProcessWatch::start(io, first.pid, [&] { ++first_ended; });
  // Both events are there when the loop looks, that of the message first.
  REQUIRE(write(finish[1], "x", 1) == 1);
  first.die();
  while (!watch_of_second) io.run_one();
  io.poll();
  REQUIRE(first_ended == 0);
  REQUIRE(second_ended == 0);
  REQUIRE_FALSE(watch_of_second->has_ended());

  second.die();
  while (second_ended == 0) io.run_one();
  io.poll();
  REQUIRE(second_ended == 1);
  REQUIRE(watch_of_second->has_ended());
  close(finish[1]);
}

TEST_CASE("an unknown process has no watch") {
  boost::asio::io_context io;
  REQUIRE(ProcessWatch::start(io, 0, [] {}) == nullptr);
  REQUIRE(ProcessWatch::start(io, -1, [] {}) == nullptr);
}
