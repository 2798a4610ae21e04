// Ranks that were timed again, put onto a timeline.
#include "calibrate/realign.hpp"

#include <random>

#include "calibrate/timed.hpp"
#include "simulate/topology.hpp"

using namespace prism;
using namespace prism::test;

namespace {

// Replicas that do not meet: pairs of stages, a message forth and one back, then the two replicas' barrier if `meet`.
Program pipelines(int pairs, int iterations, const std::vector<std::int64_t>& compute_ms, const char* model = "gloo") {
  Program job(2 * pairs, model);
  for (int r = 0; r < 2 * pairs; ++r) {
    const bool first = r % 2 == 0;
    const int other = first ? r + 1 : r - 1;
    for (int i = 0; i < iterations; ++i) {
      job[r].mark();
      if (!first) job[r].blocking({.op = Op::kRecv, .peer = other, .bytes = 1'000'000});
      job[r].compute(compute_ms[static_cast<std::size_t>(r)] * ms);
      job[r].blocking({.op = Op::kSend, .peer = other, .bytes = 1'000'000});
      if (first) job[r].blocking({.op = Op::kRecv, .peer = other, .bytes = 1'000'000});
    }
  }
  return job;
}

Realignment onto(const ExecutionGraph& base, const ExecutionGraph& timed, const std::vector<int>& ranks,
                 const std::optional<NetworkOptions>& network = {}) {
  auto realigned = realign(base, timed, ranks, network);
  INFO((realigned ? std::string() : realigned.error().message));
  REQUIRE(realigned.ok());
  return *realigned;
}

void check_as_from_scratch(const Realignment& realigned, const Calibration& scratch) {
  REQUIRE(realigned.report.timelines.size() == scratch.report.timelines.size());
  for (std::size_t rank = 0; rank < scratch.report.timelines.size(); ++rank) {
    INFO("rank " << rank);
    CHECK(realigned.report.timelines[rank].start_ns == scratch.report.timelines[rank].start_ns);
    CHECK(realigned.report.timelines[rank].duration_ns == scratch.report.timelines[rank].duration_ns);
  }
}

}  // namespace

TEST_CASE("only what is downstream is computed again") {
  auto before = pipelines(4, 1, {3, 4, 3, 4, 3, 4, 3, 4}), after = pipelines(4, 1, {3, 4, 9, 4, 3, 4, 3, 4});
  const auto base = slices(before), timed = slices(after);
  const auto calibrated = trace_of(base, calibration_of(base));
  const auto realigned = onto(calibrated, timed, {2});
  check_as_from_scratch(realigned, calibration_of(timed));
  CHECK(realigned.report.iterations[0].time_ns == (9 + 1 + 4 + 1) * ms);
  // Ranks 2 and 3 of eight; what they did before the change is theirs as well.
  CHECK(realigned.nodes == 4 * (7 + 7));
  CHECK(realigned.visited > 0);
  CHECK(realigned.visited <= 7 + 7);
  const auto trace = realigned_trace(calibrated, realigned);
  REQUIRE(trace.ok());
  CHECK(replay_of(*trace).iterations[0].time_ns == (9 + 1 + 4 + 1) * ms);
}

TEST_CASE("a change within the slack goes no further") {
  Program fast(2), slow(2);
  for (auto* job : {&fast, &slow})
    for (int r = 0; r < 2; ++r)
      for (int i = 0; i < 10; ++i) {
        (*job)[r].mark();
        (*job)[r].compute(r == 0 ? 10 * ms : (job == &fast ? 5 : 7) * ms);
        (*job)[r].blocking({.op = Op::kBarrier});
      }
  const auto base = slices(fast);
  const auto realigned = onto(trace_of(base, calibration_of(base)), slices(slow), {1});
  check_as_from_scratch(realigned, calibration_of(slices(slow)));
  // Of each iteration the span, its issue, both parts of the barrier and the own wait; nothing else of rank 0.
  CHECK(realigned.visited == 10 * (1 + 1 + 2 + 1));
  CHECK(realigned.nodes == 10 * (4 + 4));
}

TEST_CASE("random jobs: equal to calibrating from scratch") {
  std::minstd_rand random(3);
  const auto up_to = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  const Op ops[] = {Op::kAllReduce, Op::kBroadcast, Op::kGather, Op::kAllToAllSingle};
  const auto topology = simulate::Topology::one_switch(8, 1e9, 1000);
  for (const char* model : {"gloo", "nccl", "conservative"})
    for (int round = 0; round < 15; ++round) {
      const int world = 3 + static_cast<int>(up_to(4)), changed = static_cast<int>(up_to(world));
      Program job(world, model), again(world, model);
      std::vector<std::vector<std::int32_t>> open(static_cast<std::size_t>(world));
      for (int i = 0; i < 30; ++i) {
        const Op op = ops[up_to(4)];
        const int root = static_cast<int>(up_to(world)), shift = 1 + static_cast<int>(up_to(world - 1));
        const bool messages = up_to(3) == 0, waits = up_to(3) == 0 || i == 29;
        for (int r = 0; r < world; ++r) {
          auto& works = open[static_cast<std::size_t>(r)];
          const auto span = up_to(3 * ms), other = r == changed ? up_to(3 * ms) : span;
          for (auto* one : {&job, &again}) {
            (*one)[r].compute(one == &job ? span : other);
            const auto keep = [&](std::int32_t comm) {
              if (one == &job) works.push_back(comm);
            };
            if (messages) {
              keep((*one)[r].issue({.op = Op::kSend, .peer = (r + shift) % world, .bytes = 1000}));
              keep((*one)[r].issue({.op = Op::kRecv, .peer = (r + world - shift) % world, .bytes = 1000}));
            } else {
              keep((*one)[r].issue({.op = op, .peer = is_rooted(op) ? root : -1, .bytes = 3'000'000}));
            }
            if (waits) (*one)[r].wait(works);
          }
          if (waits) works.clear();
        }
      }
      INFO(model << ", round " << round);
      const auto base = slices(job), timed = slices(again);
      const auto calibrated = trace_of(base, calibration_of(base));
      check_as_from_scratch(onto(calibrated, timed, {changed}), calibration_of(timed));
      // Onto slices: what was timed again, to be calibrated.
      const auto joined = realigned_trace(base, onto(base, timed, {changed}));
      REQUIRE(joined.ok());
      check_as_from_scratch(onto(calibrated, timed, {changed}), calibration_of(*joined));
      auto options = at_1_gigabyte_per_second();
      options.network = NetworkOptions{.topology = &topology};
      const auto shared = trace_of(base, calibration_of(base, options));
      const auto everything = onto(shared, timed, {changed}, options.network);
      check_as_from_scratch(everything, calibration_of(timed, options));
      CHECK(everything.visited == everything.nodes);
    }
}

TEST_CASE("another structure is refused with the first difference") {
  auto before = pipelines(1, 2, {3, 4}), after = pipelines(1, 2, {3, 4});
  after[1].blocking({.op = Op::kBarrier});
  const auto base = slices(before);
  const auto refused = realign(trace_of(base, calibration_of(base)), slices(after), {1});
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kMismatch);
  CHECK(refused.error().message.find("the structure has changed: rank 1") == 0);
  CHECK(refused.error().message.find("nothing more, and barrier where it was timed again") != std::string::npos);
  // Of a rank that was not timed again it does not matter.
  CHECK(realign(trace_of(base, calibration_of(base)), slices(after), {0}).ok());
  CHECK(realign(base, base, {2}).error().message == "rank 2; accepted: 0 to 1");
  CHECK(realign(base, base, {}).error().message == "no ranks were timed again");
}
