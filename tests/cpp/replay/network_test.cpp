// Replays on a network: what shared links do to a training job, as arithmetic.
#include <random>

#include "program.hpp"
#include "simulate/topologies.hpp"

using namespace prism;
using namespace prism::test;
using simulate::Topology;
using simulate::testing::wired;

namespace {

constexpr std::int64_t MB = 1'000'000;
constexpr simulate::Picoseconds us = simulate::testing::kMicrosecond;

ReplayReport on(const Topology& topology, const ExecutionGraph& graph, NetworkOptions options = {}) {
  options.topology = &topology;
  return replay_of(graph, {.network = options});
}

std::string refused(const Topology& topology, const ExecutionGraph& graph, NetworkOptions options = {}) {
  options.topology = &topology;
  auto report = replay(graph, {.network = options});
  REQUIRE_FALSE(report.ok());
  CHECK(report.error().code == ErrorCode::kInvalidInput);
  return report.error().message;
}

// Everybody issues the same thing at once.
ExecutionGraph together(int ranks, const CommSpec& spec, const char* model = "nccl", bool timed = false) {
  Program job(ranks, model);
  for (int r = 0; r < ranks; ++r) job[r].blocking(spec);
  return job.graph(timed);
}

bool same_times(const ReplayReport& a, const ReplayReport& b) {
  for (std::size_t r = 0; r < a.timelines.size(); ++r)
    if (a.timelines[r].start_ns != b.timelines[r].start_ns || a.timelines[r].duration_ns != b.timelines[r].duration_ns)
      return false;
  return a.timelines.size() == b.timelines.size();
}

// Random operations of pairs, of everybody and of the two halves, some of them behind the computation.
ExecutionGraph random_job(unsigned seed, const char* model) {
  std::mt19937 random(seed);
  const auto up_to = [&](int n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  Program job(4, model);
  for (int r = 0; r < 4; ++r)
    job[r].record.groups.push_back({r < 2 ? "low" : "high", r < 2 ? std::vector{0, 1} : std::vector{2, 3}});
  std::vector<std::vector<std::int32_t>> open(4);
  const Op ops[] = {Op::kAllReduce,           Op::kBroadcast,      Op::kGather,
                    Op::kReduceScatterTensor, Op::kAllToAllSingle, Op::kSend};
  for (int i = 0; i < 60; ++i) {
    CommSpec spec{.op = ops[up_to(6)], .group = static_cast<std::uint32_t>(up_to(2)), .bytes = up_to(MB)};
    if (is_rooted(spec.op)) spec.peer = static_cast<int>(up_to(2));
    const bool waits = up_to(3) == 0;
    for (int r = 0; r < 4; ++r) {
      job[r].compute(1 + up_to(ms));
      auto own = spec;
      if (spec.op == Op::kSend) own.peer = r ^ 1, own.op = r % 2 == 0 ? Op::kSend : Op::kRecv, own.group = 0;
      open[r].push_back(job[r].issue(own, up_to(1000)));
      if (!waits) continue;
      job[r].wait(open[r]);
      open[r].clear();
    }
  }
  return job.graph();
}

}  // namespace

TEST_CASE("a rank's tensor-parallel and data-parallel all_reduce share its link") {
  // Rings of two: twice half of 2 MB each way. Over rank 0's link of 1 GB/s go both at once.
  auto time_of = [](bool both, bool shared) {
    Program job(3, "nccl");
    const std::vector<RankRecord::Group> groups{{"tp", {0, 1}}, {"dp", {0, 2}}};
    job[0].record.groups = groups;
    job[1].record.groups = {groups[0]};
    job[2].record.groups = {groups[1]};
    for (int r = 0; r < 3; ++r) job[r].compute(5 * ms);
    std::vector<std::int32_t> works{job[0].issue({.bytes = 2 * MB})};
    job[1].blocking({.bytes = 2 * MB});
    if (both) works.push_back(job[0].issue({.group = 1, .bytes = 2 * MB}));
    if (both) job[2].blocking({.bytes = 2 * MB});
    job[0].wait(works);
    const auto topology = Topology::one_switch(3, 1e9, 0);
    return on(topology, job.graph(),
              {.kind = shared ? simulate::NetworkKind::kFlowLevel : simulate::NetworkKind::kClosedForm})
        .critical_path_ns;
  };
  CHECK(time_of(false, true) == (5 + 2) * ms);
  CHECK(time_of(true, true) == (5 + 4) * ms);
  CHECK(time_of(true, false) == (5 + 2) * ms);
}

TEST_CASE("two pipelines send their activations over one link") {
  // Stages 0 and 1 on one side of a link of 1 GB/s, 2 and 3 on the other.
  const auto topology =
      wired(4, 2, {{0, 4, 10e9, 0}, {1, 4, 10e9, 0}, {4, 5, 1e9, 0}, {5, 2, 10e9, 0}, {5, 3, 10e9, 0}});
  Program job(4, "nccl");
  job[1].compute(1 * ms);
  const auto sent = job[0].blocking({.op = Op::kSend, .peer = 2, .bytes = 3 * MB});
  const auto other = job[1].blocking({.op = Op::kSend, .peer = 3, .bytes = 1 * MB});
  job[2].blocking({.op = Op::kRecv, .peer = 0, .bytes = 3 * MB});
  job[3].blocking({.op = Op::kRecv, .peer = 1, .bytes = 1 * MB});
  // 1 MB alone until 1 ms, 1 MB beside the other one's until 3 ms, 1 MB alone.
  const auto report = on(topology, job.graph(), {.flows = true});
  CHECK(end_of(report, 1, other) == 3 * ms);
  CHECK(end_of(report, 0, sent) == 4 * ms);
  REQUIRE(report.network);
  CHECK(report.network->link_bytes == std::vector<std::int64_t>{3 * MB, 1 * MB, 4 * MB, 3 * MB, 1 * MB});
  CHECK(report.network->link_busy_ps[2] == 4 * ms * 1000);
  const auto& flows = report.network->flows;
  CHECK(flows.source == std::vector{0, 1});
  CHECK(flows.destination == std::vector{2, 3});
  CHECK(flows.comm == std::vector{0, 0});
  CHECK(flows.start_ps == std::vector<std::int64_t>{0, 1 * ms * 1000});
  CHECK(flows.end_ps == std::vector<std::int64_t>{4 * ms * 1000, 3 * ms * 1000});
  CHECK(on(topology, job.graph(), {.kind = simulate::NetworkKind::kClosedForm}).critical_path_ns == 3 * ms);
}

TEST_CASE("a ring all_reduce takes what other simulators say, from when its last member has come") {
  const auto topology = Topology::one_switch(8, 50e9, us);
  Program job(8, "nccl");
  for (int r = 0; r < 8; ++r) {
    job[r].compute((r == 5 ? 3 : 1) * ms);
    job[r].blocking({.service = 77 * ms, .bytes = 1 << 20});
  }
  // 50.70016 us, on the engine's clock the next nanosecond.
  for (const bool shared : {false, true}) {
    const auto report = on(topology, job.graph(),
                           {.kind = shared ? simulate::NetworkKind::kFlowLevel : simulate::NetworkKind::kClosedForm});
    CHECK(report.critical_path_ns == 3 * ms + 50'701);
    CHECK(report.ranks[0].waiting_ns == 2 * ms);
    CHECK(report.ranks[0].exposed_comm_ns == 50'701);
  }
  CHECK(on(topology, job.graph(), {.algorithms = {{Op::kAllReduce, "direct"}}}).critical_path_ns ==
        3 * ms + 1'000 + (7 * (1 << 20) + 49) / 50);
}

TEST_CASE("a pipeline of two stages by 1F1B waits for a message in every microbatch, then reduces its gradients") {
  // Ranks 0 and 1 are stage 0. Stage 0 keeps two microbatches under way, so that forward, message, forward, backward,
  // message and backward of one repeat every two microbatches: (M + 1) (f + b) + M c, as bench_iteration's 166.5 ms.
  const int microbatches = GENERATE(2, 4, 10);
  Program job(4, "nccl");
  for (int r = 0; r < 4; ++r) {
    const bool first = r < 2;
    job[r].record.groups.push_back({first ? "stage 0" : "stage 1", first ? std::vector{0, 1} : std::vector{2, 3}});
    const int other = r ^ 2;
    std::vector<std::int32_t> received, sent;
    for (int i = 0; i < microbatches; ++i)
      received.push_back(job[r].issue({.op = Op::kRecv, .peer = other, .bytes = MB}));
    const auto send = [&] { sent.push_back(job[r].issue({.op = Op::kSend, .peer = other, .bytes = MB})); };
    const auto forward = [&] { job[r].compute(1 * ms), send(); };
    if (first) forward();
    for (int i = 0; i < microbatches; ++i) {
      if (first && i + 1 < microbatches) forward();
      job[r].wait({received[static_cast<std::size_t>(i)]});
      if (!first) job[r].compute(1 * ms);
      job[r].compute(2 * ms);
      if (!first) send();
    }
    job[r].wait(sent);
    job[r].blocking({.group = 1, .bytes = 4 * MB});
  }
  const auto topology = Topology::one_switch(4, 10e9, us);
  const std::int64_t message = 101'000, ring = 2 * 201'000;
  for (const bool shared : {false, true})
    CHECK(on(topology, job.graph(),
             {.kind = shared ? simulate::NetworkKind::kFlowLevel : simulate::NetworkKind::kClosedForm})
              .critical_path_ns == (microbatches + 1) * 3 * ms + microbatches * message + ring);
}

TEST_CASE("where nothing is shared, flows take what they take alone") {
  const auto topology = Topology::one_switch(4, 1e9, us);
  std::mt19937 random(GENERATE(range(0, 10)));
  Program job(4, "nccl");
  const Op ops[] = {Op::kAllReduce, Op::kAllGatherIntoTensor, Op::kReduceScatterTensor, Op::kBarrier, Op::kSend};
  for (int i = 0; i < 40; ++i) {
    const Op op = ops[random() % 5];
    const std::int64_t bytes = random() % MB;
    for (int r = 0; r < 4; ++r) {
      job[r].compute(random() % ms);
      const Op own = op == Op::kSend && r % 2 == 1 ? Op::kRecv : op;
      job[r].blocking({.op = own, .peer = op == Op::kSend ? r ^ 1 : -1, .bytes = bytes});
    }
  }
  CHECK(same_times(on(topology, job.graph()), on(topology, job.graph(), {.kind = simulate::NetworkKind::kClosedForm})));
}

TEST_CASE("a replay on a network is the same every time") {
  const char* model = GENERATE("gloo", "nccl", "conservative");
  const auto graph = random_job(GENERATE(range(0, 10)), model);
  const auto topology = Topology::one_switch(4, 1e9, us), again = Topology::one_switch(4, 1e9, us);
  const NetworkOptions options{.bins = 50, .flows = true};
  const auto first = on(topology, graph, options), second = on(again, graph, options);
  CHECK(same_times(first, second));
  CHECK(first.network->link_busy_ps == second.network->link_busy_ps);
  CHECK(first.network->flows.end_ps == second.network->flows.end_ps);
  // Links carry what the flows are, once up and once down.
  std::vector<std::int64_t> carried(8);
  const auto& flows = first.network->flows;
  CHECK(std::is_sorted(flows.start_ps.begin(), flows.start_ps.end()));  // nothing leaves in the network's past
  for (std::size_t f = 0; f < flows.bytes.size(); ++f) {
    CHECK(flows.end_ps[f] >= flows.start_ps[f]);
    carried[2 * flows.source[f]] += flows.bytes[f];
    carried[2 * flows.destination[f] + 1] += flows.bytes[f];
  }
  CHECK(first.network->link_bytes == carried);
}

TEST_CASE("without sharing a network takes what the closed form says") {
  const auto topology = Topology::one_switch(4, 1e9, us);
  auto equal = [&](const CommSpec& spec, const char* model, bool shared = false) {
    const auto graph = together(4, spec, model);
    const auto closed = replay_of(graph, {.links = {.latency_ns = 1000, .bytes_per_second = 1e9}});
    INFO(name(spec.op) << ", " << model);
    CHECK(on(topology, graph, {.kind = shared ? simulate::NetworkKind::kFlowLevel : simulate::NetworkKind::kClosedForm})
              .critical_path_ns == closed.critical_path_ns);
  };
  for (const Op op : {Op::kAllReduce, Op::kAllReduceCoalesced, Op::kReduceScatter, Op::kReduceScatterTensor,
                      Op::kAllGather, Op::kAllGatherIntoTensor})
    equal({.op = op, .bytes = 4000}, "nccl");
  for (const char* model : {"gloo", "nccl"}) equal({.op = Op::kBroadcast, .peer = 2, .bytes = 4000}, model);
  // The root's link carries all parts but its own.
  for (const Op op : {Op::kGather, Op::kScatter}) equal({.op = op, .peer = 3, .bytes = 4000}, "gloo", true);
  Program pair(2);
  pair[0].blocking({.op = Op::kSend, .peer = 1, .bytes = 5000});
  pair[1].blocking({.op = Op::kRecv, .peer = 0, .bytes = 5000});
  CHECK(on(topology, pair.graph(false)).critical_path_ns == 1000 + 5000);
}

TEST_CASE("Gloo's rings have two segments of each part under way") {
  const auto topology = Topology::one_switch(4, 1e9, us);
  const auto time = [&](Op op, int root, bool shared) {
    const auto graph = together(4, {.op = op, .peer = root, .bytes = 4000}, "gloo");
    return on(topology, graph,
              {.kind = shared ? simulate::NetworkKind::kFlowLevel : simulate::NetworkKind::kClosedForm})
        .critical_path_ns;
  };
  // Segments of 500 bytes: 1.5 us each way of one, and the second half a microsecond behind the first.
  const std::int64_t segment = 500, step = 1000 + segment;
  for (const bool shared : {false, true}) {
    for (const Op op : {Op::kAllReduce, Op::kAllReduceCoalesced, Op::kReduceScatter, Op::kReduceScatterTensor})
      CHECK(time(op, -1, shared) == 6 * step + segment);
    for (const Op op : {Op::kAllGather, Op::kAllGatherIntoTensor}) CHECK(time(op, -1, shared) == 3 * step + segment);
  }
  // Then a part to the root: three at once over its link, where links are shared.
  CHECK(time(Op::kReduce, 1, false) == 3 * step + segment + 1000 + 1000);
  CHECK(time(Op::kReduce, 1, true) == 3 * step + segment + 1000 + 3000);
}

TEST_CASE("a Gloo send ends when its receiver is there, if the system takes all of it") {
  const auto topology = Topology::one_switch(2, 1e9, us);
  for (const std::int64_t bytes : {std::int64_t{1} << 20, (std::int64_t{1} << 20) + 1}) {
    Program job(2);
    job[0].compute(1 * ms);
    const auto sent = job[0].blocking({.op = Op::kSend, .peer = 1, .bytes = bytes});
    job[1].compute(3 * ms);
    const auto received = job[1].blocking({.op = Op::kRecv, .peer = 0, .bytes = bytes});
    const auto report = on(topology, job.graph());
    CHECK(end_of(report, 1, received) == 3 * ms + 1'000 + bytes);
    CHECK(end_of(report, 0, sent) == (bytes <= 1 << 20 ? 3 * ms : 3 * ms + 1'000 + bytes));
  }
}

TEST_CASE("in a Gloo all-to-all the late member sends first to those that are half of the group or more before it") {
  const auto topology = Topology::one_switch(4, 1e9, 0);
  for (const int late : {0, 3}) {
    Program job(4);
    std::vector<std::uint32_t> wait;
    for (int r = 0; r < 4; ++r) {
      job[r].compute((r == late ? 20 : 1) * ms);
      wait.push_back(job[r].blocking({.op = Op::kAllToAllSingle, .bytes = 4 * MB}));
    }
    const auto report = on(topology, job.graph());
    // Quarters of 1 ms. All others have exchanged theirs before. The late one's three leave together in 3 ms; what
    // comes from the member just before it takes 1 ms meanwhile, the other two come after.
    CHECK(end_of(report, late, wait[static_cast<std::size_t>(late)]) == 25 * ms);
    CHECK(end_of(report, (late + 3) % 4, wait[static_cast<std::size_t>((late + 3) % 4)]) == 23 * ms);
  }
}

TEST_CASE("a late member of a Gloo tree holds on a network whom it holds in the record") {
  const auto topology = Topology::one_switch(4, 1e9, 0);
  auto ends = [&](int late, Op op) {
    Program job(4);
    std::vector<std::uint32_t> wait;
    for (int r = 0; r < 4; ++r) {
      job[r].compute((r == late ? 201 : 1) * ms);
      wait.push_back(job[r].blocking({.op = op, .peer = 0, .bytes = MB}));
    }
    const auto report = on(topology, job.graph(), {.kind = simulate::NetworkKind::kClosedForm});
    std::vector<std::int64_t> result;
    for (int r = 0; r < 4; ++r) result.push_back(end_of(report, r, wait[static_cast<std::size_t>(r)]) / 1000);
    return result;
  };
  using Ends = std::vector<std::int64_t>;  // us
  // Each message of the tree 0 -> 1, 0 -> 2, 1 -> 3 takes 1 ms.
  CHECK(ends(-1, Op::kBroadcast) == Ends{2'000, 3'000, 2'000, 3'000});
  CHECK(ends(0, Op::kBroadcast) == Ends{202'000, 203'000, 202'000, 203'000});
  CHECK(ends(1, Op::kBroadcast) == Ends{202'000, 203'000, 2'000, 203'000});
  CHECK(ends(2, Op::kBroadcast) == Ends{202'000, 3'000, 202'000, 3'000});
  CHECK(ends(3, Op::kBroadcast) == Ends{2'000, 202'000, 2'000, 202'000});
  // A star of quarters.
  CHECK(ends(2, Op::kGather) == Ends{201'250, 1'250, 201'250, 1'250});
  CHECK(ends(0, Op::kScatter) == Ends{201'250, 201'250, 201'250, 201'250});
}

TEST_CASE("members whose rank is not in the graph take part in the traffic") {
  Program job(3, "nccl");
  for (int r = 0; r < 3; ++r) job[r].blocking({.bytes = 3 * MB});
  job[0].blocking({.op = Op::kSend, .peer = 2, .bytes = MB});
  job.ranks.pop_back();
  GraphBuilder builder({.world_size = 3, .progress_model = "nccl"});
  for (auto& rank : job.ranks) REQUIRE(builder.add(rank.record).ok());
  const auto topology = Topology::one_switch(3, 1e9, 0);
  const auto report = on(topology, *builder.finish(), {.flows = true});
  CHECK(report.critical_path_ns == (4 + 1) * ms);
  CHECK(report.network->link_bytes == std::vector<std::int64_t>{5 * MB, 4 * MB, 4 * MB, 4 * MB, 4 * MB, 5 * MB});
  CHECK(report.network->flows.source.back() == 0);
  CHECK(report.network->flows.destination.back() == 2);
}

TEST_CASE("ranks stand where they are placed, and nodes count for the hierarchical algorithm") {
  // Two nodes of two, 1 GB/s within and 0.1 GB/s between them: a ring over neighbours leaves a node twice.
  const auto topology = wired(4, 2,
                              {{0, 4, 1e9, 0},
                               {4, 0, 1e9, 0},
                               {1, 4, 1e9, 0},
                               {4, 1, 1e9, 0},
                               {2, 5, 1e9, 0},
                               {5, 2, 1e9, 0},
                               {3, 5, 1e9, 0},
                               {5, 3, 1e9, 0},
                               {4, 5, 1e8, 0},
                               {5, 4, 1e8, 0}});
  const auto graph = together(4, {.bytes = 4 * MB});
  // Every step: 1 MB over the link between the nodes, alone or beside another.
  CHECK(on(topology, graph).critical_path_ns == 6 * 10 * ms);
  CHECK(on(topology, graph, {.placement = {0, 2, 1, 3}}).critical_path_ns == 6 * 20 * ms);
  // 2 MB within, twice 1 MB between (both of a node at once), 2 MB within.
  CHECK(on(topology, graph, {.algorithms = {{Op::kAllReduceCoalesced, "hierarchical"}}, .per_node = 2})
            .critical_path_ns == (2 + 2 * 20 + 2) * ms);
}

TEST_CASE("networks that cannot carry a job are refused with the rank and the operation") {
  const auto small = Topology::one_switch(3, 1e9, 0), slow = Topology::one_switch(2, 1e-3, 0);
  const auto apart = wired(2, 0, {{0, 1, 1e9, 0}});
  const auto graph = together(4, {.bytes = 8}), pair = together(2, {.bytes = 8});
  CHECK(refused(small, graph) == "the network has 3 endpoints, none for rank 3; accepted: one for each of 4 ranks");
  CHECK(refused(small, graph, {.placement = {0, 1, 2, 3}}) == "rank 3 at endpoint 3; accepted: 0 to 2");
  CHECK(refused(apart, pair) ==
        "rank 1: all_reduce 0 of group 'world': to rank 0: no way leads from endpoint 1 to endpoint 0");
  CHECK(refused(small, pair, {.algorithms = {{Op::kBarrier, "ring"}}}) ==
        "no algorithm 'ring' for barrier; accepted: dissemination");
  Program messages(2);
  messages[0].blocking({.op = Op::kRecv, .peer = 1, .bytes = 8});
  messages[1].blocking({.op = Op::kSend, .peer = 0, .bytes = 8});
  CHECK(refused(apart, messages.graph()) ==
        "rank 1: send 0 of group 'world': to rank 0: no way leads from endpoint 1 to endpoint 0");
  CHECK(refused(slow, together(2, {.bytes = MB})) ==
        "transfers take longer than the 106 days that the clock of a network shows");
  Program old(2);
  for (int r = 0; r < 2; ++r) old[r].compute(10'000'000'000 * ms), old[r].blocking({});
  CHECK(refused(small, old.graph()).find("later than the 104 days that the clock of a network shows") !=
        std::string::npos);
}

TEST_CASE("parts of a job that share nothing give what all at once give") {
  // 300 rings of four with a message to the next but one in each; a list of flows is made of all ranks at once.
  const int ranks = 1'200;
  Program job(ranks, "nccl");
  for (int r = 0; r < ranks; ++r) {
    const int first = r - r % 4;
    job[r].record.groups.push_back({"ring " + std::to_string(first), {first, first + 1, first + 2, first + 3}});
    job[r].compute(ms + (r * 7919) % ms);
    const auto sum = job[r].issue({.op = Op::kAllReduce, .group = 1, .bytes = 4 * MB});
    job[r].compute((r * 104'729) % ms);
    const auto message = job[r].issue({.op = r % 4 < 2 ? Op::kSend : Op::kRecv, .peer = r ^ 2, .bytes = MB});
    job[r].wait({sum, message});
  }
  const auto graph = job.graph(false);
  const auto topology = Topology::one_switch(ranks, 1e9, 2 * us);
  for (const auto kind :
       {simulate::NetworkKind::kClosedForm, simulate::NetworkKind::kFlowLevel, simulate::NetworkKind::kOccupancy}) {
    const auto parts = on(topology, graph, {.kind = kind}), whole = on(topology, graph, {.kind = kind, .flows = true});
    CHECK(same_times(parts, whole));
    CHECK(parts.network->link_bytes == whole.network->link_bytes);
    CHECK(parts.network->link_busy_ps == whole.network->link_busy_ps);
  }
}
