// A sweep gives what the events give, to the nanosecond.
#include "replay/sweep.hpp"

#include <random>

#include "replay/components.hpp"
#include "replay/engine.hpp"
#include "replay/program.hpp"

using namespace prism;
using namespace prism::test;

namespace {

struct Both {
  bool swept = false;
  std::vector<ReplayReport::Timeline> sweep, events;
};

Both run(const ExecutionGraph& graph) {
  const auto job = engine::prepare(graph).value();
  const auto durations = engine::Durations::make(job, {}).value();
  const auto service = engine::service_times(job, {});
  engine::FixedTimes fixed(service);
  engine::Engine events(job, durations, service, fixed);
  REQUIRE(events.run(engine::independent_parts(job, nullptr)));
  auto by_events = std::move(events).take_execution();
  Both both{.swept = false, .sweep = {}, .events = std::move(by_events.timelines)};
  auto sweep = engine::Sweep::make(job);
  for (int again = 0; sweep && again < 2; ++again) both.swept = sweep->run(durations, service, clock_starts(job));
  if (!both.swept) return both;
  auto swept = std::move(*sweep).take_execution(durations);
  CHECK(swept.transfer_start_ns == by_events.transfer_start_ns);
  for (int rank = 0; rank < graph.world_size(); ++rank) {
    INFO("rank " << rank);
    CHECK(swept.timelines[rank].start_ns == both.events[rank].start_ns);
    CHECK(swept.timelines[rank].duration_ns == both.events[rank].duration_ns);
  }
  both.sweep = std::move(swept.timelines);
  return both;
}

}  // namespace

TEST_CASE("random jobs: collectives that overlap, rooted ones, messages, two lanes") {
  std::minstd_rand random(7);
  const auto up_to = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  const Op ops[] = {Op::kAllReduce, Op::kBroadcast, Op::kGather, Op::kScatter, Op::kAllToAll, Op::kReduce};
  int swept = 0, rounds = 0;
  for (const char* model : {"gloo", "nccl", "conservative"})
    for (const bool timed : {true, false})
      for (int round = 0; round < 20; ++round) {
        const int world = 2 + static_cast<int>(up_to(7));
        Program job(world, model);
        std::vector<std::vector<std::int32_t>> open(static_cast<std::size_t>(world));
        for (int i = 0; i < 40; ++i) {
          const Op op = ops[up_to(6)];
          const int root = static_cast<int>(up_to(world)), shift = 1 + static_cast<int>(up_to(world - 1));
          const bool messages = up_to(3) == 0, waits = up_to(3) == 0;
          for (int r = 0; r < world; ++r) {
            auto& works = open[static_cast<std::size_t>(r)];
            job[r].compute(1 + up_to(3 * ms));
            if (messages) {
              works.push_back(
                  job[r].issue({.op = Op::kSend, .service = up_to(ms), .peer = (r + shift) % world}, up_to(1000)));
              works.push_back(
                  job[r].issue({.op = Op::kRecv, .service = up_to(ms), .peer = (r + world - shift) % world}));
            } else {
              works.push_back(
                  job[r].issue({.op = op, .service = up_to(5 * ms), .peer = is_rooted(op) ? root : -1}, up_to(1000)));
            }
            if (!waits) continue;
            job[r].wait(works);
            works.clear();
          }
        }
        // A second thread that begins when the first has done half, and computes.
        for (int r = 0; r < world; ++r) {
          const auto half = job[r].compute(ms);
          job[r].lane("second");
          const auto first = job[r].compute(5 * ms);
          job[r].record.edges.push_back({half, first});
        }
        INFO(model << ", round " << round);
        swept += run(job.graph(timed)).swept;
        ++rounds;
      }
  // The others have two workers of which the one that ends first decides.
  CHECK(swept > rounds * 2 / 3);
}

TEST_CASE("what time decides is left to the events") {
  Program any(3);
  any[0].blocking({.op = Op::kRecv, .service = ms, .peer = -1});
  any[0].blocking({.op = Op::kRecv, .service = ms, .peer = -1});
  any[1].compute(ms);
  any[1].blocking({.op = Op::kSend, .service = ms, .peer = 0});
  any[2].blocking({.op = Op::kSend, .service = ms, .peer = 0});
  CHECK(!run(any.graph()).swept);

  Program lanes(2);  // collectives of one group from two threads
  for (int r = 0; r < 2; ++r) {
    lanes[r].blocking({.service = ms});
    lanes[r].lane("second");
    lanes[r].blocking({.service = ms});
  }
  CHECK(!run(lanes.graph()).swept);
}

TEST_CASE("parts of a tree end without somebody who never comes") {
  Program job(3);
  for (int r = 0; r < 2; ++r) {
    job[r].compute((1 + r) * ms);
    job[r].issue({.op = Op::kBroadcast, .service = 3 * ms, .peer = 1});
    job[r].compute(ms);
  }
  job[2].compute(ms);
  const auto both = run(job.graph());
  CHECK(!both.swept);
  CHECK(both.events[0].duration_ns[2] == 4 * ms);  // issued at 1, the root at 2
  CHECK(both.events[1].duration_ns[2] == -1);      // the root waits for rank 2
}

TEST_CASE("messages that are not issued in the order of their numbers meet as they are issued") {
  Program job(2);
  job[0].issue({.op = Op::kSend, .service = ms, .peer = 1});
  job[0].compute(5 * ms);
  job[0].issue({.op = Op::kSend, .service = ms, .peer = 1});
  for (int i = 0; i < 2; ++i) job[1].issue({.op = Op::kRecv, .service = ms, .peer = 0});
  for (auto& node : job[0].record.nodes)
    if (node.comm >= 0) node.comm = 1 - node.comm;
  std::swap(job[0].transfers[0], job[0].transfers[1]);
  CHECK(!run(job.graph()).swept);
}

TEST_CASE("where somebody never joins a collective an update leaves it to a run") {
  Program job(2);
  for (int r = 0; r < 2; ++r) {
    job[r].compute((1 + r) * ms);
    job[r].blocking({.service = 2 * ms});
  }
  job[0].issue({});
  job[0].compute(ms);
  const auto graph = job.graph();
  CHECK(run(graph).swept);
  const auto prepared = engine::prepare(graph).value();
  auto durations = engine::Durations::make(prepared, {}).value();
  const auto service = engine::service_times(prepared, {});
  auto sweep = engine::Sweep::make(prepared);
  REQUIRE(sweep);
  REQUIRE(sweep->run(durations, service, clock_starts(prepared)));
  durations.own(0)[0] += 5 * ms;
  CHECK(!sweep->update(durations, {{0, 0}}));
}
