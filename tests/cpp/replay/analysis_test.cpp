// What a timeline says: critical paths, late-comers, bubbles, in jobs whose answers are arithmetic.
#include <random>

#include "program.hpp"

using namespace prism;
using namespace prism::test;

namespace {

ReplayReport analysed(const ExecutionGraph& graph, ReplayOptions options = {}) {
  options.analysis = true;
  ReplayReport report = replay_of(graph, options);
  REQUIRE(report.analysis);
  return report;
}

struct Hop {
  int rank;
  std::uint32_t node;
  std::int64_t duration_ns;
  bool operator==(const Hop&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Hop& hop) {
  return out << "rank " << hop.rank << " node " << hop.node << ": " << hop.duration_ns;
}

std::vector<Hop> path_of(const ReplayReport& report, int iteration) {
  const auto& path = report.analysis->path;
  std::vector<Hop> hops;
  for (std::size_t i = 0; i < path.node.size(); ++i)
    if (path.iteration[i] == iteration) hops.push_back({path.rank[i], path.node[i], path.duration_ns[i]});
  return hops;
}

// Durations sum to the iteration, without a gap, and each part lies in the node that it names.
void check_path(const ReplayReport& report) {
  const auto& path = report.analysis->path;
  std::vector<std::int64_t> sum(report.iterations.size());
  for (std::size_t i = 0; i < path.node.size(); ++i) {
    sum[static_cast<std::size_t>(path.iteration[i])] += path.duration_ns[i];
    CHECK(path.duration_ns[i] > 0);
    if (i > 0 && path.iteration[i] == path.iteration[i - 1])
      CHECK(path.start_ns[i] == path.start_ns[i - 1] + path.duration_ns[i - 1]);
    if (path.node[i] == Analysis::kNotStarted) continue;
    const auto& timeline = report.timelines[static_cast<std::size_t>(path.rank[i])];
    CHECK(path.start_ns[i] >= timeline.start_ns[path.node[i]]);
    CHECK(path.start_ns[i] + path.duration_ns[i] <= end_of(report, path.rank[i], path.node[i]));
  }
  for (std::size_t i = 0; i < sum.size(); ++i) CHECK(sum[i] == report.iterations[i].time_ns);
}

// p stages, m microbatches; forward f, backward b; messages take no time. One forward one backward: stage s runs
// p - 1 - s forwards ahead, then alternates, then finishes its backwards.
Program one_forward_one_backward(int p, int m, std::int64_t f, std::int64_t b, bool closing_all_reduce) {
  Program job(p);
  for (int s = 0; s < p; ++s) {
    auto& rank = job[s];
    std::vector<std::int32_t> sends;
    const auto forward = [&] {
      if (s > 0) rank.blocking({.op = Op::kRecv, .peer = s - 1, .tag = 0});
      rank.compute(f);
      if (s + 1 < p) sends.push_back(rank.issue({.op = Op::kSend, .peer = s + 1, .tag = 0}));
    };
    const auto backward = [&] {
      if (s + 1 < p) rank.blocking({.op = Op::kRecv, .peer = s + 1, .tag = 1});
      rank.compute(b);
      if (s > 0) sends.push_back(rank.issue({.op = Op::kSend, .peer = s - 1, .tag = 1}));
    };
    const int ahead = std::min(m, p - 1 - s);
    for (int i = 0; i < ahead; ++i) forward();
    for (int i = ahead; i < m; ++i) forward(), backward();
    for (int i = 0; i < ahead; ++i) backward();
    if (closing_all_reduce) rank.blocking({});
  }
  return job;
}

}  // namespace

TEST_CASE("the path of an all_reduce leads over the member that came last") {
  // Ranks compute 10, 30 and 20 ms; the all_reduce takes 5 ms, then 2 ms of optimizer: 30 + 1 + 5 + 2.
  Program job(3);
  for (int r = 0; r < 3; ++r) {
    job[r].mark();
    job[r].compute((10 + 20 * (r == 1) + 10 * (r == 2)) * ms);
    job[r].wait({job[r].issue({.service = 5 * ms, .bytes = 4096}, 1 * ms)});
    job[r].compute((r == 2 ? 3 : 2) * ms, "optimizer");
  }
  const ReplayReport report = analysed(job.graph());
  check_path(report);
  CHECK(report.iterations[0].rank == 2);
  CHECK(report.iterations[0].time_ns == 39 * ms);
  // Rank 1 computes (node 0) and issues (1); the transfer is rank 2's own (2), as is the optimizer (4).
  CHECK(path_of(report, 0) == std::vector<Hop>{{1, 0, 30 * ms}, {1, 1, 1 * ms}, {2, 2, 5 * ms}, {2, 4, 3 * ms}});
  const auto& table = report.analysis->collectives;
  CHECK(table.late_rank == std::vector<std::int32_t>{1});
  CHECK(table.late_by_ns == std::vector<std::int64_t>{10 * ms});        // rank 2 came at 21, rank 1 at 31
  CHECK(table.waited_ns == std::vector<std::int64_t>{(20 + 10) * ms});  // rank 0 from 11, rank 2 from 21
  CHECK(table.members == std::vector<std::uint32_t>{3});
  CHECK(table.bytes == std::vector<std::int64_t>{4096});
  CHECK(table.end_ns == std::vector<std::int64_t>{36 * ms});
  CHECK(report.analysis->parts[0].waited_ns == std::vector<std::int64_t>{20 * ms});
  CHECK(report.ranks[0].bubble_ns == 0);  // nobody exchanges messages: no pipeline
}

TEST_CASE("a chain of messages is a path over all its ranks") {
  // Rank r receives, computes 4 + r ms, sends on; a message takes 2 ms: 4 + 2 + 5 + 2 + 6 + 2 + 7.
  const int world = 4;
  Program job(world);
  std::int64_t expected = 0;
  for (int r = 0; r < world; ++r) {
    if (r > 0) job[r].blocking({.op = Op::kRecv, .service = 2 * ms, .peer = r - 1});
    job[r].compute((4 + r) * ms);
    if (r + 1 < world) job[r].blocking({.op = Op::kSend, .service = 2 * ms, .peer = r + 1});
    expected += (4 + r) * ms + (r > 0 ? 2 * ms : 0);
  }
  const ReplayReport report = analysed(job.graph());
  check_path(report);
  CHECK(report.iterations[0].time_ns == expected);
  // On each rank: the transfer of its receive (node 1; 0 is the issue, 2 the wait), its compute (3; rank 0: 0).
  std::vector<Hop> hops{{0, 0, 4 * ms}};
  for (int r = 1; r < world; ++r) {
    hops.push_back({r, 1, 2 * ms});
    hops.push_back({r, 3, (4 + r) * ms});
  }
  CHECK(path_of(report, 0) == hops);
}

TEST_CASE("a pipeline of p stages and m microbatches has a bubble of (p - 1) / m of its computing, on every stage") {
  const int p = GENERATE(2, 4, 5), m = GENERATE(4, 8);
  const std::int64_t f = 3 * ms, b = 7 * ms;
  INFO("p " << p << " m " << m);
  for (const bool closing : {false, true}) {
    const ReplayReport report = analysed(one_forward_one_backward(p, m, f, b, closing).graph());
    check_path(report);
    // The first microbatch reaches the last stage after p - 1 forwards, the last one comes back in p - 1 backwards.
    CHECK(report.critical_path_ns == (m + p - 1) * (f + b));
    for (const auto& rank : report.ranks) {
      CHECK(rank.busy_ns == m * (f + b));
      CHECK(rank.bubble_ns == (p - 1) * (f + b));
      CHECK(rank.bubble_ns * m == rank.busy_ns * (p - 1));
    }
  }
}

TEST_CASE("v model chunks a stage divide the bubble of a pipeline by v") {
  // Interleaved: chunk c of stage s is part c p + s of the model. Stage s runs 2 (p - 1 - s) + (v - 1) p chunks ahead,
  // taking p microbatches through a chunk, then as many through the next; backwards the same from the last chunk on.
  const int p = GENERATE(2, 4), v = GENERATE(2, 3), m = 2 * p;
  const std::int64_t f = 2 * ms, b = 4 * ms;  // of a chunk
  INFO("p " << p << " v " << v);
  Program job(p);
  for (int s = 0; s < p; ++s) {
    auto& rank = job[s];
    const auto step = [&](int k, bool forward) {
      const int place = k / p % v, chunk = forward ? place : v - 1 - place, microbatch = k / (p * v) * p + k % p;
      const int part = chunk * p + s, from = part + (forward ? -1 : 1), to = part + (forward ? 1 : -1);
      const auto tag = [&](int receiver) { return (microbatch * p * v + receiver) * 2 + forward; };
      if (from >= 0 && from < p * v) rank.blocking({.op = Op::kRecv, .peer = from % p, .tag = tag(part)});
      rank.compute(forward ? f : b);
      if (to >= 0 && to < p * v) rank.issue({.op = Op::kSend, .peer = to % p, .tag = tag(to)});
    };
    const int ahead = std::min(m * v, 2 * (p - 1 - s) + (v - 1) * p);
    for (int k = 0; k < ahead; ++k) step(k, true);
    for (int k = ahead; k < m * v; ++k) step(k, true), step(k - ahead, false);
    for (int k = m * v - ahead; k < m * v; ++k) step(k, false);
  }
  const ReplayReport report = analysed(job.graph());
  check_path(report);
  CHECK(report.critical_path_ns == (m * v + p - 1) * (f + b));
  for (const auto& rank : report.ranks) CHECK(rank.bubble_ns * m * v == rank.busy_ns * (p - 1));
}

TEST_CASE("waiting for another replica is no bubble, waiting for the own pipeline is") {
  // Two pipelines of two stages; at the end all four meet. Replica 1 (ranks 2, 3) computes twice as long.
  Program job(4);
  for (int r = 0; r < 4; ++r) {
    const std::int64_t own = (r < 2 ? 5 : 10) * ms;
    if (r % 2 == 1) job[r].blocking({.op = Op::kRecv, .peer = r - 1});
    job[r].compute(own);
    if (r % 2 == 0) job[r].issue({.op = Op::kSend, .peer = r + 1});
    job[r].blocking({});
  }
  const ReplayReport report = analysed(job.graph());
  // Rank 3 comes last, at 20 ms. Rank 0 came at 5, rank 1 at 10: they wait for the other replica.
  CHECK(report.ranks[0].waiting_ns == 15 * ms);
  CHECK(report.ranks[0].bubble_ns == 0);
  CHECK(report.ranks[1].waiting_ns == 5 * ms + 10 * ms);
  CHECK(report.ranks[1].bubble_ns == 5 * ms);   // for rank 0's message
  CHECK(report.ranks[2].bubble_ns == 10 * ms);  // for rank 3, the other stage of its pipeline
  CHECK(report.ranks[3].bubble_ns == 10 * ms);  // for rank 2's message
}

TEST_CASE("a collective that had to wait for a worker is held by the one that freed it") {
  // NCCL has one stream: the second all_reduce, issued at once, starts when the first has ended.
  Program job(2, "nccl");
  for (int r = 0; r < 2; ++r) {
    job[r].compute(1 * ms);
    const auto first = job[r].issue({.service = 10 * ms}), second = job[r].issue({.service = 10 * ms});
    job[r].wait({first, second});
  }
  // Of the record: the second lasts 10 ms from the first one's end.
  for (int r = 0; r < 2; ++r) job[r].specs[1].recorded_end = 21 * ms;
  const ReplayReport report = analysed(job.graph());
  check_path(report);
  CHECK(path_of(report, 0) == std::vector<Hop>{{0, 0, 1 * ms}, {0, 2, 10 * ms}, {0, 4, 10 * ms}});
}

TEST_CASE("a late root holds the members of a broadcast, a late leaf nobody but its parent") {
  Program root(3), leaf(3);
  for (int r = 0; r < 3; ++r) {
    root[r].compute((r == 0 ? 20 : 1) * ms);
    root[r].blocking({.op = Op::kBroadcast, .service = 1 * ms, .peer = 0});
    leaf[r].compute((r == 2 ? 20 : 1) * ms);
    leaf[r].blocking({.op = Op::kBroadcast, .service = 1 * ms, .peer = 0});
  }
  const auto of_root = analysed(root.graph()).analysis->collectives;
  CHECK(of_root.late_rank == std::vector<std::int32_t>{0});
  CHECK(of_root.waited_ns == std::vector<std::int64_t>{2 * 19 * ms});
  const auto of_leaf = analysed(leaf.graph()).analysis->collectives;
  CHECK(of_leaf.late_rank == std::vector<std::int32_t>{2});
  CHECK(of_leaf.waited_ns == std::vector<std::int64_t>{19 * ms});  // the root, its parent in the tree
}

TEST_CASE("a rank whose record begins late shows as such on the path") {
  Program job(2);
  for (int r = 0; r < 2; ++r) {
    job[r].compute(10 * ms);
    job[r].blocking({.service = 2 * ms});
    for (auto& node : job[r].record.nodes) node.start_ns += 3 * r * ms;
  }
  const ReplayReport report = analysed(job.graph());
  check_path(report);
  CHECK(path_of(report, 0).front() == Hop{1, Analysis::kNotStarted, 3 * ms});
}

TEST_CASE("the peak of memory stands at the end of the first node that saw it") {
  Program job(1);
  for (const std::int64_t d : {4, 5, 6}) job[0].compute(d * ms);
  job[0].record.memory = {{0, 10, 20}, {1, 10, 50}, {2, 0, 50}};
  const ReplayReport report = replay_of(job.graph());
  CHECK(report.ranks[0].peak_memory_bytes == 50);
  CHECK(report.ranks[0].peak_memory_at_ns == 9 * ms);
}

TEST_CASE("random jobs: each iteration's path sums to its time, and what is on it delays the end") {
  const char* model = GENERATE("gloo", "nccl", "conservative");
  std::minstd_rand random(GENERATE(range(1, 16)));
  const auto up_to = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  const int world = 2 + static_cast<int>(up_to(5));
  Program job(world, model);
  std::vector<std::vector<std::int32_t>> open(static_cast<std::size_t>(world));
  const Op ops[] = {Op::kAllReduce, Op::kBroadcast, Op::kGather, Op::kScatter, Op::kAllToAll, Op::kBarrier};
  for (int i = 0; i < 60; ++i) {
    const Op op = ops[up_to(6)];
    const int root = static_cast<int>(up_to(world)), shift = 1 + static_cast<int>(up_to(world - 1));
    const bool messages = up_to(3) == 0, waits = up_to(3) == 0;
    for (int r = 0; r < world; ++r) {
      auto& works = open[static_cast<std::size_t>(r)];
      if (i % 20 == 0) job[r].mark();
      job[r].compute(1 + up_to(3 * ms));
      if (messages) {
        works.push_back(job[r].issue({.op = Op::kSend, .service = up_to(ms), .peer = (r + shift) % world}));
        works.push_back(job[r].issue({.op = Op::kRecv, .service = up_to(ms), .peer = (r + world - shift) % world}));
      } else {
        works.push_back(job[r].issue({.op = op, .service = up_to(5 * ms), .peer = is_rooted(op) ? root : -1}, 100));
      }
      if (!waits) continue;
      job[r].wait(works);
      works.clear();
    }
  }
  const ExecutionGraph graph = job.graph();
  const ReplayReport report = analysed(graph);
  check_path(report);
  // Without marks the path is of the whole job: a span on it that lasts 1 us longer makes the job longer by that.
  for (auto& rank : job.ranks) rank.record.marks.clear();
  const ExecutionGraph unmarked = job.graph();
  const ReplayReport whole = analysed(unmarked);
  check_path(whole);
  for (const Hop& hop : path_of(whole, 0)) {
    if (graph.class_view(graph.class_of(hop.rank)).node_kind[hop.node] != 0) continue;
    const ReplayReport longer = replay_of(unmarked, {.edits = {{.rank = hop.rank, .node = hop.node, .add_ns = 1000}}});
    CHECK(longer.critical_path_ns >= whole.critical_path_ns + 1000);
  }
}

TEST_CASE("a record is analysed as it is, and like its replay") {
  // Rank 0 waits from 10 to 46, of which 30 ms for rank 1, 5 for the transfer, 1 to wake up.
  Program job(2);
  for (int r = 0; r < 2; ++r) {
    job[r].compute((r == 0 ? 10 : 40) * ms);
    job[r].blocking({.service = 5 * ms});
    job[r].record.nodes[3].duration_ns = (r == 0 ? 36 : 5) * ms;
  }
  const ExecutionGraph graph = job.graph();
  auto report = as_recorded(graph);
  REQUIRE(report.ok());
  check_path(*report);
  CHECK(report->timelines[0].duration_ns[3] == 36 * ms);
  CHECK(report->ranks[0].waiting_ns == 30 * ms);
  CHECK(report->ranks[0].exposed_comm_ns == 6 * ms);
  CHECK(report->analysis->collectives.late_rank == std::vector<std::int32_t>{1});
  CHECK(path_of(*report, 0) == std::vector<Hop>{{1, 0, 40 * ms}, {0, 2, 5 * ms}, {0, 3, 1 * ms}});
  CHECK(path_of(*report, 0) == path_of(analysed(graph), 0));
}

TEST_CASE("in a record a message may have been sent while its issue had not returned") {
  // Rank 0 computes 10 ms; its send returns after 2 ms more, when rank 1 has had the message for 1 ms.
  Program job(2);
  job[0].compute(10 * ms);
  job[0].issue({.op = Op::kSend, .peer = 1}, 2 * ms);
  job[1].blocking({.op = Op::kRecv, .peer = 0, .recorded_end = 11 * ms});
  job[1].record.nodes[2].duration_ns = 11 * ms;
  job[1].compute(5 * ms);
  job[1].record.nodes[3].start_ns = 11 * ms;
  auto report = as_recorded(job.graph());
  REQUIRE(report.ok());
  check_path(*report);
  CHECK(path_of(*report, 0) == std::vector<Hop>{{0, 0, 10 * ms}, {0, 1, 1 * ms}, {1, 3, 5 * ms}});
}

TEST_CASE("a collective to which somebody never comes, and for which nobody waits, is no late-comer's") {
  Program job(2);
  for (int r = 0; r < 2; ++r) {
    job[r].compute(3 * ms);
    job[r].blocking({.service = 2 * ms});
  }
  job[0].issue({});
  job[0].compute(1 * ms);
  const ReplayReport report = analysed(job.graph());
  CHECK(report.analysis->collectives.members == std::vector<std::uint32_t>{2});
  CHECK(report.analysis->collectives.waited_ns == std::vector<std::int64_t>{0});
  CHECK(report.analysis->parts[0].start_ns == std::vector<std::int64_t>{3 * ms, INT64_MIN});
  CHECK(path_of(report, 0) == std::vector<Hop>{{0, 0, 3 * ms}, {0, 2, 2 * ms}, {0, 6, 1 * ms}});
  // Without an issue it was not even asked for.
  job[0].record.edges.pop_back();
  CHECK(analysed(job.graph()).analysis->collectives.members == std::vector<std::uint32_t>{2});
}
