// What comes out of each operation, in numbers that follow from arithmetic. Rank r's values are made of r.
#include <nlohmann/json.hpp>
#include <random>

#include "backend/harness.hpp"
#include "catch2.hpp"

using namespace prism;
using namespace prism::test;

namespace {

using Values = std::vector<std::int64_t>;
using Tensors = std::vector<Values>;

void run_everywhere(int ranks, const std::function<void(Rank&)>& program) {
  for (const int slots : {1, 2, ranks}) {
    const auto job = run_job(ranks, slots, program);
    INFO("on " << slots << " slots: " << (job.result ? "" : job.result.error().message));
    REQUIRE(job.result.ok());
  }
}

void expect_tensors(Rank& self, Operation operation, const Tensors& wanted) {
  const std::string op(name(operation.op));
  const auto answer = self.run(std::move(operation));
  expect(answer.status.ok(), op + ": " + (answer.status ? "" : answer.status.error().message));
  expect(answer.tensors == wanted, op + " on rank " + std::to_string(self.rank()));
}

}  // namespace

TEST_CASE("all_reduce sums, and coalesced tensors are summed each for itself") {
  run_everywhere(4, [](Rank& self) {
    const std::int64_t r = self.rank();
    for (std::int64_t step = 0; step < 5; ++step)
      expect_tensors(self, self.operation(Op::kAllReduce, {self.put({r + step, 10 * r})}, {2}), {{6 + 4 * step, 60}});
    expect_tensors(
        self, self.operation(Op::kAllReduceCoalesced, {self.put({r}), self.put({}), self.put({r, r * r})}, {1, 0, 2}),
        {{6}, {}, {6, 14}});
  });
}

TEST_CASE("reduce_op decides, and AVG divides by the number of members") {
  run_everywhere(4, [](Rank& self) {
    const std::int64_t r = self.rank();
    const auto with = [&](ReduceOp op) {
      auto operation = self.operation(Op::kAllReduce, {self.put({2 * r + 1})}, {1});
      operation.reduce_op = op;
      return operation;
    };
    expect_tensors(self, with(ReduceOp::kMax), {{7}});
    expect_tensors(self, with(ReduceOp::kMin), {{1}});
    expect_tensors(self, with(ReduceOp::kProduct), {{105}});
    expect_tensors(self, with(ReduceOp::kAvg), {{4}});
  });
}

TEST_CASE("only the root of a reduce gets the sum") {
  run_everywhere(3, [](Rank& self) {
    const bool root = self.rank() == 2;
    auto operation = self.operation(Op::kReduce, {self.put({self.rank(), 1})}, {});
    operation.root = 2;
    if (root) operation.output_bytes = {16};
    expect_tensors(self, operation, root ? Tensors{{3, 3}} : Tensors{});
  });
}

TEST_CASE("broadcast brings the root's tensors to all others") {
  run_everywhere(3, [](Rank& self) {
    const bool root = self.rank() == 1;
    auto operation = root ? self.operation(Op::kBroadcast, {self.put({7, 8}), self.put({9})}, {})
                          : self.operation(Op::kBroadcast, {}, {2, 1});
    operation.root = 1;
    expect_tensors(self, operation, root ? Tensors{} : Tensors{{7, 8}, {9}});
  });
}

TEST_CASE("all_gather lists members in order, tensor by tensor where coalesced, and unequal sizes where announced") {
  run_everywhere(3, [](Rank& self) {
    const std::int64_t r = self.rank();
    expect_tensors(self, self.operation(Op::kAllGatherIntoTensor, {self.put({r, r})}, {2, 2, 2}),
                   {{0, 0}, {1, 1}, {2, 2}});
    expect_tensors(self,
                   self.operation(Op::kAllGatherCoalesced, {self.put({r}), self.put({10 + r})}, {1, 1, 1, 1, 1, 1}),
                   {{0}, {10}, {1}, {11}, {2}, {12}});
    expect_tensors(self, self.operation(Op::kAllGather, {self.put(Values(static_cast<std::size_t>(r), r))}, {0, 1, 2}),
                   {{}, {1}, {2, 2}});
  });
}

TEST_CASE("reduce_scatter gives each member its own part of the sum") {
  run_everywhere(3, [](Rank& self) {
    const std::int64_t r = self.rank();
    expect_tensors(self,
                   self.operation(Op::kReduceScatter, {self.put({r}), self.put({10 + r}), self.put({20 + r})}, {1}),
                   {{3 + 30 * r}});
    // Two tensors, destination-major: (0a, 0b, 1a, 1b, 2a, 2b).
    std::vector<Region> inputs;
    for (std::int64_t destination = 0; destination < 3; ++destination)
      for (std::int64_t tensor = 0; tensor < 2; ++tensor) inputs.push_back(self.put({100 * destination + tensor}));
    expect_tensors(self, self.operation(Op::kReduceScatterTensorCoalesced, inputs, {1, 1}), {{300 * r}, {300 * r + 3}});
  });
}

TEST_CASE("all_to_all transposes, with any matrix of split sizes") {
  run_everywhere(3, [](Rank& self) {
    // Rank s sends s + d elements of value 10 s + d to rank d; all of it lies in one staged block.
    const std::int64_t r = self.rank();
    std::vector<std::int64_t> packed;
    for (std::int64_t d = 0; d < 3; ++d) packed.insert(packed.end(), static_cast<std::size_t>(r + d), 10 * r + d);
    const Region block = self.put(packed);
    std::vector<Region> inputs;
    std::uint64_t offset = block.offset;
    for (std::uint64_t d = 0; d < 3; ++d) {
      inputs.push_back({offset, (static_cast<std::uint64_t>(r) + d) * 8});
      offset += inputs.back().bytes;
    }
    Tensors wanted;
    std::vector<std::uint64_t> sizes;
    for (std::int64_t s = 0; s < 3; ++s) {
      wanted.emplace_back(static_cast<std::size_t>(s + r), 10 * s + r);
      sizes.push_back(static_cast<std::uint64_t>(s + r));
    }
    expect_tensors(self, self.operation(Op::kAllToAllSingle, inputs, sizes), wanted);
  });
}

TEST_CASE("gather and scatter go through the root, with unequal sizes where announced") {
  run_everywhere(3, [](Rank& self) {
    const std::int64_t r = self.rank();
    const bool root = r == 1;
    auto gather = self.operation(Op::kGather, {self.put(Values(static_cast<std::size_t>(r), r))}, {});
    gather.root = 1;
    if (root) gather.output_bytes = {0, 8, 16};
    expect_tensors(self, gather, root ? Tensors{{}, {1}, {2, 2}} : Tensors{});
    auto scatter = root ? self.operation(Op::kScatter, {self.put({5}), self.put({6}), self.put({7})}, {1})
                        : self.operation(Op::kScatter, {}, {1});
    scatter.root = 1;
    expect_tensors(self, scatter, {{5 + r}});
  });
}

TEST_CASE("messages keep their order per source and tag, match any source, and reach their own sender") {
  run_everywhere(3, [](Rank& self) {
    const auto message = [&](Op op, int peer, int tag, std::int64_t value = 0) {
      auto operation = op == Op::kSend ? self.operation(op, {self.put({value})}, {}) : self.operation(op, {}, {1});
      operation.peer = peer;
      operation.tag = tag;
      return operation;
    };
    const auto receive = [&](int peer, int tag, std::int64_t wanted, int source) {
      const auto answer = self.run(message(Op::kRecv, peer, tag));
      expect(answer.status.ok() && answer.tensors == Tensors{{wanted}} && answer.source == source, "recv");
    };
    if (self.rank() == 0) {
      Rank::Answer first, second, other;
      const std::vector<WorkId> sent = {self.start(message(Op::kSend, 1, 5, 100), &first).value(),
                                        self.start(message(Op::kSend, 1, 5, 200), &second).value(),
                                        self.start(message(Op::kSend, 1, 6, 300), &other).value()};
      expect(self.client().wait(sent, Deadline::after(std::chrono::hours(1))).ok(), "sends");
      expect(self.run(message(Op::kSend, 2, 0, 42)).status.ok(), "send");
    } else if (self.rank() == 1) {
      receive(0, 6, 300, 0);
      receive(0, 5, 100, 0);
      receive(0, 5, 200, 0);
    } else {
      receive(-1, 0, 42, 0);
      Rank::Answer sent, received;
      const std::vector<WorkId> both = {self.start(message(Op::kSend, 2, 1, 77), &sent).value(),
                                        self.start(message(Op::kRecv, 2, 1), &received).value()};
      expect(self.client().wait(both, Deadline::after(std::chrono::hours(1))).ok(), "both");
      expect(received.tensors == Tensors{{77}} && received.source == 2, "a message to oneself");
    }
  });
}

TEST_CASE("groups of the same ranks in any order keep apart, and their keys can be used again") {
  run_everywhere(4, [](Rank& self) {
    const int r = self.rank();
    for (int round = 0; round < 3; ++round) {
      const auto pair = self.group("pair" + std::to_string(r / 2), {r / 2 * 2 + 1, r / 2 * 2});
      expect(self.all_reduce({r}, pair) == Values{r / 2 * 4 + 1}, "sum of a pair");
      expect_tensors(self, self.operation(Op::kAllGather, {self.put({r})}, {1, 1}, pair),
                     {{r / 2 * 2 + 1}, {r / 2 * 2}});
      self.client().leave_group(pair);
      self.barrier();
    }
  });
}

TEST_CASE("a key that is used again is another group, also while others are still in the one before") {
  run_everywhere(3, [](Rank& self) {
    for (int round = 0; round < 4; ++round) {  // as use_local_synchronization's groups, which have the name each time
      const auto all = self.group("again", {0, 1, 2});
      const auto first = self.group("again", {0, 1, 2});  // two at a time, as for two devices
      expect(self.all_reduce({self.rank() + round}, all) == Values{3 + 3 * round}, "sum of this round");
      self.client().leave_group(first);
      self.client().leave_group(all);  // and on, whether or not the others have left
    }
    expect(self.all_reduce({1}, self.group("again", {0, 1, 2})) == Values{3}, "the last");
  });
}

TEST_CASE("many operations in flight complete in any order of arrival, with bit-identical sums") {
  std::vector<std::vector<float>> results;
  for (const unsigned seed : {1u, 2u, 3u}) {
    std::vector<float> sums(16);
    const auto job = run_job(4, 1 + static_cast<int>(seed % 3), [&](Rank& self) {
      std::vector<std::size_t> order(16);
      std::iota(order.begin(), order.end(), 0u);
      std::shuffle(order.begin(), order.end(), std::mt19937(seed * 100 + static_cast<unsigned>(self.rank())));
      std::vector<float> mine(16);
      std::vector<WorkId> works;
      for (const std::size_t i : order) {
        auto operation = self.operation(
            Op::kAllReduce,
            {self.put_as<float>({0.1f * static_cast<float>(i + 1) / static_cast<float>(self.rank() + 3)})}, {});
        operation.dtype = DType::kFloat32;
        operation.output_bytes = {4};
        operation.seq = i;  // all members mean the same operation, whenever they come to it
        works.push_back(self.client()
                            .issue(operation,
                                   [&self, &mine, i](const Outcome& outcome) {
                                     std::memcpy(&mine[i], self.client().data(outcome.regions.at(0)), 4);
                                   })
                            .value());
      }
      expect(self.client().wait(works, Deadline::after(std::chrono::hours(1))).ok(), "wait");
      if (self.rank() == 0) sums = mine;
    });
    require_ok(job);
    results.push_back(sums);
  }
  REQUIRE(std::memcmp(results[0].data(), results[1].data(), 64) == 0);
  REQUIRE(std::memcmp(results[0].data(), results[2].data(), 64) == 0);
  REQUIRE(results[0][0] == static_cast<float>(0.1f / 3.0f + 0.1f / 4.0f + 0.1f / 5.0f + 0.1f / 6.0f));
}

TEST_CASE("256 ranks on 4 slots take part in groups of 16 and in the world") {
  const auto job = run_job(
      256, 4,
      [](Rank& self) {
        const int first = self.rank() / 16 * 16;
        std::vector<std::int32_t> members(16);
        std::iota(members.begin(), members.end(), first);
        const auto group = self.group("row" + std::to_string(first), members);
        for (int step = 0; step < 3; ++step) {
          expect(self.all_reduce({self.rank()}, group) == Values{16 * first + 120}, "sum of a row");
          expect(self.all_reduce({1}) == Values{256}, "sum of the world");
        }
      },
      [](Coordinator::Options& options) { options.address_space_bytes = 4ull << 30; });
  require_ok(job);
}

TEST_CASE("memory of tensors comes back: hundreds of large steps fit a small budget") {
  const auto job = run_job(
      2, 1,
      [](Rank& self) {
        const Values large(1 << 17, self.rank() + 1);  // 1 MiB
        for (int step = 0; step < 300; ++step) {
          expect(self.all_reduce(large).at(5) == 3, "sum");
          expect_tensors(self, self.operation(Op::kAllGatherIntoTensor, {self.put({self.rank()})}, {1, 1}), {{0}, {1}});
        }
      },
      [](Coordinator::Options& options) { options.memory_budget_bytes = 16u << 20; });
  require_ok(job);
}

TEST_CASE("operations whose tensors exceed the memory budget are served from disk") {
  const auto job = run_job(
      3, 1,
      [](Rank& self) {
        const Values large(1 << 17, self.rank() + 1);  // 1 MiB
        for (int step = 0; step < 5; ++step) {
          const auto sum = self.all_reduce(large);
          expect(sum.size() == large.size() && sum.front() == 6 && sum.back() == 6, "sum");
        }
      },
      [](Coordinator::Options& options) {
        options.memory_budget_bytes = 1u << 20;
        options.spill_directory = ".";
      });
  require_ok(job);
  REQUIRE(nlohmann::json::parse(job.statistics)["spilled_bytes_peak"] >= 3u << 20);  // two inputs and the sum
}
