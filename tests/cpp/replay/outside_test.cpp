// An engine that is driven from outside: ranks that issue by themselves get what they would have got inside.
#include <random>

#include "replay/engine.hpp"
#include "replay/on_network.hpp"
#include "replay/outside.hpp"
#include "replay/program.hpp"
#include "simulate/topologies.hpp"

using namespace prism;
using namespace prism::test;
using simulate::Topology;

namespace {

ExecutionGraph random_job(unsigned seed, const char* model) {
  std::mt19937 random(seed);
  const auto up_to = [&](int n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  Program job(4, model);
  std::vector<std::vector<std::int32_t>> open(4);
  const Op ops[] = {Op::kAllReduce, Op::kBroadcast, Op::kGather, Op::kAllToAll, Op::kSend};
  for (int i = 0; i < 40; ++i) {
    CommSpec spec{.op = ops[up_to(5)], .bytes = up_to(1'000'000)};
    if (is_rooted(spec.op)) spec.peer = static_cast<int>(up_to(4));
    const bool waits = up_to(2) == 0;
    for (int r = 0; r < 4; ++r) {
      job[r].compute(1 + up_to(ms));
      auto own = spec;
      if (spec.op == Op::kSend) own.peer = r ^ 1, own.op = r % 2 == 0 ? Op::kSend : Op::kRecv;
      open[r].push_back(job[r].issue(own, up_to(1000)));
      if (!waits) continue;
      job[r].wait(open[r]);
      open[r].clear();
    }
  }
  return job.graph(false);
}

}  // namespace

TEST_CASE("stepping from outside gives what one run gives") {
  const auto topology = Topology::one_switch(4, 1e9, 2'000'000);
  for (const char* model : {"gloo", "nccl"})
    for (unsigned seed = 0; seed < 12; ++seed)
      for (const auto& outside : {std::vector<int>{2}, std::vector<int>{0, 3}, std::vector<int>{0, 1, 2, 3}}) {
        INFO(model << ", seed " << seed << ", " << outside.size() << " outside");
        const auto graph = random_job(seed, model);
        const NetworkOptions options{.topology = &topology};
        const auto whole = replay_of(graph, {.network = options});

        const auto job = engine::prepare(graph).value();
        const auto durations = engine::Durations::make(job, {}).value();
        const engine::ServiceTimes service;
        const auto network = engine::OnNetwork::make(job, options).value();
        engine::Engine engine(job, durations, service, *network);
        engine.begin({0, 1, 2, 3}, outside);
        std::vector<Outside> programs;
        for (const int rank : outside) programs.emplace_back(job, durations, rank);
        drive(engine, programs);
        REQUIRE(engine.finished());
        for (const auto& program : programs) {
          CHECK(program.ended());
          for (std::uint32_t node = 0; node < program.end_ns.size(); ++node)
            CHECK(program.end_ns[node] == end_of(whole, program.rank(), node));
        }
        const auto execution = std::move(engine).take_execution();
        for (int rank = 0; rank < 4; ++rank)
          if (std::find(outside.begin(), outside.end(), rank) == outside.end())
            CHECK(execution.timelines[rank].start_ns == whole.timelines[rank].start_ns);
      }
}

TEST_CASE("a rank that comes late from outside is waited for, and one that never comes is named") {
  Program program(2, "nccl");
  for (int r = 0; r < 2; ++r) program[r].blocking({.op = Op::kAllReduce, .service = 3 * ms});
  const auto graph = program.graph();
  const auto job = engine::prepare(graph).value();
  const auto durations = engine::Durations::make(job, {}).value();
  const auto service = engine::service_times(job, {});
  for (const bool comes : {true, false}) {
    engine::FixedTimes fixed(service);
    engine::Engine engine(job, durations, service, fixed);
    engine.begin({0, 1}, {1});
    std::vector<engine::Engine::Released> released;
    REQUIRE(engine.advance(50 * ms, released));
    CHECK(released.empty());
    CHECK(engine.arrived(0, 0, 50 * ms).error().message == "rank 0 is not one from outside");
    CHECK(engine.arrived(1, 1, 50 * ms).error().message == "rank 1: communication 1; accepted: 0 to 0");
    if (comes) REQUIRE(engine.arrived(1, 0, 50 * ms));
    REQUIRE(engine.advance(INT64_MAX, released));
    if (comes) {
      REQUIRE(released.size() == 1);
      CHECK(released[0].at_ns == 53 * ms);
      CHECK(engine.finished());
    } else {
      CHECK(engine.finished().error().message.find("rank 1 has not joined") != std::string::npos);
    }
  }
}
