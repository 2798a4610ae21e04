// Ranks as processes, as under `prism capture`: they sleep, stop, die and fork. Tagged [processes]: the thread
// sanitizer's own thread in each process is never quite asleep.
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <mutex>

#include "backend/harness.hpp"
#include "catch2.hpp"

using namespace prism;
using namespace prism::test;

TEST_CASE("ranks asleep in futures that nobody will complete are a deadlock too", "[processes]") {
  const auto job = run_processes(2, 1, [](Rank& self) {
    if (self.rank() == 1) return;
    const auto operation = self.operation(Op::kAllReduce, {self.put({1})}, {1});
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    if (!self.client().issue(operation, [&](const Outcome&) {
          std::lock_guard lock(mutex);
          done = true;
          changed.notify_all();
        }))
      return;
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
  });
  const Error error = error_of(job);
  REQUIRE(error.code == ErrorCode::kDeadlock);
  REQUIRE_THAT(error.message,
               ContainsSubstring("rank 0 in all_reduce #0 of group 'world': missing rank 1 (has finished)"));
}

TEST_CASE("a rank that sleeps for a while is no deadlock", "[processes]") {
  const auto job = run_processes(2, 1, [](Rank& self) {
    if (self.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    self.barrier();
  });
  require_ok(job);
}

TEST_CASE("kill -9 of a rank ends the run and names the rank", "[processes]") {
  const auto job = run_processes(3, 1, [](Rank& self) {
    if (self.rank() == 1) kill(getpid(), SIGKILL);
    self.barrier();
  });
  REQUIRE(error_of(job).code == ErrorCode::kPeerFailed);
  REQUIRE_THAT(error_of(job).message, ContainsSubstring("rank 1 died"));
}

TEST_CASE("a rank that dies while its own child lives on is noticed", "[processes]") {
  int child_end[2];
  REQUIRE(pipe(child_end) == 0);
  const auto job = run_processes(2, 2, [&](Rank& self) {
    if (self.rank() == 1) {
      if (fork() == 0) {
        char byte;
        close(child_end[1]);
        static_cast<void>(!read(child_end[0], &byte, 1));  // until the test ends
        _exit(0);
      }
      kill(getpid(), SIGKILL);
    }
    close(child_end[1]);
    self.barrier();
  });
  close(child_end[0]);
  close(child_end[1]);
  REQUIRE_THAT(error_of(job).message, ContainsSubstring("rank 1 died"));
}

TEST_CASE("a stopped rank is a fault, not an idle holder", "[processes]") {
  const auto job = run_processes(2, 1, [](Rank& self) {
    if (self.rank() == 0) raise(SIGSTOP);
    self.barrier();
  });
  REQUIRE_THAT(error_of(job).message, ContainsSubstring("rank 0"));
  REQUIRE_THAT(error_of(job).message, ContainsSubstring("is stopped by a signal"));
}

TEST_CASE("when the coordinator is killed every call of every rank returns", "[processes]") {
  auto options = small_coordinator(2, 2);
  const pid_t coordinator = fork();
  if (coordinator == 0) {
    Coordinator run(options, std::make_shared<PlainExecutor>());
    static_cast<void>(run.run());
    _exit(0);
  }
  std::vector<Result<void>> ended(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      RankClient::Options client{options.address, rank, 2, std::chrono::seconds(60), false};
      Rank self(RankClient::connect(client).value(), rank, 2);
      static_cast<void>(self.run(self.operation(Op::kBarrier, {}, {})));
      if (rank == 1) kill(coordinator, SIGKILL);
      ended[static_cast<std::size_t>(rank)] = self.run(self.operation(Op::kRecv, {}, {1})).status;
    });
  for (auto& rank : ranks) rank.join();
  waitpid(coordinator, nullptr, 0);
  for (const auto& result : ended) {
    REQUIRE_FALSE(result.ok());
    REQUIRE(result.error().code == ErrorCode::kPeerFailed);
    REQUIRE_THAT(result.error().message, ContainsSubstring("the coordinator has gone"));
  }
}

TEST_CASE("a process forked from a rank cannot speak for it, nor end its session", "[processes]") {
  const auto job = run_processes(2, 2, [](Rank& self) {
    self.barrier();
    const pid_t child = fork();
    if (child == 0) {
      const bool refused = !self.client().store_set("x", {1}).ok() && !self.client().stage(64).ok() &&
                           self.client().issue({}, {}).error().code == ErrorCode::kAborted;
      self.client().finish("");
      _exit(refused ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child's calls");
    expect(self.all_reduce({1}).at(0) == 2, "the parent goes on");
  });
  require_ok(job);
}
