// Callbacks of completed operations: they may issue, wait and sleep, in one order on every rank.
#include <fmt/format.h>

#include <condition_variable>
#include <mutex>

#include "backend/harness.hpp"
#include "catch2.hpp"

using namespace prism;
using namespace prism::test;

using Values = std::vector<std::int64_t>;

TEST_CASE("callbacks may issue and wait, several deep, as PowerSGD's do") {
  require_ok(run_job(3, 1, [](Rank& self) {
    constexpr int kBuckets = 8;
    std::vector<WorkId> works;
    std::vector<std::int64_t> results(kBuckets);
    const auto world = self.world_group();
    for (int bucket = 0; bucket < kBuckets; ++bucket) {
      auto first = self.operation(Op::kAllReduce, {self.put({1})}, {1});
      first.seq = static_cast<std::uint64_t>(bucket);
      works.push_back(self.client()
                          .issue(first,
                                 [&, bucket](const Outcome& outcome) {
                                   const std::int64_t sum = self.get(outcome.regions.at(0)).at(0);
                                   Operation second;
                                   second.group = world;
                                   second.op = Op::kAllReduce;
                                   second.dtype = DType::kInt64;
                                   second.reduce_op = ReduceOp::kSum;
                                   second.seq = static_cast<std::uint64_t>(kBuckets + bucket);
                                   second.inputs = {self.put({sum + bucket})};
                                   second.output_bytes = {8};
                                   const WorkId work = self.client()
                                                           .issue(second,
                                                                  [&, bucket](const Outcome& inner) {
                                                                    results[static_cast<std::size_t>(bucket)] =
                                                                        self.get(inner.regions.at(0)).at(0);
                                                                  })
                                                           .value();
                                   static_cast<void>(self.wait(work));
                                 })
                          .value());
    }
    expect(self.client().wait(works, Deadline::after(std::chrono::hours(1))).ok(), "wait");
    for (int bucket = 0; bucket < kBuckets; ++bucket)
      expect(results[static_cast<std::size_t>(bucket)] == 9 + 3 * bucket, "second sum");
  }));
}

TEST_CASE("callbacks that issue take turns: each runs to its end before the next, in one order on every rank") {
  constexpr int kRanks = 3, kBuckets = 4, kStages = 2;
  std::vector<std::vector<std::string>> order(kRanks);
  require_ok(run_job(kRanks, 1, [&](Rank& self) {
    auto& mine = order[static_cast<std::size_t>(self.rank())];
    std::vector<WorkId> works;
    std::vector<Rank::Answer> answers(kBuckets * kStages);
    for (int bucket = 0; bucket < kBuckets; ++bucket) {
      const auto issue_stages = [&, bucket](const Outcome&) {
        for (int stage = 0; stage < kStages; ++stage) {
          mine.push_back(fmt::format("{}.{}", bucket, stage));
          // The next number of the group: what pairs here are the n-th calls of the ranks, as in torch.
          auto& answer = answers[static_cast<std::size_t>(bucket * kStages + stage)];
          const auto operation = self.operation(Op::kAllReduce, {self.put({100 * bucket + stage})}, {1});
          static_cast<void>(self.wait(self.start(operation, &answer).value()));
        }
      };
      const auto first = self.operation(Op::kAllReduce, {self.put({1})}, {1});
      works.push_back(self.client().issue(first, issue_stages).value());
    }
    expect(self.client().wait(works, Deadline::after(std::chrono::hours(1))).ok(), "wait");
    for (int i = 0; i < kBuckets * kStages; ++i)
      expect(answers[static_cast<std::size_t>(i)].tensors ==
                 std::vector<Values>{{kRanks * (100 * (i / kStages) + i % kStages)}},
             "the sum of one bucket's stage on all ranks");
  }));
  const std::vector<std::string> in_turn = {"0.0", "0.1", "1.0", "1.1", "2.0", "2.1", "3.0", "3.1"};
  for (const auto& of_rank : order) REQUIRE(of_rank == in_turn);
}

TEST_CASE("a callback whose turn has not come runs all the same when the whole job would wait for it") {
  require_ok(run_job(2, 1, [](Rank& self) {
    // The first callback of rank 0 receives what the second of rank 1 sends, and the other way round.
    const auto message = [&](Op op, int tag) {
      Operation operation = self.operation(op, {}, {});
      operation.peer = 1 - self.rank();
      operation.tag = tag;
      operation.reduce_op = ReduceOp::kNone;
      if (op == Op::kSend)
        operation.inputs = {self.put({7})};
      else
        operation.output_bytes = {8};
      return operation;
    };
    Rank::Answer received, sent;
    const auto receives = [&](const Outcome&) {
      static_cast<void>(self.wait(self.start(message(Op::kRecv, self.rank()), &received).value()));
    };
    const auto sends = [&](const Outcome&) {
      static_cast<void>(self.wait(self.start(message(Op::kSend, 1 - self.rank()), &sent).value()));
    };
    const auto a = self.operation(Op::kAllReduce, {self.put({1})}, {1});
    const auto b = self.operation(Op::kAllReduce, {self.put({1})}, {1});
    const std::vector works = {self.client().issue(a, receives).value(), self.client().issue(b, sends).value()};
    expect(self.client().wait(works, Deadline::after(std::chrono::hours(1))).ok(), "wait");
    expect(received.tensors == std::vector<Values>{{7}}, "what the other's second callback sent");
  }));
}

TEST_CASE("what a callback holds is let go outside the client's lock") {
  // As a Python tensor, whose last reference takes the interpreter's lock, which a thread may hold that asks the
  // client.
  struct Holder {
    RankClient& client;
    std::int64_t& asked;
    ~Holder() { asked = client.off_slot_ns(); }
  };
  require_ok(run_job(2, 1, [](Rank& self) {
    std::int64_t asked = -1;
    auto holder = std::make_shared<Holder>(self.client(), asked);
    const auto operation = self.operation(Op::kAllReduce, {self.put({1})}, {1});
    const WorkId work = self.client().issue(operation, [holder](const Outcome&) {}).value();
    holder.reset();
    expect(self.wait(work).ok(), "wait");
    expect(asked >= 0, "the callback's holder is gone when the wait is over");
  }));
}

TEST_CASE("a callback that sleeps until a later callback has run does not stop the job") {
  require_ok(run_job(2, 1, [](Rank& self) {
    std::mutex mutex;
    std::condition_variable changed;
    bool second_done = false;
    auto a = self.operation(Op::kAllReduce, {self.put({1})}, {1}),
         b = self.operation(Op::kAllReduce, {self.put({1})}, {1});
    const WorkId first = self.client()
                             .issue(a,
                                    [&](const Outcome&) {
                                      std::unique_lock lock(mutex);
                                      changed.wait(lock, [&] { return second_done; });
                                    })
                             .value();
    const WorkId second = self.client()
                              .issue(b,
                                     [&](const Outcome&) {
                                       std::lock_guard lock(mutex);
                                       second_done = true;
                                       changed.notify_all();
                                     })
                              .value();
    expect(self.client().wait(std::vector{first, second}, Deadline::after(std::chrono::hours(1))).ok(), "wait");
  }));
}
