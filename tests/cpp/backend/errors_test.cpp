// No job hangs: what cannot go on ends at once, and says why.
#include "backend/harness.hpp"
#include "catch2.hpp"

using namespace prism;
using namespace prism::test;

namespace {

// A rank's program that only issues one operation and waits for it.
std::function<void(Rank&)> one(std::function<Operation(Rank&)> make) {
  return [make](Rank& self) {
    self.barrier();  // all have come, so that all hear what happens
    const auto answer = self.run(make(self));
    if (!answer.status) throw std::runtime_error(answer.status.error().message);
  };
}

}  // namespace

TEST_CASE("ranks that wait for messages of one another are told who waits for what") {
  const auto job = run_job(2, 1, one([](Rank& self) {
                             auto operation = self.operation(Op::kRecv, {}, {1});
                             operation.peer = 1 - self.rank();
                             operation.tag = 7;
                             return operation;
                           }));
  const Error error = error_of(job);
  REQUIRE(error.code == ErrorCode::kDeadlock);
  REQUIRE_THAT(error.message,
               ContainsSubstring("rank 0 in recv from rank 1, tag 7, of group 'world': missing rank 1 (waits in "
                                 "recv from rank 0, tag 7, of group 'world')"));
  REQUIRE_THAT(error.message, ContainsSubstring("rank 1 in recv from rank 0"));
}

TEST_CASE("a collective that one rank never joins names it, and says that it has finished") {
  const auto job = run_job(4, 2, [](Rank& self) {
    self.all_reduce({1});
    if (self.rank() != 2) self.all_reduce({1});
  });
  const Error error = error_of(job);
  REQUIRE(error.code == ErrorCode::kDeadlock);
  REQUIRE_THAT(error.message,
               ContainsSubstring("ranks 0-1, 3 in all_reduce #1 of group 'world': missing rank 2 (has finished)"));
}

TEST_CASE("a deadlock through the store names the key") {
  const auto job = run_job(2, 1, [](Rank& self) {
    const auto value = self.client().store_get("never", Deadline::after(std::chrono::hours(1)));
    if (!value) throw std::runtime_error(value.error().message);
  });
  const Error error = error_of(job);
  REQUIRE(error.code == ErrorCode::kDeadlock);
  REQUIRE_THAT(error.message, ContainsSubstring("the store's key 'never'"));
}

TEST_CASE("members that disagree are both named, with what each called") {
  struct Case {
    std::string what;
    std::function<Operation(Rank&)> make;
    std::vector<std::string> said;
  };
  const auto reduce_of = [](Rank& self, std::vector<std::int64_t> values) {
    const auto count = values.size();
    return self.operation(Op::kAllReduce, {self.put(values)}, {count});
  };
  const std::vector<Case> cases = {
      {"op",
       [&](Rank& self) { return self.rank() == 0 ? reduce_of(self, {1}) : self.operation(Op::kBarrier, {}, {}); },
       {"all_reduce(int64, sum, shape [1], 8 bytes in, 8 bytes out)", "barrier(0 bytes in, 0 bytes out)"}},
      {"shape",
       [&](Rank& self) { return reduce_of(self, std::vector<std::int64_t>(self.rank() == 0 ? 4 : 8)); },
       {"shape [4]", "shape [8]", "collective #1 of group 'world'"}},
      {"dtype",
       [&](Rank& self) {
         auto operation = reduce_of(self, {1});
         if (self.rank() == 1) operation.dtype = DType::kFloat64;
         return operation;
       },
       {"int64", "float64"}},
      {"reduce op",
       [&](Rank& self) {
         auto operation = reduce_of(self, {1});
         if (self.rank() == 1) operation.reduce_op = ReduceOp::kMax;
         return operation;
       },
       {"sum", "max"}},
      {"root",
       [&](Rank& self) {
         auto operation = self.operation(Op::kGather, {self.put({1})}, {1, 1});
         operation.root = self.rank();
         return operation;
       },
       {"root 0", "root 1"}},
      {"sizes of a gather",
       [&](Rank& self) {
         auto operation = self.operation(Op::kGather, {self.put({1})}, {});
         if (self.rank() == 0) operation.output_bytes = {8, 16};
         operation.root = 0;
         return operation;
       },
       {"rank 0 calls gather", "24 bytes out", "rank 1 calls gather"}},
      {"sizes of a scatter",
       [&](Rank& self) {
         auto operation = self.rank() == 0 ? self.operation(Op::kScatter, {self.put({1}), self.put({2})}, {1})
                                           : self.operation(Op::kScatter, {}, {3});
         operation.root = 0;
         return operation;
       },
       {"rank 1 calls scatter", "24 bytes out"}},
      {"split sizes",
       [&](Rank& self) {
         return self.operation(Op::kAllToAllSingle, {self.put({1}), self.put({1})},
                               self.rank() == 0 ? std::vector<std::uint64_t>{1, 1} : std::vector<std::uint64_t>{2, 1});
       },
       {"rank 0 sends 8 bytes to rank 1, which expects 16"}},
      {"size of a message",
       [&](Rank& self) {
         auto operation =
             self.rank() == 0 ? self.operation(Op::kSend, {self.put({1, 2})}, {}) : self.operation(Op::kRecv, {}, {1});
         operation.peer = 1 - self.rank();
         return operation;
       },
       {"rank 0 sends send(int64, shape [2], 16 bytes in", "to rank 1, which expects recv("}},
      {"members of a group",
       [&](Rank& self) {
         const auto group =
             self.group("odd", self.rank() == 0 ? std::vector<std::int32_t>{0, 1} : std::vector<std::int32_t>{1, 0});
         return self.operation(Op::kBarrier, {}, {}, group);
       },
       {"group 'odd' has the ranks"}},
  };
  for (const auto& each : cases) {
    const auto job = run_job(2, 2, one(each.make));
    INFO(each.what);
    const Error error = error_of(job);
    INFO(error.message);
    REQUIRE(error.code == ErrorCode::kMismatch);
    for (const auto& said : each.said) REQUIRE_THAT(error.message, ContainsSubstring(said));
  }
}

TEST_CASE("wrong calls are refused with what is accepted") {
  const auto refused = [](std::function<Operation(Rank&)> make) {
    const Error error = error_of(run_job(2, 2, one(make)));
    REQUIRE(error.code == ErrorCode::kInvalidInput);
    return error.message;
  };
  REQUIRE_THAT(refused([](Rank& self) {
                 auto operation = self.operation(Op::kBroadcast, {}, {1});
                 operation.root = 9;
                 return operation;
               }),
               ContainsSubstring("root 9; accepted: 0 to 1"));
  REQUIRE_THAT(refused([](Rank& self) { return self.operation(Op::kAllToAll, {self.put({1})}, {1}); }),
               ContainsSubstring("1 inputs and 1 outputs"));
  REQUIRE_THAT(refused([](Rank& self) {
                 auto operation = self.operation(Op::kBarrier, {}, {});
                 operation.group = 77;
                 return operation;
               }),
               ContainsSubstring("no group has the handle 77"));
}

TEST_CASE("the first rank's error is the run's, and reaches every waiter of every rank") {
  std::vector<std::string> heard(3);
  const auto job = run_job(3, 1, [&](Rank& self) {
    if (self.rank() == 1) {
      self.barrier();
      throw std::runtime_error("loss is NaN in step 7");
    }
    try {
      self.barrier();
      self.barrier();
    } catch (const std::exception& error) {
      heard[static_cast<std::size_t>(self.rank())] = error.what();
    }
  });
  REQUIRE_THAT(error_of(job).message, ContainsSubstring("rank 1: loss is NaN in step 7"));
  REQUIRE_THAT(heard[0], ContainsSubstring("loss is NaN in step 7"));
  REQUIRE_THAT(heard[2], ContainsSubstring("loss is NaN in step 7"));
}

TEST_CASE("ranks that never connect are named") {
  auto options = small_coordinator(3, 1);
  options.join_timeout = std::chrono::milliseconds(50);
  Coordinator coordinator(options, std::make_shared<PlainExecutor>());
  const auto result = coordinator.run();
  REQUIRE_FALSE(result.ok());
  REQUIRE(result.error().code == ErrorCode::kTimeout);
  REQUIRE_THAT(result.error().message, ContainsSubstring("ranks 0-2 have not connected"));
}

TEST_CASE("the launcher's error is the first error") {
  auto options = small_coordinator(2, 1);
  Coordinator coordinator(options, std::make_shared<PlainExecutor>());
  coordinator.abort({ErrorCode::kAborted, "interrupted"});
  const auto result = coordinator.run();
  REQUIRE_FALSE(result.ok());
  REQUIRE(result.error().message == "interrupted");
}

TEST_CASE("an operation's own time limit fails that operation, for members that come late, too") {
  const auto job = run_job(3, 3, [](Rank& self) {
    self.barrier();
    auto operation = self.operation(Op::kAllReduce, {self.put({1})}, {1});
    operation.timeout = std::chrono::milliseconds(30);
    if (self.rank() == 2)
      self.client().without_slot([] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); });
    const auto answer = self.run(operation);
    expect(!answer.status && answer.status.error().code == ErrorCode::kTimeout, "a timeout");
    expect(answer.status.error().message.find("missing: ranks 2") != std::string::npos, answer.status.error().message);
    self.barrier();  // the job goes on
  });
  require_ok(job);
}

TEST_CASE("the run's time limit for operations ends the run with the report") {
  const auto job = run_job(
      2, 2,
      [](Rank& self) {
        self.barrier();
        if (self.rank() == 0)
          self.client().without_slot([] { std::this_thread::sleep_for(std::chrono::milliseconds(700)); });
        else
          self.barrier();
      },
      [](Coordinator::Options& options) { options.operation_timeout = std::chrono::milliseconds(50); });
  REQUIRE(error_of(job).code == ErrorCode::kTimeout);
  REQUIRE_THAT(error_of(job).message, ContainsSubstring("barrier #1 of group 'world' was not complete after"));
  REQUIRE_THAT(error_of(job).message, ContainsSubstring("missing: ranks 0"));
}

TEST_CASE("wait() ends at its deadline, and waiting for one's turn does not count") {
  const auto job = run_job(2, 1, [](Rank& self) {
    if (self.rank() == 0) {
      auto operation = self.operation(Op::kRecv, {}, {1});
      operation.peer = 1;
      Rank::Answer answer;
      const WorkId work = self.start(operation, &answer).value();
      const auto waited = self.wait(work, std::chrono::milliseconds(50));
      expect(!waited && waited.error().code == ErrorCode::kTimeout, "a timeout");
      expect(self.client().store_set("late", {1}).ok(), "set");
      expect(self.wait(work).ok() && answer.tensors.size() == 1, "the message, in the end");
    } else {
      expect(self.client().store_get("late", Deadline::after(std::chrono::hours(1))).ok(), "get");
      auto operation = self.operation(Op::kSend, {self.put({5})}, {});
      operation.peer = 0;
      expect(self.run(operation).status.ok(), "send");
    }
  });
  require_ok(job);
}

TEST_CASE("a tensor above the memory budget is refused with what is needed and what is there") {
  const auto job = run_job(
      1, 1,
      [](Rank& self) {
        const auto region = self.client().stage(8u << 20);
        expect(!region.ok(), "refused");
        throw std::runtime_error(region.error().message);
      },
      [](Coordinator::Options& options) { options.memory_budget_bytes = 1u << 20; });
  REQUIRE_THAT(error_of(job).message, ContainsSubstring("8388608 bytes") &&
                                          ContainsSubstring("of 1048576 bytes are available") &&
                                          ContainsSubstring("--memory-budget"));
}
