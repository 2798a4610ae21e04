// Who computes when: slots are given back by waits, polls, sleepers and futures, and never are more in use than there
// are.
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <ctime>
#include <future>
#include <mutex>

#include "backend/harness.hpp"
#include "catch2.hpp"

using namespace prism;
using namespace prism::test;

namespace {

using Values = std::vector<std::int64_t>;

void compute_for(std::chrono::milliseconds span) {
  timespec start{}, now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
  do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  while ((now.tv_sec - start.tv_sec) * 1'000'000'000 + now.tv_nsec - start.tv_nsec < span.count() * 1'000'000);
}

std::uint64_t number_of(const std::string& json, const std::string& key) {
  const auto at = json.find("\"" + key + "\":");
  REQUIRE(at != std::string::npos);
  return std::stoull(json.substr(at + key.size() + 3));
}

}  // namespace

TEST_CASE("ranks that compute between waits never are more than there are slots", "[one_host]") {
  const int slots = GENERATE(1, 2);
  std::atomic<int> computing{0}, most{0};
  const auto job = run_job(6, slots, [&](Rank& self) {
    for (int step = 0; step < 4; ++step) {
      const int now = ++computing;
      for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
      }
      compute_for(std::chrono::milliseconds(3));
      --computing;
      self.all_reduce({1});
    }
  });
  require_ok(job);
  REQUIRE(most <= slots);
}

TEST_CASE("a chain of blocking collectives needs few more switches than it must", "[one_host]") {
  const auto job = run_job(8, 1, [](Rank& self) {
    for (int step = 0; step < 20; ++step) self.all_reduce({step});
  });
  require_ok(job);
  const auto bound = number_of(job.statistics, "switches_lower_bound");
  REQUIRE(bound == 20 * 7);
  REQUIRE(number_of(job.statistics, "switches") >= bound);
  REQUIRE(number_of(job.statistics, "switches") <= 2 * bound);
}

TEST_CASE("a program that spins on is_completed() finishes on one slot") {
  require_ok(run_job(3, 1, [](Rank& self) {
    for (int step = 0; step < 5; ++step) {
      Rank::Answer answer;
      const WorkId work = self.start(self.operation(Op::kAllReduce, {self.put({self.rank()})}, {1}), &answer).value();
      while (!self.client().poll(work)) {
      }
      expect(answer.tensors == std::vector<Values>{{3}}, "sum");
    }
  }));
}

TEST_CASE("a program that spins on store.check() finishes on one slot") {
  require_ok(run_job(3, 1, [](Rank& self) {
    if (self.rank() == 2) expect(self.client().store_set("go", {1}).ok(), "set");
    while (!self.client().store_check({"go"}).value()) {
    }
  }));
}

TEST_CASE("a rank that spins on something else of its own lets others run beside it after a while") {
  require_ok(run_job(2, 1, [](Rank& self) {
    Rank::Answer answer;
    std::atomic<bool> done{false};
    if (self.rank() == 0) {
      const auto operation = self.operation(Op::kAllReduce, {self.put({1})}, {1});
      expect(self.client().issue(operation, [&](const Outcome&) { done = true; }).ok(), "issue");
      while (!done) {
      }
    } else {
      self.all_reduce({1});
    }
  }));
}

TEST_CASE("a rank that sleeps while it holds the only slot lends it out") {
  // Rank 0 sleeps in a lock that rank 1 opens: nothing of it can be seen by the client.
  std::mutex mutex;
  std::condition_variable changed;
  bool opened = false;
  require_ok(run_job(2, 1, [&](Rank& self) {
    std::unique_lock lock(mutex);
    if (self.rank() == 0) {
      changed.wait(lock, [&] { return opened; });
    } else {
      opened = true;
      changed.notify_all();
    }
    lock.unlock();
    expect(self.all_reduce({1}) == Values{2}, "sum");
  }));
}

TEST_CASE("a thread asleep in a future is woken by the operation behind it") {
  const bool announced = GENERATE(false, true);
  require_ok(run_job(2, 1, [&](Rank& self) {
    for (int step = 0; step < 5; ++step) {
      std::mutex mutex;
      std::condition_variable changed;
      bool done = false;
      const auto operation = self.operation(Op::kAllReduce, {self.put({1})}, {1});
      expect(self.client()
                 .issue(operation,
                        [&](const Outcome&) {
                          std::lock_guard lock(mutex);
                          done = true;
                          changed.notify_all();
                        })
                 .ok(),
             "issue");
      if (announced) self.client().lend_slot();
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return done; });
    }
  }));
}

TEST_CASE("without_slot() lets others compute meanwhile") {
  std::mutex mutex;
  std::condition_variable changed;
  bool opened = false;
  require_ok(run_job(2, 1, [&](Rank& self) {
    if (self.rank() == 0) {
      self.client().without_slot([&] {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return opened; });
      });
    } else {
      std::lock_guard lock(mutex);
      opened = true;
      changed.notify_all();
    }
    self.barrier();
  }));
}

TEST_CASE("two threads of one rank wait at once, each for its own operation") {
  require_ok(run_job(2, 1, [](Rank& self) {
    const auto left = self.group("left", {0, 1}), right = self.group("right", {0, 1});
    auto mine = self.operation(Op::kAllReduce, {self.put({1})}, {1}, left);
    auto other = self.operation(Op::kAllReduce, {self.put({2})}, {1}, right);
    std::thread thread([&] {
      Rank::Answer answer;
      static_cast<void>(self.wait(self.start(other, &answer).value()));
      expect(answer.tensors == std::vector<Values>{{4}}, "right");
    });
    expect(self.run(mine).tensors == std::vector<Values>{{2}}, "left");
    thread.join();
  }));
}

TEST_CASE("time without a slot is counted") {
  std::atomic<const RankClient*> waiter{nullptr};
  std::atomic<std::int64_t> off{0};
  require_ok(run_job(2, 1, [&](Rank& self) {
    if (self.rank() == 0) waiter = &self.client();
    self.barrier();
    if (self.rank() == 1) {
      // It grows from when it has given up its slot: on another host, some time after it has called.
      for (const auto before = waiter.load()->off_slot_ns(); waiter.load()->off_slot_ns() == before;)
        std::this_thread::yield();
      compute_for(std::chrono::milliseconds(20));
    }
    self.barrier();
    if (self.rank() == 0) off = self.client().off_slot_ns();
  }));
  REQUIRE(off >= 20'000'000);
}

TEST_CASE("what a rank sleeps with its slot lent is its own time, not waiting") {
  std::atomic<bool> over{false};
  std::atomic<std::int64_t> off{0}, waited{-1};
  require_ok(run_job(2, 1, [&](Rank& self) {
    if (self.rank() == 1) {
      expect(self.client().store_get("go", Deadline::after(std::chrono::minutes(1))).ok(), "get");
      compute_for(std::chrono::milliseconds(20));
      over = true;
      return;
    }
    expect(self.client().store_set("go", {}).ok(), "set");
    const auto before = self.client().waiting_ns(), off_before = self.client().off_slot_ns();
    self.client().without_slot([&] {
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    waited = self.client().waiting_ns() - before;
    off = self.client().off_slot_ns() - off_before;
  }));
  REQUIRE(waited == 0);
  REQUIRE(off >= 20'000'000);
}

TEST_CASE("a deadline holds although another thread of the rank sleeps, and the slot is lent") {
  require_ok(run_job(2, 1, [](Rank& self) {
    if (self.rank() == 1) {
      expect(self.client().store_get("over", Deadline::after(std::chrono::hours(1))).ok(), "get");
      return;
    }
    std::atomic<bool> over{false};
    std::thread sleeper([&] {
      expect(self.client().store_set("known", {}).ok(), "set");
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    });
    const auto waited = self.client().store_wait({"never"}, Deadline::after(std::chrono::milliseconds(60)));
    expect(!waited && waited.error().code == ErrorCode::kTimeout, "a timeout");
    over = true;
    sleeper.join();
    expect(self.client().store_set("over", {}).ok(), "set");
  }));
}

TEST_CASE("ranks may come one after the other, and not all of them, as long as somebody says that more may come") {
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  auto options = small_coordinator(64, 1);
  options.more_ranks_fd = pipe_ends[0];
  options.join_timeout = std::chrono::milliseconds(1);
  Coordinator coordinator(options, std::make_shared<PlainExecutor>());
  auto served = std::async(std::launch::async, [&] { return coordinator.run(); });
  for (const int number : {7, 3}) {
    auto client = RankClient::connect({.address = options.address, .rank = number, .world_size = 64});
    REQUIRE(client);
    Rank rank(std::move(*client), number, 64);
    const std::int32_t self = number;
    const auto alone = rank.group("alone" + std::to_string(number), {self});
    REQUIRE(rank.all_reduce({5}, alone) == std::vector<std::int64_t>{5});
    rank.client().finish("");  // the next one finds the coordinator there
  }
  close(pipe_ends[1]);
  REQUIRE(served.get());
}
