// What-ifs of transfers and of waits: how long the job then takes, by arithmetic.
#include "program.hpp"

using namespace prism;
using namespace prism::test;

namespace {

// Two iterations on two ranks: backward (10 ms), an asynchronous all_reduce of `service`, more backward (6 ms) that may
// hide it, the wait, an optimizer (2 ms), a span "log" (1 ms).
Program loop(std::int64_t service) {
  Program job(2);
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < 2; ++i) {
      job[r].mark();
      job[r].compute(10 * ms, "backward.0");
      const auto work = job[r].issue({.service = service});
      job[r].compute(6 * ms, "backward.1");
      job[r].wait({work});
      job[r].compute(2 * ms, "optimizer");
      job[r].compute(1 * ms, "log");
    }
    job[r].mark();
    job[r].compute(1 * ms);
  }
  return job;
}

std::vector<std::int64_t> times(const ReplayReport& report) {
  std::vector<std::int64_t> result;
  for (const auto& iteration : report.iterations) result.push_back(iteration.time_ns);
  return result;
}
using Times = std::vector<std::int64_t>;

Times with_spans(const ExecutionGraph& graph, SpanEdit edit) { return times(replay_of(graph, {.edits = {edit}})); }
Times with_transfers(const ExecutionGraph& graph, CommunicationEdit edit) {
  return times(replay_of(graph, {.communications = {edit}}));
}
Times with_overlap(const ExecutionGraph& graph, const std::vector<OverlapEdit>& edits) {
  auto moved = overlapped(graph, edits);
  INFO((moved ? std::string() : moved.error().message));
  REQUIRE(moved.ok());
  CHECK(validate(*moved).ok());
  return times(replay_of(*moved));
}

}  // namespace

TEST_CASE("spans are chosen by pattern of name, ranges of ranks and class, and set") {
  const ExecutionGraph graph = loop(4 * ms).graph();  // hidden behind 6 ms: 10 + 6 + 2 + 1
  CHECK(times(replay_of(graph)) == Times(2, 19 * ms));
  CHECK(with_spans(graph, {.name = "backward.*", .scale = 2}) == Times(2, 35 * ms));
  CHECK(with_spans(graph, {.name = "backward.[1]", .set_ns = 3 * ms}) == Times(2, (10 + 4 + 3) * ms));
  CHECK(with_spans(graph, {.name = "optimizer", .add_ns = ms, .set_ns = 5 * ms}) == Times(2, 23 * ms));
  CHECK(with_spans(graph, {.name = "optimizer", .scale = 0.7}) == Times(2, 18'400'000));
  CHECK(with_spans(graph, {.name = "log", .scale = 3, .ranks = {{0, 0}, {1, 7}}}) == Times(2, 21 * ms));
  CHECK(with_spans(graph, {.name = "log", .scale = 3, .cls = 0}) == Times(2, 21 * ms));
  CHECK(replay(graph, {.edits = {{.cls = 1}}}).error().message ==
        "edit 0 (class 1): matches no compute span of the graph");
  CHECK(replay(graph, {.edits = {{.name = "x*", .ranks = {{0, 3}, {5, 5}}}}}).error().message ==
        "edit 0 (ranks 0-3,5 name 'x*'): matches no compute span of the graph");
}

TEST_CASE("transfers are scaled, set and lengthened, in the iterations and the groups that are named") {
  const ExecutionGraph graph = loop(8 * ms).graph();  // 8 ms, of which 6 are hidden: 10 + 8 + 2 + 1
  CHECK(times(replay_of(graph)) == Times(2, 21 * ms));
  CHECK(with_transfers(graph, {.scale = 0.5}) == Times(2, 19 * ms));
  CHECK(with_transfers(graph, {.iteration = 1, .op = "all_red*", .add_ns = 5 * ms}) == Times{21 * ms, 26 * ms});
  CHECK(with_transfers(graph, {.group = "world", .scale = 2, .set_ns = 10 * ms}) == Times(2, 33 * ms));
  // Who takes part is enough, and all members are held.
  CHECK(with_transfers(graph, {.ranks = {{1, 1}}, .scale = 2}) == Times(2, 29 * ms));
  CHECK(replay(graph, {.communications = {{.op = "send"}}}).error().message ==
        "communication 0 (op 'send'): matches no communication of the graph");
}

TEST_CASE("a message changes for both ends when one of them is named") {
  Program job(3);
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(0, 2)}) {
    job[from].issue({.op = Op::kSend, .service = 2 * ms, .peer = to});
    job[to].blocking({.op = Op::kRecv, .service = 2 * ms, .peer = from});
  }
  const auto ends = [&](std::vector<RankRange> ranks) {
    const auto report = replay_of(job.graph(), {.communications = {{.ranks = std::move(ranks), .scale = 3}}});
    return Times{end_of(report, 1, 2), end_of(report, 2, 2)};
  };
  CHECK(ends({{1, 1}}) == Times{6 * ms, 2 * ms});
  CHECK(ends({{0, 0}}) == Times{6 * ms, 6 * ms});
}

TEST_CASE("an edit of sends is one of messages: it changes both ends") {
  // Rank 0 sends to 1 and to 2; rank 2 takes what comes, whoever sends it.
  Program job(3);
  for (int to : {1, 2}) job[0].blocking({.op = Op::kSend, .service = 2 * ms, .peer = to});
  job[1].blocking({.op = Op::kRecv, .service = 2 * ms, .peer = 0});
  job[2].blocking({.op = Op::kRecv, .service = 2 * ms, .peer = -1, .recorded_end = 2 * ms});
  const auto ends = [&](CommunicationEdit edit) {
    const auto report = replay_of(job.graph(), {.communications = {std::move(edit)}});
    return Times{end_of(report, 0, 2), end_of(report, 1, 2), end_of(report, 0, 5), end_of(report, 2, 2)};
  };
  CHECK(ends({}) == Times{2 * ms, 2 * ms, 4 * ms, 4 * ms});
  CHECK(ends({.op = "send", .scale = 3}) == Times{6 * ms, 6 * ms, 12 * ms, 12 * ms});
  CHECK(ends({.op = "recv", .scale = 3}) == Times{6 * ms, 6 * ms, 12 * ms, 12 * ms});
  CHECK(ends({.scale = 3}) == Times{6 * ms, 6 * ms, 12 * ms, 12 * ms});
  CHECK(ends({.ranks = {{2, 2}}, .op = "send", .scale = 3}) == Times{2 * ms, 2 * ms, 8 * ms, 8 * ms});
  CHECK(ends({.ranks = {{1, 1}}, .op = "send", .add_ns = ms}) == Times{3 * ms, 3 * ms, 5 * ms, 5 * ms});
}

TEST_CASE("transfers of a closed form are edited too, those on a network refused") {
  Program job(2);
  for (int r = 0; r < 2; ++r) job[r].blocking({.bytes = 1000});
  const ClosedFormLinks links{.latency_ns = 500, .bytes_per_second = 1e9};
  // A ring of two: 2 steps of 500 ns and 500 bytes.
  CHECK(replay_of(job.graph(false), {.communications = {{.scale = 3}}, .links = links}).critical_path_ns == 6000);
  const auto network = simulate::Topology::one_switch(2, 1e9, 0);
  auto refused =
      replay(job.graph(), {.communications = {{.scale = 3}}, .network = NetworkOptions{.topology = &network}});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("on a network") == 0);
}

TEST_CASE("without overlap an all_reduce takes its whole time, from its issue on") {
  // 10 + 8, then 6 + 2 + 1 with nothing left to wait for.
  CHECK(with_overlap(loop(8 * ms).graph(), {{.until = OverlapEdit::Until::kIssue}}) == Times(2, 27 * ms));
  CHECK(with_overlap(loop(8 * ms).graph(), {{.until = OverlapEdit::Until::kIssue, .iteration = 1}}) ==
        Times{21 * ms, 27 * ms});
}

TEST_CASE("an all_reduce that may overlap until a span, or until the iteration's end") {
  // 20 ms of transfer begin at 10. Waited for before "log" it hides 6 + 2 ms: 10 + 20 + 1; at the iteration's end 9.
  const ExecutionGraph graph = loop(20 * ms).graph();
  CHECK(times(replay_of(graph)) == Times(2, 33 * ms));
  CHECK(with_overlap(graph, {{.until = OverlapEdit::Until::kSpan, .span = "log"}}) == Times(2, 31 * ms));
  CHECK(with_overlap(graph, {{.until = OverlapEdit::Until::kIterationEnd}}) == Times(2, 30 * ms));
  // There and back.
  CHECK(with_overlap(graph, {{.until = OverlapEdit::Until::kIterationEnd}, {.until = OverlapEdit::Until::kIssue}}) ==
        Times(2, (10 + 20 + 9) * ms));
}

TEST_CASE("a moved wait takes the time to wake up along") {
  // As recorded: rank 0's wait ended 0.5 ms after the transfer, which ended at 18.
  Program job = loop(8 * ms);
  auto& wait = job[0].record.nodes[4];
  REQUIRE(wait.kind == NodeKind::kWait);
  wait.duration_ns = 18 * ms + ms / 2 - wait.start_ns;
  CHECK(times(replay_of(job.graph())) == Times(2, 21 * ms + ms / 2));  // rank 1 waits for rank 0 in the next one
  CHECK(with_overlap(job.graph(), {{.until = OverlapEdit::Until::kIssue}})[0] == 27 * ms + ms / 2);
  // 10 + 6 + 2 + 1 of the rank's own; the transfer has ended at 18 of them.
  CHECK(with_overlap(job.graph(), {{.until = OverlapEdit::Until::kIterationEnd}})[0] == 19 * ms + ms / 2);
}

TEST_CASE("one of several collectives that a wait covers can be moved alone") {
  Program job(2);
  for (int r = 0; r < 2; ++r) {
    job[r].record.groups.push_back({"tp", {0, 1}});
    const auto first = job[r].issue({.service = 3 * ms});
    const auto second = job[r].issue({.service = 9 * ms, .group = 1});
    job[r].wait({first, second});
    job[r].compute(5 * ms, "optimizer");
  }
  CHECK(times(replay_of(job.graph())) == Times{14 * ms});
  CHECK(with_overlap(job.graph(), {{.until = OverlapEdit::Until::kIterationEnd, .group = "tp"}}) == Times{9 * ms});
  CHECK(with_overlap(job.graph(), {{.until = OverlapEdit::Until::kIterationEnd, .group = "world"}}) == Times{14 * ms});
}

TEST_CASE("waits move on their own lane where the nodes of two lanes stand mixed") {
  // Main computes (10 ms), issues, computes (6), waits, steps (2); a second thread computes 1 ms at a time meanwhile.
  // A file may hold the nodes lane after lane, or in order of time.
  const auto job = [](bool mixed) {
    Program both(2);
    for (int r = 0; r < 2; ++r) {
      RankProgram& rank = both[r];
      const auto beside = [&] {
        if (!mixed) return;
        rank.lane("second");
        rank.compute(1 * ms, "beside");
        rank.lane("main");
      };
      rank.mark();
      rank.compute(10 * ms, "backward.0");
      beside();
      const auto work = rank.issue({.service = 20 * ms});
      beside();
      rank.compute(6 * ms, "backward.1");
      beside();
      rank.wait({work});
      beside();
      rank.compute(2 * ms, "optimizer");
      beside();
      rank.compute(1 * ms, "log");
      beside();
      rank.mark();
      rank.compute(1 * ms);
      beside();
      if (mixed) continue;
      rank.lane("second");
      for (int i = 0; i < 7; ++i) rank.compute(1 * ms, "beside");
    }
    return both.graph();
  };
  for (const auto& [edit, expected] :
       {std::pair(OverlapEdit{.until = OverlapEdit::Until::kIssue}, 10 + 20 + 6 + 2 + 1),
        std::pair(OverlapEdit{.until = OverlapEdit::Until::kIterationEnd}, 10 + 20),
        std::pair(OverlapEdit{.until = OverlapEdit::Until::kSpan, .span = "log"}, 10 + 20 + 1)})
    for (const bool mixed : {false, true}) {
      INFO("until " << static_cast<int>(edit.until) << (mixed ? ", mixed" : ""));
      CHECK(with_overlap(job(mixed), {edit})[0] == expected * ms);
    }
}

TEST_CASE("a wait at the end of its lane's last iteration stays on its lane, whatever stands behind") {
  for (const bool mixed : {false, true}) {
    Program job(2);
    for (int r = 0; r < 2; ++r) {
      job[r].compute(10 * ms);
      const auto work = job[r].issue({.service = 20 * ms});
      job[r].wait({work});
      if (mixed) job[r].lane("second"), job[r].compute(1 * ms), job[r].lane("main");
      job[r].compute(5 * ms);
      job[r].lane("second"), job[r].compute(1 * ms);
    }
    const auto moved = overlapped(job.graph(), {{.until = OverlapEdit::Until::kIterationEnd}});
    REQUIRE(moved.ok());
    const auto& view = moved->class_view(0);
    std::vector<NodeKind> main;  // in program order
    for (std::size_t node = 0; node < view.node_kind.size(); ++node)
      if (view.node_lane[node] == 0) main.push_back(static_cast<NodeKind>(view.node_kind[node]));
    CHECK(main == std::vector{NodeKind::kCompute, NodeKind::kIssue, NodeKind::kTransfer, NodeKind::kWait,
                              NodeKind::kCompute, NodeKind::kWait});
    CHECK(replay_of(*moved).critical_path_ns == 30 * ms);
  }
}

TEST_CASE("a span that no rank has is not waited for: the error lists those that there are") {
  auto unknown = overlapped(loop(8 * ms).graph(), {{.until = OverlapEdit::Until::kSpan, .span = "optimiser"}});
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().message ==
        "overlap 0 (all communication): until_span = 'optimiser' is the name of no compute span; accepted: backward.0, "
        "backward.1, log, optimizer");
  Program nameless(1);
  nameless[0].compute(ms);
  CHECK(overlapped(nameless.graph(), {{.until = OverlapEdit::Until::kSpan, .span = "x"}}).error().message ==
        "overlap 0 (all communication): until_span = 'x' is the name of no compute span; the trace has no names");
}

TEST_CASE("an overlap that moves nothing is an error") {
  const ExecutionGraph graph = loop(8 * ms).graph();
  for (const OverlapEdit& edit :
       {OverlapEdit{.until = OverlapEdit::Until::kSpan, .span = "nothing"},
        OverlapEdit{.until = OverlapEdit::Until::kSpan, .span = "optimizer"},  // it does so already
        OverlapEdit{.op = "broadcast"}, OverlapEdit{.ranks = {{7, 9}}}, OverlapEdit{.iteration = 4}}) {
    auto moved = overlapped(graph, {edit});
    REQUIRE_FALSE(moved.ok());
    CHECK(moved.error().code == ErrorCode::kInvalidInput);
    CHECK(moved.error().message.find("overlap 0 (") == 0);
  }
}

TEST_CASE("a transfer that nobody issues is left alone") {
  Program job = loop(8 * ms);
  for (auto& rank : job.ranks)
    std::erase_if(rank.record.edges, [&](const auto& edge) { return edge.dst == rank.transfers[0]; });
  auto moved = overlapped(job.graph(), {{.until = OverlapEdit::Until::kIssue, .iteration = 0}});
  REQUIRE_FALSE(moved.ok());
  CHECK(moved.error().message == "overlap 0 (iteration 0): moves no wait for a collective");
}
