// Real ranks that go on beyond the record of the others.
#include "replay/emulation.hpp"

#include <fmt/format.h>

#include <map>
#include <set>

#include "replay/outside.hpp"
#include "replay/training.hpp"
#include "simulate/topologies.hpp"

using namespace prism;
using namespace prism::test;

namespace {

// An emulation, as real ranks see it that do what `all` has.
class Beside {
 public:
  using Released = Emulation::Released;
  Beside(Emulation& emulation, const engine::Job& all) : emulation_(emulation), all_(all) {}

  Result<void> arrived(int rank, std::uint32_t comm, std::int64_t at_ns) {
    PRISM_ASSIGN_OR_RETURN(const auto number, emulation_.find(rank, call(rank, comm)));
    comm_of_[{rank, number}] = comm;
    return emulation_.arrived(rank, number, at_ns);
  }
  Result<void> advance(std::int64_t until_ns, std::vector<Released>& released) {
    PRISM_RETURN_IF_ERROR(emulation_.advance(until_ns, released));
    for (auto& one : released) one.comm = comm_of_.at({one.rank, one.comm});
    return {};
  }

 private:
  Emulation::Call call(int rank, std::uint32_t comm) const {
    const ClassView& view = all_.view(rank);
    const auto op = static_cast<Op>(view.comm_op[comm]);
    const auto peer = view.comm_peer[comm];
    Emulation::Call call{.group = all_.graph->group_name(all_.graph->group_of_slot(rank, view.comm_group[comm])),
                         .op = op,
                         .tag = view.comm_tag[comm],
                         .number = view.comm_seq[comm],
                         .input_bytes = view.comm_input_bytes[comm],
                         .output_bytes = view.comm_output_bytes[comm]};
    if (is_point_to_point(op) && peer >= 0)
      call.peer = all_.graph->rank_of_peer_slot(rank, static_cast<std::uint32_t>(peer));
    if (is_rooted(op)) call.root = peer;
    return call;
  }
  Emulation& emulation_;
  const engine::Job& all_;
  std::map<std::pair<int, std::uint32_t>, std::uint32_t> comm_of_;  // by number
};

// Real ranks do what `whole` has, others what `record` has, and beyond it. The ends of their nodes, by rank.
std::map<int, std::vector<std::int64_t>> emulate(const Program& record, const Program& whole,
                                                 const std::vector<int>& real, const std::vector<SpanEdit>& edits = {},
                                                 const std::optional<NetworkOptions>& network = {}) {
  const auto all = Program(whole).graph(false);
  const auto job = engine::prepare(all).value();
  const auto durations = engine::Durations::make(job, edits).value();
  const auto emulation = Emulation::make(Program(record).graph(false), {.sandbox = real, .network = network}).value();
  Beside beside(*emulation, job);
  std::vector<Outside> programs;
  for (const int rank : real) programs.emplace_back(job, durations, rank);
  drive(beside, programs);
  CHECK(emulation->late_ns() == 0);
  std::map<int, std::vector<std::int64_t>> ends;
  for (auto& program : programs) {
    CHECK(program.ended());
    CHECK(emulation->first_left(program.rank()).empty());
    ends[program.rank()] = std::move(program.end_ns);
  }
  return ends;
}

void check_equal(const std::map<int, std::vector<std::int64_t>>& ends, const ReplayReport& whole) {
  for (const auto& [rank, own] : ends)
    for (std::uint32_t node = 0; node < own.size(); ++node) CHECK(own[node] == end_of(whole, rank, node));
}

// Iterations of spans of `span` and an all-reduce; behind them what is said.
Program reducing(int iterations, const std::vector<CommSpec>& behind = {}, std::int64_t span = ms) {
  Program job(2);
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < iterations; ++i) {
      job[r].mark();
      job[r].compute(r == 0 ? ms / 2 : span);
      job[r].blocking({.op = Op::kAllReduce, .bytes = 8});
      job[r].blocking({.op = Op::kBroadcast, .peer = 0, .bytes = 8});
    }
    for (const auto& spec : behind) job[r].blocking(spec);
  }
  return job;
}

Emulation::Call reduce(std::int64_t number) {
  return {.group = "world", .op = Op::kAllReduce, .number = number, .input_bytes = 8, .output_bytes = 8};
}
Emulation::Call broadcast(std::int64_t number) {
  return {.group = "world", .op = Op::kBroadcast, .root = 0, .number = number, .input_bytes = 8, .output_bytes = 8};
}

}  // namespace

TEST_CASE("real ranks that go on beyond the record end when they do among ranks that were recorded as long") {
  for (unsigned seed = 0; seed < 8; ++seed)
    for (const char* model : {"nccl", "gloo"})
      for (const auto& real : {std::vector<int>{1}, std::vector<int>{0, 2}}) {
        INFO(model << ", seed " << seed << ", " << real.size() << " real");
        const TrainingJob job({.seed = seed,
                               .model = model,
                               .ranks = 3 + static_cast<int>(seed % 4),
                               .period = seed % 3 == 2 ? 2 : 1,
                               .closed = seed % 2 == 0,
                               .threads = false});
        const auto record = job.program(4), whole = job.program(10);
        const auto topology = simulate::Topology::one_switch(3 + static_cast<int>(seed % 4), 1e9, 2'000'000);
        const NetworkOptions shared{.topology = &topology};
        // A real rank that takes longer in the eighth iteration.
        const std::vector<SpanEdit> late{{.rank = real[0], .iteration = 7, .scale = 1, .add_ns = 5 * ms}};
        for (const auto& edits : {std::vector<SpanEdit>(), late})
          for (const auto& network : {std::optional<NetworkOptions>(), std::optional(shared)})
            check_equal(emulate(record, whole, real, edits, network),
                        replay_of(Program(whole).graph(false), {.edits = edits, .network = network}));
      }
}

TEST_CASE("what follows the last iteration is there after as many as real ranks have done") {
  const CommSpec metric{.op = Op::kAllReduce, .bytes = 4}, gathered{.op = Op::kAllGather, .bytes = 64};
  for (const int iterations : {3, 4, 5, 9}) {
    const auto record = reducing(3, {gathered, metric}, 3 * ms),
               whole = reducing(iterations, {gathered, metric}, 3 * ms);
    check_equal(emulate(record, whole, {0}), replay_of(Program(whole).graph(false)));
  }
}

TEST_CASE("what looks like the end of the record may be the next iteration") {
  // The record ends with what each iteration begins with.
  const std::vector<CommSpec> end{{.op = Op::kAllReduce, .bytes = 8}};
  const auto emulation = Emulation::make(reducing(3, end).graph(false), {.sandbox = {0}}).value();
  std::vector<std::uint32_t> numbers;
  std::vector<Emulation::Released> released;
  std::int64_t now = 0;
  const auto issue = [&](const Emulation::Call& call) {
    now += ms / 2;
    REQUIRE(emulation->advance(now, released));
    const auto number = emulation->find(0, call);
    REQUIRE(number);
    numbers.push_back(*number);
    REQUIRE(emulation->arrived(0, *number, now));
    released.clear();
    while (released.empty()) REQUIRE(emulation->advance(INT64_MAX, released));
    CHECK(released.size() == 1);
    CHECK(released[0].comm == *number);
    now = std::max(now, released[0].at_ns);
  };
  for (int i = 0; i < 3; ++i) issue(reduce(2 * i)), issue(broadcast(2 * i + 1));
  CHECK(emulation->left_of(0) == 1);
  issue(reduce(6));
  CHECK(emulation->first_left(0).empty());
  CHECK(emulation->is_recorded(0, numbers.back()));
  issue(broadcast(7));
  CHECK_FALSE(emulation->is_recorded(0, numbers.back()));
  CHECK(emulation->describe(0, numbers.back()) == "broadcast 7 of group 'world' (root 0, 8 bytes in, 8 out)");
  CHECK(emulation->first_left(0) == "rank 0 has not issued all_reduce 8 of group 'world' (8 bytes in, 8 out)");
  issue(reduce(8));  // the end, or the next iteration
  CHECK(emulation->first_left(0).empty());
  issue(broadcast(9));
  issue(reduce(10));
  CHECK(emulation->first_left(0).empty());
  CHECK(std::set<std::uint32_t>(numbers.begin(), numbers.end()).size() == numbers.size());
}

TEST_CASE("what a program issues beyond the record is what is repeated, or the difference is told") {
  const auto told = [](const std::vector<Emulation::Call>& calls, const Program& record, bool warn = false) {
    const auto emulation = Emulation::make(Program(record).graph(false), {.sandbox = {0}, .warn_on_divergence = warn});
    for (std::size_t i = 0; i + 1 < calls.size(); ++i) REQUIRE((*emulation)->find(0, calls[i]));
    const auto last = (*emulation)->find(0, calls.back());
    return last ? fmt::format("{}; {} differences", *last, (*emulation)->differences().size()) : last.error().message;
  };
  const auto record = reducing(2);
  std::vector<Emulation::Call> calls{reduce(0), broadcast(1), reduce(2), broadcast(3), reduce(4)};
  const auto and_then = [&](Emulation::Call call) {
    auto all = calls;
    all.push_back(call);
    return all;
  };
  CHECK(told(calls, record) == "4; 0 differences");
  CHECK(
      told(and_then(reduce(4)), record).find("rank 0 issues all_reduce 4 of group 'world' (8 bytes in, 8 out) twice") ==
      0);
  CHECK(told(and_then(reduce(5)), record) ==
        "rank 0: the program issues all_reduce 5 of group 'world' (8 bytes in, 8 out); the trace has broadcast 5 of "
        "group "
        "'world' (root 0, 8 bytes in, 8 out)");
  CHECK(
      told(and_then(broadcast(7)), record) ==
      "rank 0: the program issues broadcast 7 of group 'world' (root 0, 8 bytes in, 8 out); the trace has broadcast 5 "
      "of group 'world' (root 0, 8 bytes in, 8 out) before it");
  auto larger = broadcast(5);
  larger.input_bytes = 16;
  CHECK(
      told(and_then(larger), record) ==
      "rank 0: the program issues broadcast 5 of group 'world' (root 0, 16 bytes in, 8 out); the trace has broadcast 5 "
      "of group 'world' (root 0, 8 bytes in, 8 out)");
  CHECK(told(and_then(larger), record, true) == "5; 1 differences");

  Program aperiodic(2);
  for (int r = 0; r < 2; ++r)
    for (const auto op : {Op::kAllReduce, Op::kAllGather}) {
      aperiodic[r].mark();
      aperiodic[r].compute(ms);
      aperiodic[r].blocking({.op = op, .bytes = 8});
    }
  const auto gather =
      Emulation::Call{.group = "world", .op = Op::kAllGather, .number = 1, .input_bytes = 8, .output_bytes = 8};
  CHECK(
      told({reduce(0), gather, reduce(2)}, aperiodic)
          .find("rank 0: the program issues all_reduce 2 of group 'world' (8 bytes in, 8 out); the trace has none of "
                "that number; the job does not go on beyond its record, as it is not periodic: rank 0: iteration 1 is "
                "no repetition of 0: node 5 issues something else than node 1 in its place") == 0);
}

TEST_CASE("virtual ranks that go on for ever do not hide that a real one cannot") {
  // Rank 2 has nothing to do with the others.
  Program job(3);
  for (int r = 0; r < 3; ++r)
    for (int i = 0; i < 2; ++i) {
      job[r].mark();
      job[r].compute(ms);
      if (r < 2) job[r].blocking({.op = r == 0 ? Op::kSend : Op::kRecv, .peer = 1 - r, .bytes = 8});
      if (r == 2) job[r].blocking({.op = Op::kSend, .peer = 2, .bytes = 8});
      if (r == 2) job[r].blocking({.op = Op::kRecv, .peer = 2, .bytes = 8});
    }
  const auto emulation = Emulation::make(job.graph(false), {.sandbox = {0, 1}}).value();
  std::vector<Emulation::Released> released;
  for (int i = 0; i < 3; ++i)
    for (const int rank : {0, 1}) {
      if (i == 2 && rank == 1) continue;  // never
      const auto op = rank == 0 ? Op::kSend : Op::kRecv;
      const auto number = emulation->find(
          rank, {.group = "world", .op = op, .peer = 1 - rank, .number = i, .input_bytes = 8, .output_bytes = 8});
      REQUIRE(number);
      REQUIRE(emulation->arrived(rank, *number, (10 * i + 5) * ms));
      REQUIRE(emulation->advance((10 * i + 9) * ms, released));
    }
  CHECK(released.size() == 4);
  for (int turn = 0; turn < 3; ++turn) REQUIRE(emulation->advance(INT64_MAX, released));
  CHECK(released.size() == 4);
  CHECK(emulation->explain_deadlock().code == ErrorCode::kDeadlock);
}
