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

namespace {

// What the engine calls the communications of a rank of a record of all iterations.
std::vector<std::uint32_t> numbers(const Scene& recorded, const Loop& loop, const Scene& all, int rank) {
  const Seen by_loop(recorded.job, &loop), by_record(all.job, nullptr);
  const auto cls = recorded.job.ranks[rank].cls;
  const auto count = static_cast<std::uint32_t>(all.job.view(rank).comm_op.size());
  std::map<Seen::Call, std::uint32_t> number_of;
  for (std::uint32_t number = 0; number_of.size() < count; ++number) {
    REQUIRE(number < 2 * count);
    const auto [comm, round] = loop.place(cls, number);
    CHECK(loop.number(cls, comm, round) == number);
    number_of.emplace(by_loop.call(rank, comm, round), number);
  }
  std::vector<std::uint32_t> found;
  for (std::uint32_t comm = 0; comm < count; ++comm) found.push_back(number_of.at(by_record.call(rank, comm, 0)));
  return found;
}

// `all` is what the ranks from outside do; its durations may be others than those of the record.
Seen run_with(Scene& recorded, const Loop& loop, const std::vector<int>& outside, const Scene& all) {
  Seen seen(recorded.job, &loop);
  Engine engine(recorded.job, recorded.durations, recorded.service, *recorded.carrier,
                {.loop = &loop, .timelines = false, .observer = &seen});
  engine.begin(up_to(recorded.graph.world_size()), outside);
  std::vector<Outside> programs;
  for (const int rank : outside)
    programs.emplace_back(all.job, all.durations, rank, numbers(recorded, loop, all, rank));
  drive(engine, programs);
  const auto finished = engine.finished();
  INFO((finished ? std::string() : finished.error().message));
  CHECK(finished.ok());
  for (const auto& program : programs) CHECK(program.ended());
  return seen;
}

void check_others(const Seen& seen, const Seen& expected, const std::vector<int>& outside) {
  CHECK(seen.transfers == expected.transfers);
  for (const auto& [lane, times] : expected.lanes)
    if (std::find(outside.begin(), outside.end(), lane.first) == outside.end()) CHECK(seen.lanes.at(lane) == times);
}

}  // namespace

TEST_CASE("ranks from outside that do beyond the record what is repeated get what they would get inside") {
  for (auto training : trainings()) {
    training.threads = false;  // programs from outside have one
    const auto topology = Topology::one_switch(training.ranks, 1e9, 2'000'000);
    const NetworkOptions network{.topology = &topology};
    for (const auto& outside : {std::vector<int>{2}, std::vector<int>{0, 2}}) {
      INFO(training.model << ", seed " << training.seed << ", " << outside.size() << " outside");
      const TrainingJob job(training);
      Scene recorded(job.program(4).graph(false), &network), all(job.program(10).graph(false), &network);
      Scene inside(job.program(10).graph(false), &network);
      const auto loop = loop_of(recorded.job, {.iterations = 10});
      check_others(run_with(recorded, loop, outside, all), run(inside, nullptr), outside);
    }
  }
}

TEST_CASE("a rank from outside that is late moves whatever the whole record says that it moves") {
  int moved = 0;
  for (auto training : trainings()) {
    training.threads = false;
    const auto topology = Topology::one_switch(training.ranks, 1e9, 2'000'000);
    const NetworkOptions network{.topology = &topology};
    INFO(training.model << ", seed " << training.seed);
    const TrainingJob job(training);
    Scene recorded(job.program(4).graph(false), &network), all(job.program(10).graph(false), &network);
    Scene inside(job.program(10).graph(false), &network), undisturbed(job.program(10).graph(false), &network);
    // The first span of the seventh iteration, which the record has not.
    const auto& view = all.job.view(2);
    int iteration = 0;
    for (std::uint32_t node = 0; node < view.node_kind.size(); ++node)
      if (view.node_name[node] != kNoName && all.graph.string(view.node_name[node]) == "first" && iteration++ == 6)
        for (auto* durations : {&all.durations, &inside.durations}) durations->own(2)[node] += 37 * ms + 11;
    const auto loop = loop_of(recorded.job, {.iterations = 10});
    const auto expected = run(inside, nullptr);
    check_others(run_with(recorded, loop, {2}, all), expected, {2});
    moved += expected.lanes.at({0, 0}) != run(undisturbed, nullptr).lanes.at({0, 0});
  }
  CHECK(moved > 0);
}

// Rank 0 hands on to 1, that to 2, that to 3, that back to 0, in each iteration; each computes 1 ms in between, and a
// message takes 10 ms.
TEST_CASE("a delay comes back over three virtual ranks, and goes round again in each iteration") {
  const auto ring = [](int iterations) {
    Program job(4);
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < iterations; ++i) {
        job[r].mark();
        if (r > 0) job[r].blocking({.op = Op::kRecv, .peer = r - 1, .bytes = 1000});
        job[r].compute(ms);
        job[r].blocking({.op = Op::kSend, .peer = (r + 1) % 4, .bytes = 1000});
        if (r == 0) job[r].blocking({.op = Op::kRecv, .peer = 3, .bytes = 1000});
      }
      job[r].mark();
      job[r].compute(0);
    }
    return job.graph(false);
  };
  const auto graph = ring(2);
  const auto job = engine::prepare(graph).value();
  const auto durations = engine::Durations::make(job, {}).value();
  const auto service = engine::service_times(job, {.latency_ns = 10 * ms, .bytes_per_second = 1e18});
  const auto loop = loop_of(job);
  CHECK(loop.length() == 1);
  CHECK(loop.rounds() == Loop::kEndless);
  engine::FixedTimes fixed(service);
  Engine engine(job, durations, service, fixed, {.loop = &loop, .timelines = false});
  engine.begin({0, 1, 2, 3}, {0});
  std::int64_t now = 0;
  std::vector<Engine::Released> released;
  for (std::uint32_t iteration = 0; iteration < 1000; ++iteration) {
    // Its two communications of iteration i are 2 i and 2 i + 1, in the record and beyond.
    const std::int64_t delay = iteration == 300 ? 777 * ms : 0;
    now += ms + delay;
    released.clear();
    REQUIRE(engine.advance(now, released));
    REQUIRE(released.empty());
    REQUIRE(engine.arrived(0, 2 * iteration, now));
    REQUIRE(engine.advance(INT64_MAX, released));
    REQUIRE(released.size() == 1);
    CHECK(released[0].comm == 2 * iteration);
    CHECK(released[0].at_ns == now + 10 * ms);
    REQUIRE(engine.arrived(0, 2 * iteration + 1, released[0].at_ns));
    released.clear();
    REQUIRE(engine.advance(INT64_MAX, released));
    REQUIRE(released.size() == 1);
    CHECK(released[0].comm == 2 * iteration + 1);
    CHECK(released[0].at_ns == now + 4 * 10 * ms + 3 * ms);
    now = released[0].at_ns;
  }
  CHECK(now == 1000 * 44 * ms + 777 * ms);
  CHECK(engine.arrived(0, 1999, now).error().message == "rank 0: communication 1999 is issued twice");
}

TEST_CASE("what an engine keeps does not grow with the iterations") {
  for (const char* model : {"nccl", "gloo"}) {
    const TrainingJob training({.seed = 3, .model = model, .ranks = 5});
    Scene scene(training.program(4).graph(false), nullptr);
    const auto loop = loop_of(scene.job);
    engine::forget_entries(const_cast<engine::Job&>(scene.job));
    Engine engine(scene.job, scene.durations, scene.service, *scene.carrier, {.loop = &loop, .timelines = false});
    engine.begin(up_to(5), {});
    std::vector<Engine::Released> none;
    REQUIRE(engine.advance(1000 * ms, none));
    const auto bytes = engine.bytes(), events = engine.events();
    REQUIRE(engine.advance(100'000 * ms, none));
    CHECK(engine.events() > 90 * events);
    CHECK(engine.bytes() == bytes);
  }
}

namespace {

// Each iteration: a span that lasts as long as is said, and an all_reduce of no time.
Program spans(const std::vector<std::vector<std::int64_t>>& of_ranks, bool closed = true) {
  Program job(static_cast<int>(of_ranks.size()));
  for (int r = 0; r < static_cast<int>(of_ranks.size()); ++r) {
    for (const auto span : of_ranks[r]) {
      job[r].mark();
      job[r].compute(span, "span");
      job[r].blocking({.op = Op::kAllReduce});
    }
    if (closed) job[r].mark();
    job[r].compute(5 * ms);
  }
  return job;
}

}  // namespace

TEST_CASE("beyond the record spans last as in the last period, or as in one that each rank draws") {
  const std::vector<std::vector<std::int64_t>> recorded{{100, 1, 2, 3}, {100, 10, 20, 30}};
  const auto of = [&](const engine::LoopOptions& options, int rank) {
    Scene scene(spans(recorded).graph(), nullptr);
    const auto loop = loop_of(scene.job, options);
    return run(scene, &loop).spans.at({rank, "span"});
  };
  CHECK(of({.iterations = 7}, 0) == std::vector<std::int64_t>{100, 1, 2, 3, 3, 3, 3});
  CHECK(of({.iterations = 7}, 1) == std::vector<std::int64_t>{100, 10, 20, 30, 30, 30, 30});
  const auto drawn = of({.iterations = 3004, .seed = 5}, 0), others = of({.iterations = 3004, .seed = 5}, 1);
  CHECK(drawn == of({.iterations = 3004, .seed = 5}, 0));
  CHECK(drawn != of({.iterations = 3004, .seed = 6}, 0));
  std::map<std::int64_t, int> counts;
  int together = 0;
  for (std::size_t i = 4; i < drawn.size(); ++i) ++counts[drawn[i]], together += others[i] == 10 * drawn[i];
  CHECK(counts.size() == 3);  // without the first, which is warm-up
  for (const auto& [span, count] : counts) CHECK(std::abs(count - 1000) < 100);
  CHECK(std::abs(together - 1000) < 100);  // ranks draw independently
  CHECK(of({.iterations = 3004, .seed = 5, .warmup = 3}, 0).back() == 3);
}

TEST_CASE("an iteration that the end of the program follows is repeated without it") {
  // The last span of 5 ms is part of the last iteration: no mark ends that.
  Program job(2);
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < 3; ++i) {
      job[r].mark();
      job[r].blocking({.op = Op::kAllReduce, .service = 2 * ms});
      job[r].compute(i == 2 ? 50 * ms : ms, "span");
    }
    job[r].blocking({.op = Op::kBarrier, .service = ms});
  }
  Scene scene(job.graph(), nullptr);
  const auto loop = loop_of(scene.job, {.iterations = 6});
  const auto seen = run(scene, &loop);
  // In the record the program leaves the loop in it.
  CHECK(seen.spans.at({0, "span"}) == std::vector<std::int64_t>{ms, ms, 50 * ms, ms, ms, ms});
  CHECK(seen.lanes.at({0, 0}).back().second == (6 * 2 + 5 * 1 + 50 + 1) * ms);
}

TEST_CASE("jobs that are not periodic are refused, and where they are not is said") {
  const auto job = [](const std::vector<Op>& iterations) {
    Program program(2);
    for (int r = 0; r < 2; ++r) {
      for (const auto op : iterations) {
        program[r].mark();
        program[r].compute(ms);
        program[r].blocking({.op = op});
      }
      program[r].mark();
      program[r].compute(0);
    }
    return program.graph();
  };
  const auto a = Op::kAllReduce, b = Op::kAllGather;
  CHECK(refused(job({a, a, b}))
            .find("not periodic: rank 0: iteration 2 is no repetition of 1: node 9 issues something "
                  "else than node 5 in its place") != std::string::npos);
  CHECK(refused(job({a})).find("there is only one iteration") != std::string::npos);
  Program unmarked(1);
  unmarked[0].blocking({.op = a});
  CHECK(refused(unmarked.graph()).find("rank 0 has no iteration marks") == 0);
  CHECK(refused(Program(1).graph()).find("there are no iterations") != std::string::npos);
  const auto period = [&](const ExecutionGraph& graph, const engine::LoopOptions& options) {
    const auto prepared = engine::prepare(graph).value();
    const auto loop = loop_of(prepared, options);
    return std::pair(loop.first(), loop.length());
  };
  CHECK(period(job({b, a, a}), {}) == std::pair(2, 1));
  CHECK(period(job({a, b, a, b}), {}) == std::pair(2, 2));
  CHECK(period(job({a, a, b, a, a, b}), {}) == std::pair(3, 3));
  CHECK(period(job({a, a, b}), {.period = std::pair(1, 3)}) == std::pair(1, 2));
  CHECK(refused(job({a, a, b}), {.period = std::pair(1, 4)}) == "period 1:4; accepted: iterations of the record, 0:3");
  CHECK(refused(job({a, b, a, b}), {.iterations = 7}) == "7 iterations; accepted: 4, or so many more by 2");
  CHECK(refused(job({a, a}), {.seed = 1, .warmup = 2}) == "2 iterations of warm-up; accepted: 0 to 1");

  Program uneven(2);
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < 3; ++i) {
      uneven[r].mark();
      for (int k = 0; k <= r; ++k) uneven[r].issue({.op = Op::kAllReduce});
      uneven[r].compute(ms);
    }
    uneven[r].mark();
    uneven[r].compute(0);
  }
  CHECK(refused(uneven.graph()) ==
        "rank 1 has 2 collectives of group 'world' in a period of 1 iterations, others have 1");
  Program lost(2);
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < 3; ++i) {
      lost[r].mark();
      for (int k = r; k < 2; ++k) lost[r].issue({.op = r == 0 ? Op::kSend : Op::kRecv, .peer = 1 - r});
      lost[r].compute(ms);
    }
    lost[r].mark();
    lost[r].compute(0);
  }
  CHECK(refused(lost.graph()) ==
        "in a period of 1 iterations rank 0 sends more messages of group 'world' than rank 1 receives from it");
}

TEST_CASE("a period that is chosen needs nothing from before it") {
  Program job(1);
  auto work = job[0].issue({.op = Op::kAllReduce, .service = ms});
  for (int i = 0; i < 2; ++i) {
    job[0].mark();
    if (i == 1) job[0].compute(ms);
    job[0].wait({work});
    work = job[0].issue({.op = Op::kAllReduce, .service = ms});
  }
  job[0].mark();
  job[0].wait({work});
  CHECK(refused(job.graph(), {.period = std::pair(1, 2)})
            .find("node 6 in iteration 1 waits for node 4, which is not in "
                  "these iterations") != std::string::npos);
}

TEST_CASE("the end may be said while the job goes on, before anybody has begun its last round") {
  Scene scene(spans({{ms, ms}, {ms, ms}}).graph(), nullptr);
  const auto loop = loop_of(scene.job);
  Seen seen(scene.job, &loop);
  Engine engine(scene.job, scene.durations, scene.service, *scene.carrier,
                {.loop = &loop, .timelines = false, .observer = &seen});
  engine.begin({0, 1}, {});
  std::vector<Engine::Released> none;
  REQUIRE(engine.advance(10 * ms + 1, none));  // the eleventh iteration has begun
  CHECK(engine.end_after(11).error().message ==
        "the job cannot end after 11 iterations: rank 0 has begun a later one, or the last");
  CHECK_FALSE(engine.finished());
  REQUIRE(engine.end_after(12));
  REQUIRE(engine.advance(INT64_MAX, none));
  CHECK(engine.finished());
  CHECK(seen.spans.at({0, "span"}).size() == 12);
  CHECK(seen.lanes.at({0, 0}).back().second == 12 * ms + 5 * ms);
}

TEST_CASE("who is waited for beyond the record is named by the numbers that count on") {
  Scene scene(spans({{ms, ms}, {ms, ms}}).graph(), nullptr);
  const auto loop = loop_of(scene.job);
  Engine engine(scene.job, scene.durations, scene.service, *scene.carrier, {.loop = &loop, .timelines = false});
  engine.begin({0, 1}, {1});
  std::vector<Engine::Released> released;
  for (std::uint32_t i = 0; i < 5; ++i) {
    REQUIRE(engine.arrived(1, i, (i + 1) * ms));
    REQUIRE(engine.advance(INT64_MAX, released));
    REQUIRE(released.back().comm == i);
  }
  REQUIRE(engine.advance(INT64_MAX, released));
  CHECK(engine.finished().error().message ==
        "replay cannot go on:\n  rank 0 (main) waits for all_reduce 5 of group 'world': rank 1 has not joined");
}
