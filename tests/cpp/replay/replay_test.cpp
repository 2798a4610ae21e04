// What a replay promises beyond the rules of single operations.
#include "program.hpp"

#include <random>

using namespace prism;
using namespace prism::test;

namespace {

// A data-parallel loop of `iterations`, each 10 ms of compute and a 2 ms all_reduce, marked at its beginning.
Program loop(int iterations, bool closing_mark, std::int64_t teardown) {
  Program job(2);
  for (int r = 0; r < 2; ++r) {
    job[r].compute(100 * ms, "set-up");
    for (int i = 0; i < iterations; ++i) {
      job[r].mark();
      job[r].compute(7 * ms, "forward and backward");
      job[r].blocking({.service = 2 * ms});
      job[r].compute(3 * ms + (i + 1 == iterations && !closing_mark ? teardown : 0), "optimizer");
    }
    if (closing_mark) {
      job[r].mark();
      job[r].compute(teardown);
    }
  }
  return job;
}

std::vector<std::int64_t> times(const ReplayReport& report) {
  std::vector<std::int64_t> result;
  for (const auto& iteration : report.iterations) result.push_back(iteration.time_ns);
  return result;
}

}  // namespace

TEST_CASE("iteration times are those that the loop's own clock shows, without what follows the loop") {
  std::vector<std::int64_t> expected(3, 12 * ms);
  CHECK(times(replay_of(loop(3, true, 50 * ms).graph())) == expected);
  CHECK(times(replay_of(loop(3, false, 50 * ms).graph())) == expected);
}

TEST_CASE("a span that takes d longer delays its iteration by d") {
  ExecutionGraph graph = loop(3, true, 0).graph();
  auto with = [&](SpanEdit edit) { return times(replay_of(graph, {.edits = {edit}})); };
  using Times = std::vector<std::int64_t>;
  CHECK(with({.rank = 1, .iteration = 1, .name = "forward and backward", .add_ns = 30 * ms}) ==
        Times{12 * ms, 42 * ms, 12 * ms});
  // Behind the last collective only rank 1's own iteration is longer; rank 0 waits for it in the next one.
  CHECK(with({.rank = 1, .iteration = 1, .name = "optimizer", .add_ns = 30 * ms}) == Times{12 * ms, 42 * ms, 42 * ms});
  CHECK(with({.rank = 0, .name = "forward and backward", .scale = 2}) == Times(3, 19 * ms));
  CHECK(with({.name = "optimizer", .add_ns = -3 * ms}) == Times(3, 9 * ms));
  CHECK(with({.name = "optimizer", .add_ns = -30 * ms}) == Times(3, 9 * ms));  // no span is shorter than nothing
}

TEST_CASE("an edit that matches nothing is an error, not a silent no") {
  ExecutionGraph graph = loop(1, true, 0).graph();
  for (const SpanEdit& edit : {SpanEdit{.rank = 7}, SpanEdit{.name = "forwrd"}, SpanEdit{.iteration = 9},
                               SpanEdit{.node = 1}, SpanEdit{.scale = -1}}) {
    auto report = replay(graph, {.edits = {edit}});
    REQUIRE_FALSE(report.ok());
    CHECK(report.error().code == ErrorCode::kInvalidInput);
  }
}

TEST_CASE("waits are recomputed: what remains of a recorded wait is the time to wake up") {
  Program job(2);
  for (int r = 0; r < 2; ++r) {
    job[r].compute((r == 0 ? 10 : 40) * ms);
    job[r].blocking({.service = 5 * ms});
  }
  // As a recorder saw rank 0: it waited from 10 to 46, 1 ms longer than the transfer.
  job[0].record.nodes[3].duration_ns = 36 * ms;
  ReplayReport as_recorded = replay_of(job.graph());
  CHECK(end_of(as_recorded, 0, 3) == 46 * ms);
  // Without rank 1's delay nothing is left of the 30 ms of waiting.
  ReplayReport no_skew = replay_of(job.graph(), {.edits = {{.rank = 1, .add_ns = -30 * ms}}});
  CHECK(end_of(no_skew, 0, 3) == 16 * ms);
}

TEST_CASE("ranks whose clocks cannot be compared start together, and a transfer takes what its last member saw") {
  Program job(2);
  const std::int64_t day = 86'400'000 * ms;
  for (int r = 0; r < 2; ++r) {
    job[r].compute((r == 0 ? 10 : 40) * ms);
    job[r].blocking({});
    // Rank 1's clock is a day ahead; both saw the transfer end 5 ms after rank 1 came.
    for (auto& node : job[r].record.nodes) node.start_ns += r * day;
    std::int64_t end = 45 * ms + r * day;
    job[r].specs[0].recorded_end = end;
    job[r].record.nodes[3].duration_ns = end - job[r].record.nodes[3].start_ns;
  }
  ReplayReport report = replay_of(job.graph(true, R"({"clock_domain": ["boot A", "boot B"]})"));
  CHECK(end_of(report, 0, 3) == 45 * ms);
  CHECK(end_of(report, 1, 3) == 45 * ms);
  CHECK(report.notes[0].find("clocks") != std::string::npos);
}

TEST_CASE("ranks on one clock keep the skew with which they started") {
  Program job(2);
  for (int r = 0; r < 2; ++r) {
    job[r].compute(10 * ms);
    for (auto& node : job[r].record.nodes) node.start_ns += (5 + 3 * r) * ms;
  }
  ReplayReport report = replay_of(job.graph());
  CHECK(report.timelines[0].start_ns[0] == 0);
  CHECK(report.timelines[1].start_ns[0] == 3 * ms);
}

TEST_CASE("an untimed graph takes its transfers from the closed form") {
  auto time_of = [](CommSpec spec, int ranks, const char* model) {
    Program job(ranks, model);
    for (int r = 0; r < ranks; ++r) job[r].blocking(spec);
    ReplayReport report =
        replay_of(job.graph(false), {.edits = {}, .links = {.latency_ns = 1000, .bytes_per_second = 1e9}});
    CHECK(report.notes[0].find("untimed") != std::string::npos);
    return report.critical_path_ns;
  };
  // 4 ranks, 4000 bytes, 1 byte a ns, latency 1000 ns: a ring step is 1000 + 1000.
  CHECK(time_of({.op = Op::kAllReduce, .bytes = 4000}, 4, "nccl") == 6 * 2000);
  CHECK(time_of({.op = Op::kReduceScatterTensor, .bytes = 4000}, 4, "nccl") == 3 * 2000);
  CHECK(time_of({.op = Op::kReduceScatterTensor, .bytes = 4000}, 4, "gloo") == 6 * 2000);
  CHECK(time_of({.op = Op::kAllGatherIntoTensor, .bytes = 4000}, 4, "gloo") == 3 * 2000);
  CHECK(time_of({.op = Op::kBroadcast, .peer = 0, .bytes = 4000}, 4, "gloo") == 2 * 5000);
  CHECK(time_of({.op = Op::kBarrier}, 4, "gloo") == 4 * 1000);
  CHECK(time_of({.op = Op::kAllReduce, .bytes = 4000}, 1, "gloo") == 0);
}

TEST_CASE("a callback starts when its cause has completed, and what it issues is its own lane's work") {
  Program job(2);
  std::uint32_t wait = 0;
  for (int r = 0; r < 2; ++r) {
    auto& rank = job[r];
    rank.compute(10 * ms);
    std::int32_t first = rank.issue({.service = 4 * ms});
    rank.compute(1 * ms);
    wait = static_cast<std::uint32_t>(rank.record.nodes.size());
    // main waits for what the callback issues, so the wait's edge is added once that exists
    rank.wait({first});
    rank.lane("callback-0", 14 * ms);
    std::uint32_t begin = rank.compute(2 * ms);
    rank.record.edges.push_back({rank.transfers[0], begin});
    rank.issue({.service = 3 * ms});
    rank.record.edges.push_back({rank.transfers[1], wait});
  }
  ReplayReport report = replay_of(job.graph(), {.edits = {{.rank = 1, .node = 0, .add_ns = 20 * ms}}});
  CHECK(end_of(report, 0, wait) == (30 + 4 + 2 + 3) * ms);
  CHECK(end_of(report, 1, wait) == (30 + 4 + 2 + 3) * ms);
}

TEST_CASE("a rank that never joins stops the replay with its name and the operation's") {
  Program job(3);
  for (int r = 0; r < 3; ++r) {
    job[r].blocking({});
    if (r != 1) job[r].blocking({.op = Op::kBroadcast, .peer = 2});
  }
  auto report = replay(job.graph());
  REQUIRE_FALSE(report.ok());
  CHECK(report.error().code == ErrorCode::kDeadlock);
  CHECK(report.error().message.find("rank 2 (main) waits for broadcast 1 of group 'world': rank 1 has not joined") !=
        std::string::npos);
}

TEST_CASE("a receive without its send stops the replay with both ends") {
  Program job(2);
  job[0].compute(1 * ms);
  job[1].blocking({.op = Op::kRecv, .peer = 0, .tag = 3});
  auto report = replay(job.graph());
  REQUIRE_FALSE(report.ok());
  CHECK(report.error().message.find("rank 1 (main) waits for recv 0 from rank 0 (group 'world', tag 3): no send") !=
        std::string::npos);
}

TEST_CASE("members that issue different operations are an error that names both") {
  Program job(2);
  job[0].blocking({});
  job[1].blocking({.op = Op::kBarrier});
  auto report = replay(job.graph());
  REQUIRE_FALSE(report.ok());
  CHECK(report.error().code == ErrorCode::kMismatch);
  CHECK(report.error().message.find("all_reduce") != std::string::npos);
  CHECK(report.error().message.find("barrier") != std::string::npos);
}

TEST_CASE("a replay replays to itself, to the nanosecond") {
  const char* model = GENERATE("gloo", "nccl", "conservative");
  std::mt19937 random(GENERATE(range(0, 20)));
  auto up_to = [&](int n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  const int world = 4;
  Program job(world, model);
  // The same random sequence of operations on all ranks, asynchronous or not, between random spans of compute.
  std::vector<std::vector<std::int32_t>> open(world);
  const Op ops[] = {Op::kAllReduce, Op::kBroadcast, Op::kGather, Op::kReduce, Op::kAllToAllSingle, Op::kBarrier};
  for (int i = 0; i < 60; ++i) {
    Op op = ops[up_to(6)];
    CommSpec spec{.op = op, .service = up_to(5 * ms), .peer = is_rooted(op) ? static_cast<int>(up_to(world)) : -1};
    bool waits = up_to(3) == 0;
    for (int r = 0; r < world; ++r) {
      job[r].compute(1 + up_to(3 * ms));
      auto& works = open[static_cast<std::size_t>(r)];
      works.push_back(job[r].issue(spec, up_to(1000)));
      if (!waits) continue;
      job[r].wait(works);
      works.clear();
    }
  }
  ExecutionGraph original = job.graph();
  ReplayReport first = replay_of(original);
  auto again = retimed(original, first);
  REQUIRE(again.ok());
  ReplayReport second = replay_of(*again);
  for (int r = 0; r < world; ++r) {
    CHECK(second.timelines[static_cast<std::size_t>(r)].start_ns ==
          first.timelines[static_cast<std::size_t>(r)].start_ns);
    CHECK(second.timelines[static_cast<std::size_t>(r)].duration_ns ==
          first.timelines[static_cast<std::size_t>(r)].duration_ns);
  }
}

TEST_CASE("numbers of collectives with a gap are refused, however many calls other groups have") {
  Program job(2);
  for (int r = 0; r < 2; ++r) {
    job[r].record.groups.push_back({"busy", {0, 1}});
    for (int i = 0; i < 50; ++i) job[r].blocking({.group = 1});
    job[r].blocking({});
    job[r].blocking({});
    job[r].record.comms.back().seq = 40;
  }
  auto report = replay(job.graph());
  REQUIRE_FALSE(report.ok());
  CHECK(report.error().message == "group 'world': collectives are numbered 0 to 40, but its members issue only 4");
}

TEST_CASE("a partly recorded job with more parts of collectives than can be numbered is refused") {
  constexpr int kRanks = 1 << 17, kCalls = 1 << 15;  // 2^32 parts, of which one rank's are recorded
  RankRecord record;
  record.rank = 0;
  record.lanes = {"main"};
  record.groups = {{"world", {}}};
  for (int r = 0; r < kRanks; ++r) record.groups[0].members.push_back(r);
  record.nodes = {{}};
  for (int i = 0; i < kCalls; ++i) record.comms.push_back({.op = Op::kAllReduce, .seq = i});
  GraphBuilder builder({.world_size = kRanks});
  REQUIRE(builder.add(record).ok());
  auto report = replay(*builder.finish());
  REQUIRE_FALSE(report.ok());
  CHECK(report.error().code == ErrorCode::kInvalidInput);
  CHECK(report.error().message.find("32768 collectives of 131072 members") != std::string::npos);
}

TEST_CASE("times that add up to more than the clock can show are refused") {
  const std::int64_t century = 3'155'760'000'000 * ms;
  Program spans(1);
  for (int i = 0; i < 2; ++i) spans[0].compute(century / 2);
  CHECK(replay_of(spans.graph()).critical_path_ns == century);
  CHECK(replay(spans.graph(), {.edits = {{.scale = 4}}}).error().code == ErrorCode::kInvalidInput);
  Program bytes(4);
  for (int r = 0; r < 4; ++r) bytes[r].blocking({.bytes = std::int64_t{1} << 62});
  auto untimed = replay(bytes.graph(false));
  REQUIRE_FALSE(untimed.ok());
  CHECK(untimed.error().message == "the times of the trace add up to more than 4e18 ns (126 years)");
}

TEST_CASE("times of another graph's replay are refused") {
  const ExecutionGraph short_loop = loop(1, true, 0).graph(), long_loop = loop(2, true, 0).graph();
  CHECK(retimed(long_loop, replay_of(short_loop)).error().code == ErrorCode::kInvalidInput);
}
