// A job that goes on beyond its record does what a record of all of it says.
#include "replay/loop.hpp"

#include <algorithm>

#include "replay/on_network.hpp"
#include "replay/outside.hpp"
#include "replay/seen.hpp"
#include "replay/training.hpp"
#include "simulate/topologies.hpp"

using namespace prism;
using namespace prism::test;
using engine::Engine;
using engine::Loop;
using simulate::NetworkKind;
using simulate::Topology;

namespace {

std::vector<int> up_to(int ranks) {
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  return all;
}

Loop loop_of(const engine::Job& job, const engine::LoopOptions& options = {}) {
  auto loop = Loop::make(job, options);
  INFO((loop ? std::string() : loop.error().message));
  REQUIRE(loop.ok());
  return std::move(loop).value();
}

std::string refused(const ExecutionGraph& graph, const engine::LoopOptions& options = {}) {
  const auto job = engine::prepare(graph).value();
  const auto loop = Loop::make(job, options);
  REQUIRE_FALSE(loop.ok());
  CHECK(loop.error().code == ErrorCode::kInvalidInput);
  return loop.error().message;
}

// A graph, and what carries its communication: its own times, or a network.
struct Scene {
  Scene(ExecutionGraph of, const NetworkOptions* network)
      : graph(std::move(of)),
        job(engine::prepare(graph).value()),
        durations(engine::Durations::make(job, {}).value()),
        service(network ? engine::ServiceTimes() : engine::service_times(job, {})) {
    if (network)
      carrier = engine::OnNetwork::make(job, *network).value();
    else
      carrier = std::make_unique<engine::FixedTimes>(service);
  }
  const ExecutionGraph graph;
  const engine::Job job;
  engine::Durations durations;
  const engine::ServiceTimes service;
  std::unique_ptr<engine::Carrier> carrier;
};

Seen run(Scene& scene, const Loop* loop) {
  Seen seen(scene.job, loop);
  Engine engine(scene.job, scene.durations, scene.service, *scene.carrier,
                {.loop = loop, .timelines = false, .observer = &seen});
  const auto done = engine.run({up_to(scene.graph.world_size())});
  INFO((done ? std::string() : done.error().message));
  REQUIRE(done.ok());
  return seen;
}

void check_equal(const Seen& one, const Seen& other) {
  CHECK(one.lanes == other.lanes);
  CHECK(one.transfers == other.transfers);
}

std::vector<Training> trainings() {
  std::vector<Training> all;
  for (unsigned seed = 0; seed < 8; ++seed)
    for (const char* model : {"nccl", "gloo", "conservative"})
      all.push_back({.seed = seed,
                     .model = model,
                     .ranks = 3 + static_cast<int>(seed % 4),
                     .period = seed % 3 == 2 ? 2 : 1,
                     .closed = seed % 2 == 0,
                     .any_source = seed % 4 == 1});
  return all;
}

}  // namespace

TEST_CASE("ten iterations, four of them recorded, are the ten of a longer record") {
  for (const auto& training : trainings()) {
    const auto topology = Topology::one_switch(training.ranks, 1e9, 2'000'000);
    for (const auto kind : {NetworkKind::kPacketLevel, NetworkKind::kOccupancy, NetworkKind::kFlowLevel}) {
      INFO(training.model << ", seed " << training.seed << ", network " << static_cast<int>(kind));
      const NetworkOptions options{.topology = &topology, .kind = kind};
      const auto* network = kind == NetworkKind::kPacketLevel ? nullptr : &options;  // none: times of its own
      const TrainingJob job(training);
      Scene recorded(job.program(4).graph(false), network), all(job.program(10).graph(false), network);
      const auto loop = loop_of(recorded.job, {.iterations = 10});
      CHECK(loop.length() == training.period);
      CHECK(loop.first() + loop.length() == 4);
      check_equal(run(recorded, &loop), run(all, nullptr));
    }
  }
}

TEST_CASE("the record alone is one round") {
  for (const auto& training : trainings()) {
    const auto graph = TrainingJob(training).program(4).graph(false);
    Scene looped(graph, nullptr), plain(graph, nullptr);
    const auto loop = loop_of(looped.job, {.iterations = 4});
    CHECK(loop.rounds() == 1);
    check_equal(run(looped, &loop), run(plain, nullptr));
  }
}

TEST_CASE("ranks from outside that do beyond the record what is repeated get what they would get inside") {
  for (const auto& training : trainings()) {
    const auto topology = Topology::one_switch(training.ranks, 1e9, 2'000'000);
    const NetworkOptions network{.topology = &topology};
    for (const auto& outside : {std::vector<int>{2}, std::vector<int>{0, 2}}) {
      INFO(training.model << ", seed " << training.seed << ", " << outside.size() << " outside");
      auto half_threaded = training;
      half_threaded.threads = false;  // a program from outside has one
      const TrainingJob job(half_threaded);
      Scene recorded(job.program(4).graph(false), &network), all(job.program(9 + training.period).graph(false), &network);
      const int iterations = 9 + training.period - (9 + training.period - 4) % training.period;
      Scene whole(job.program(iterations).graph(false), &network);
      const auto loop = loop_of(recorded.job, {.iterations = iterations});
      const auto expected = run(whole, nullptr);
      const auto seen = drive(recorded, loop, outside, whole.job, whole.durations);
      for (const auto& [call, times] : expected.transfers) CHECK(seen.transfers.at(call) == times);
      for (const auto& [lane, times] : expected.lanes) CHECK(seen.lanes.at(lane) == times);
    }
  }
}
