// What holds for every job, tried on random ones.
#include <random>

#include "calibrate/executor.hpp"
#include "calibrate/measured.hpp"
#include "calibrate/timed.hpp"
#include "simulate/topology.hpp"

using namespace prism;
using namespace prism::test;

namespace {

using Timelines = std::vector<ReplayReport::Timeline>;

class Random {
 public:
  explicit Random(unsigned seed) : random_(seed) {}
  std::int64_t up_to(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<unsigned>(n)); }

 private:
  std::minstd_rand random_;
};

// Iterations of one structure: collectives that overlap, rooted ones, messages, a second lane. Every iteration's spans
// last `scale` times something of their own.
Program random_job(Random& random, const char* model, std::int64_t scale = 1) {
  const Op ops[] = {Op::kAllReduce, Op::kBroadcast, Op::kGather, Op::kAllToAllSingle, Op::kReduceScatterTensor};
  const int world = 2 + static_cast<int>(random.up_to(5));
  Program job(world, model);
  struct Event {
    Op op;
    int root, shift;
    bool messages, waits;
  };
  std::vector<Event> events;
  for (int i = 0; i < 8; ++i)
    events.push_back({ops[random.up_to(5)], static_cast<int>(random.up_to(world)),
                      1 + static_cast<int>(random.up_to(world - 1)), random.up_to(3) == 0, random.up_to(2) == 0});
  for (int r = 0; r < world; ++r) {
    std::vector<std::uint32_t> handed_over;
    for (int i = 0; i < 4; ++i) {
      job[r].mark();
      std::vector<std::int32_t> works;
      for (const auto& event : events) {
        job[r].compute(scale * (1 + random.up_to(3 * ms)));
        if (event.messages) {
          works.push_back(job[r].issue({.op = Op::kSend, .peer = (r + event.shift) % world, .bytes = 1000 * scale},
                                       scale * random.up_to(1000)));
          works.push_back(
              job[r].issue({.op = Op::kRecv, .peer = (r + world - event.shift) % world, .bytes = 1000 * scale}));
        } else {
          works.push_back(
              job[r].issue({.op = event.op, .peer = is_rooted(event.op) ? event.root : -1, .bytes = 10'000 * scale}));
        }
        if (!event.waits) continue;
        job[r].wait(works);
        works.clear();
      }
      if (!works.empty()) job[r].wait(works);
      handed_over.push_back(job[r].compute(scale * random.up_to(ms)));
    }
    job[r].mark();
    job[r].compute(1);
    job[r].lane("second");
    for (const auto node : handed_over) {
      const auto next = job[r].compute(scale * (1 + random.up_to(2 * ms)));
      job[r].record.edges.push_back({node, next});
    }
  }
  return job;
}

std::int64_t end_of(const Timelines& timelines, int rank, std::uint32_t node) {
  return timelines[rank].start_ns[node] + timelines[rank].duration_ns[node];
}

void check_dependencies(const ExecutionGraph& graph, const Timelines& timelines) {
  for (int rank = 0; rank < graph.world_size(); ++rank) {
    const auto& view = graph.class_view(graph.class_of(rank));
    std::vector<std::int64_t> lane(view.lane_name.size(), 0);
    for (std::uint32_t node = 0; node < view.node_kind.size(); ++node) {
      CHECK(timelines[rank].duration_ns[node] >= 0);
      if (static_cast<NodeKind>(view.node_kind[node]) == NodeKind::kTransfer) continue;
      CHECK(timelines[rank].start_ns[node] >= lane[view.node_lane[node]]);
      lane[view.node_lane[node]] = end_of(timelines, rank, node);
    }
    for (std::size_t e = 0; e < view.edge_src.size(); ++e) {
      const auto source = view.edge_src[e], target = view.edge_dst[e];
      const bool waits = static_cast<NodeKind>(view.node_kind[target]) == NodeKind::kWait;
      CHECK(end_of(timelines, rank, source) <=
            (waits ? end_of(timelines, rank, target) : timelines[rank].start_ns[target]));
    }
  }
  // Nobody is done with an all-reduce before everybody has issued it.
  std::map<std::int64_t, std::int64_t> last, earliest_end;
  for (const bool second : {false, true})
    for (int rank = 0; rank < graph.world_size(); ++rank) {
      const auto& view = graph.class_view(graph.class_of(rank));
      for (std::uint32_t node = 0; node < view.node_kind.size(); ++node) {
        if (static_cast<NodeKind>(view.node_kind[node]) != NodeKind::kTransfer) continue;
        const auto comm = static_cast<std::size_t>(view.node_comm[node]);
        if (static_cast<Op>(view.comm_op[comm]) != Op::kAllReduce) continue;
        auto& latest = last[view.comm_seq[comm]];
        if (second)
          CHECK(end_of(timelines, rank, node) >= latest);
        else
          latest = std::max(latest, timelines[rank].start_ns[node]);
      }
    }
}

void check_equal(const Timelines& a, const Timelines& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    CHECK(a[rank].start_ns == b[rank].start_ns);
    CHECK(a[rank].duration_ns == b[rank].duration_ns);
  }
}

// Two switches with four endpoints each, and two slower cables between them: which of these a pair of ranks uses
// depends on who has asked before.
simulate::Topology two_switches() {
  simulate::TopologySpec spec;
  spec.vertices = 8 + 2;
  const auto cable = [&](std::int32_t a, std::int32_t b, double rate) {
    spec.links.push_back({a, b, rate, 500, rate, 0});
    spec.links.push_back({b, a, rate, 500, rate, 0});
  };
  for (std::int32_t rank = 0; rank < 8; ++rank) {
    spec.endpoint.push_back(rank);
    cable(rank, 8 + rank % 2, 1e9);
  }
  for (int i = 0; i < 2; ++i) cable(8, 9, 3e8);
  return simulate::Topology::make(std::move(spec)).value();
}

template <typename Check>
void on_random_jobs(Check&& check) {
  const auto one = simulate::Topology::one_switch(8, 1e9, 1000), two = two_switches();
  for (const char* model : {"gloo", "nccl", "conservative"})
    for (unsigned seed = 1; seed <= 6; ++seed)
      for (const auto* network : {static_cast<const simulate::Topology*>(nullptr), &one, &two}) {
        auto options = at_1_gigabyte_per_second();
        options.samples = 5;
        if (network) options.network = NetworkOptions{.topology = network};
        INFO(model << ", job " << seed << (network ? " on a network" : "")
                   << (network == &two ? " of two switches" : ""));
        check(model, seed, options);
      }
}

}  // namespace

TEST_CASE("no dependency is violated, and the trace is valid") {
  on_random_jobs([](const char* model, unsigned seed, const CalibrateOptions& options) {
    Random random(seed);
    auto job = random_job(random, model);
    const auto graph = slices(job);
    const auto found = calibration_of(graph, options);
    check_dependencies(graph, found.report.timelines);
    const auto trace = trace_of(graph, found);
    CHECK(validate(trace).ok());
    CHECK(trace.timed());
  });
}

TEST_CASE("calibrating twice changes nothing, and a replay says the same") {
  on_random_jobs([](const char* model, unsigned seed, const CalibrateOptions& options) {
    Random random(seed);
    auto job = random_job(random, model);
    const auto found = calibration_of(slices(job), options);
    const auto trace = trace_of(slices(job), found);
    const auto replayed = replay_of(trace);
    check_equal(replayed.timelines, found.report.timelines);
    const bool many_ways = options.network && options.network->topology->spec().vertices > 9;
    for (int i = 0; i < found.counted && !many_ways; ++i)
      CHECK(replayed.iterations[static_cast<std::size_t>(found.first_counted + i)].time_ns ==
            found.iteration_times_ns[static_cast<std::size_t>(found.chosen)][static_cast<std::size_t>(i)]);
    for (const auto& same : {at_1_gigabyte_per_second(), options}) {  // as it is, and where it was calibrated
      const auto again = calibration_of(trace, same);
      check_equal(again.report.timelines, found.report.timelines);
      CHECK(again.iteration_time_ns.median == found.iteration_time_ns.median);
      CHECK(again.iteration_time_ns.p95 == found.iteration_time_ns.p95);
      CHECK(again.metadata_json == trace.metadata_json());
    }
  });
}

TEST_CASE("shifting any slice's clock changes nothing") {
  on_random_jobs([](const char* model, unsigned seed, const CalibrateOptions& options) {
    Random random(seed);
    auto job = random_job(random, model);
    const auto before = calibration_of(slices(job), options);
    for (auto& rank : job.ranks) {
      const auto shift = random.up_to(1'000'000) * ms;
      for (auto& node : rank.record.nodes) node.start_ns += shift;
    }
    const auto after = calibration_of(slices(job), options);
    check_equal(before.report.timelines, after.report.timelines);
    CHECK(before.iteration_times_ns == after.iteration_times_ns);
  });
}

TEST_CASE("waits and transfers of a slice mean nothing") {
  on_random_jobs([](const char* model, unsigned seed, const CalibrateOptions& options) {
    Random random(seed);
    auto job = random_job(random, model);
    const auto before = calibration_of(slices(job), options);
    for (auto& rank : job.ranks)
      for (auto& node : rank.record.nodes)
        if (node.kind == NodeKind::kWait) node.duration_ns = random.up_to(ms);
    check_equal(before.report.timelines, calibration_of(slices(job), options).report.timelines);
  });
}

TEST_CASE("where nothing is shared: scaling all durations scales the answer") {
  for (const char* model : {"gloo", "nccl", "conservative"})
    for (unsigned seed = 1; seed <= 10; ++seed) {
      Random one(seed), seven(seed);
      auto job = random_job(one, model), slower = random_job(seven, model, 7);
      for (auto* program : {&job, &slower})  // the last span, behind the last mark, is no part of an iteration
        for (auto& rank : program->ranks) rank.record.nodes.back().name = "";
      const auto as_it_is = calibration_of(slices(job)), scaled = calibration_of(slices(slower));
      INFO(model << ", job " << seed);
      REQUIRE(as_it_is.iteration_times_ns.size() == scaled.iteration_times_ns.size());
      for (std::size_t s = 0; s < scaled.iteration_times_ns.size(); ++s)
        for (std::size_t i = 0; i < scaled.iteration_times_ns[s].size(); ++i)
          CHECK(std::abs(scaled.iteration_times_ns[s][i] - 7 * as_it_is.iteration_times_ns[s][i]) <= 7 * 100);
    }
}

TEST_CASE("a sweep and the events agree on what was drawn") {
  int swept = 0;
  for (const char* model : {"gloo", "nccl", "conservative"})
    for (unsigned seed = 1; seed <= 8; ++seed) {
      Random random(seed);
      auto job = random_job(random, model);
      const auto graph = slices(job);
      const auto measured = calibration::measure(graph, {}, nullptr).value();
      const auto sampling = calibration::Sampling::make(measured.job, 1, {}).value();
      auto plan = make_plan(measured.job, measured.service, nullptr, sampling);
      const auto by_sweep = plan;
      plan.sweep.reset();
      auto sweeps = calibration::Executor::make(by_sweep).value(), events = calibration::Executor::make(plan).value();
      engine::Durations durations(measured.job);
      INFO(model << ", job " << seed);
      for (int sample = 0; sample < 3; ++sample) {
        sampling.draw(seed, sample, durations);
        REQUIRE(sweeps.execute(durations));
        REQUIRE(events.execute(durations));
        CHECK(sweeps.iteration_times(durations) == events.iteration_times(durations));
      }
      check_equal(std::move(sweeps).take_execution(durations)->timelines,
                  std::move(events).take_execution(durations)->timelines);
      swept += by_sweep.sweep.has_value();
    }
  CHECK(swept == 3 * 8);
}

TEST_CASE("where nothing is shared: a longer span makes the job longer by at most as much, and within its slack not") {
  for (const char* model : {"gloo", "nccl", "conservative"})
    for (unsigned seed = 1; seed <= 10; ++seed) {
      Random random(seed);
      auto job = random_job(random, model);
      for (auto& rank : job.ranks) rank.record.marks.clear();
      const auto before = calibration_of(slices(job)).report.critical_path_ns;
      auto& nodes = job.ranks[static_cast<std::size_t>(random.up_to(2))].record.nodes;
      auto node = static_cast<std::size_t>(random.up_to(static_cast<std::int64_t>(nodes.size())));
      while (nodes[node].kind != NodeKind::kCompute) node = (node + 1) % nodes.size();
      std::int64_t latest = before, longer = 0;
      for (const auto more : {ms / 2, 1 * ms, 2 * ms, 4 * ms, 8 * ms}) {
        nodes[node].duration_ns += more - longer;
        const auto after = calibration_of(slices(job)).report.critical_path_ns;
        INFO(model << ", job " << seed << ", " << more << " ns more");
        // Beyond its slack the job is longer by all that is added; the slack is what the first lengthening left of it.
        CHECK(after >= latest);
        CHECK(after <= latest + more - longer);
        if (latest > before) CHECK(after == latest + more - longer);
        latest = after;
        longer = more;
      }
    }
}

TEST_CASE("where nothing is shared: slack on a span that nobody waits for changes nothing") {
  // Rank 1 has 4 ms of slack before the barrier: up to there its span may grow.
  const auto iteration = [](std::int64_t slack) {
    Program job(2);
    for (int r = 0; r < 2; ++r)
      for (int i = 0; i < 3; ++i) {
        job[r].mark();
        job[r].compute(r == 0 ? 10 * ms : 6 * ms + slack);
        job[r].blocking({.op = Op::kBarrier});
      }
    return median_of(job);
  };
  for (const auto slack : {0, 1, 2, 3, 4}) CHECK(iteration(slack * ms) == 10 * ms);
  CHECK(iteration(5 * ms) == 11 * ms);
}
