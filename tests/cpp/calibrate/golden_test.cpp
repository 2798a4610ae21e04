// Jobs whose iteration time is known by arithmetic, from slices in which every rank was alone.
#include "calibrate/timed.hpp"
#include "simulate/topology.hpp"

using namespace prism;
using namespace prism::test;

namespace {

// Stages of a pipeline. Sends are waited for at the end of the iteration, and so is everybody, by a barrier that takes
// no time. `tag` tells messages of one direction apart.
struct Stage {
  RankProgram& rank;
  std::vector<std::int32_t> sent = {};
  void receive(int from, int tag) { rank.blocking({.op = Op::kRecv, .peer = from, .tag = tag}); }
  void send(int to, int tag) { sent.push_back(rank.issue({.op = Op::kSend, .peer = to, .tag = tag})); }
  void finish() {
    if (!sent.empty()) rank.wait(sent);
    rank.blocking({.op = Op::kBarrier});
  }
};

constexpr std::int64_t kForward = 4 * ms, kBackward = 8 * ms;  // of one stage for one microbatch

// One forward, one backward: stage s runs p - 1 - s forwards ahead.
Program one_forward_one_backward(int p, int m, int iterations) {
  Program job(p);
  for (int s = 0; s < p; ++s) {
    for (int i = 0; i < iterations; ++i) {
      job[s].mark();
      Stage stage{job[s]};
      int forwards = 0, backwards = 0;
      const auto forward = [&] {
        if (s > 0) stage.receive(s - 1, forwards);
        job[s].compute(kForward);
        if (s + 1 < p) stage.send(s + 1, forwards);
        ++forwards;
      };
      const auto backward = [&] {
        if (s + 1 < p) stage.receive(s + 1, backwards);
        job[s].compute(kBackward);
        if (s > 0) stage.send(s - 1, backwards);
        ++backwards;
      };
      const int ahead = std::min(p - 1 - s, m);
      for (int k = 0; k < ahead; ++k) forward();
      for (int k = ahead; k < m; ++k) forward(), backward();
      for (int k = 0; k < ahead; ++k) backward();
      stage.finish();
    }
  }
  return job;
}

// Interleaved: stage s holds the v chunks s, s + p, s + 2p, ... of p v; p microbatches pass a chunk, then the next.
Program interleaved(int p, int m, int v) {
  Program job(p);
  for (int s = 0; s < p; ++s) {
    job[s].mark();
    Stage stage{job[s]};
    struct Unit {
      int chunk, microbatch;
    };
    const auto unit = [&](int k) { return Unit{k % (p * v) / p, k / (p * v) * p + k % p}; };
    const auto tag = [&](int whole, int microbatch, bool back) { return (whole * m + microbatch) * 2 + back; };
    const auto forward = [&](int k) {
      const auto [chunk, microbatch] = unit(k);
      const int whole = chunk * p + s;
      if (whole > 0) stage.receive((s + p - 1) % p, tag(whole - 1, microbatch, false));
      job[s].compute(kForward / v);
      if (whole + 1 < p * v) stage.send((s + 1) % p, tag(whole, microbatch, false));
    };
    const auto backward = [&](int k) {
      const auto [from_last, microbatch] = unit(k);
      const int whole = (v - 1 - from_last) * p + s;
      if (whole + 1 < p * v) stage.receive((s + 1) % p, tag(whole + 1, microbatch, true));
      job[s].compute(kBackward / v);
      if (whole > 0) stage.send((s + p - 1) % p, tag(whole, microbatch, true));
    };
    const int all = m * v, ahead = std::min(2 * (p - 1 - s) + (v - 1) * p, all);
    for (int k = 0; k < ahead; ++k) forward(k);
    for (int k = ahead; k < all; ++k) forward(k), backward(k - ahead);
    for (int k = all - ahead; k < all; ++k) backward(k);
    stage.finish();
  }
  return job;
}

}  // namespace

TEST_CASE("1F1B: the bubble is (p - 1) / m of the work") {
  for (const auto& [p, m] : {std::pair(2, 4), std::pair(4, 8), std::pair(4, 3), std::pair(8, 16)}) {
    auto job = one_forward_one_backward(p, m, 2);
    const auto found = calibration_of(slices(job));
    INFO(p << " stages, " << m << " microbatches");
    CHECK(found.iteration_time_ns.median == (m + p - 1) * (kForward + kBackward));
    // In its own slice nobody waits.
    CHECK(found.uncalibrated_ns == m * (kForward + kBackward));
    // Stage 0: busy with m microbatches, in each of 2 iterations.
    CHECK(found.report.ranks[0].busy_ns == 2 * m * (kForward + kBackward));
    CHECK(found.report.ranks[0].waiting_ns == 2 * (p - 1) * (kForward + kBackward));
  }
}

TEST_CASE("interleaved: the bubble is (p - 1) / (m v) of the work") {
  for (const auto& [p, m, v] : {std::tuple(2, 4, 2), std::tuple(4, 8, 2), std::tuple(4, 8, 4)}) {
    auto job = interleaved(p, m, v);
    INFO(p << " stages, " << m << " microbatches, " << v << " chunks");
    CHECK(median_of(job) == m * (kForward + kBackward) + (p - 1) * (kForward + kBackward) / v);
  }
}

TEST_CASE("two slices whose clocks are hours apart") {
  Program job(2);
  for (int r = 0; r < 2; ++r)
    for (int i = 0; i < 2; ++i) {
      job[r].mark();
      job[r].compute((r == 0 ? 3 : 5) * ms);
      job[r].blocking({.op = Op::kAllReduce, .bytes = 2'000'000});  // 2 (2 - 1) 2 MB / 2 at 1 GB/s: 2 ms
    }
  CHECK(median_of(job) == (5 + 2) * ms);
  for (auto& node : job[1].record.nodes) node.start_ns += 3 * 3600 * 1000 * ms;
  const auto found = calibration_of(slices(job));
  CHECK(found.iteration_time_ns.median == (5 + 2) * ms);
  CHECK(found.report.critical_path_ns == 2 * (5 + 2) * ms);
  CHECK(found.report.timelines[1].start_ns[0] == 0);
}

TEST_CASE("a straggler holds its data-parallel group") {
  Program job(8);
  for (int r = 0; r < 8; ++r)
    for (int i = 0; i < 3; ++i) {
      job[r].mark();
      job[r].compute((r == 5 ? 13 : 10) * ms);
      job[r].blocking({.op = Op::kAllReduce, .bytes = 8'000'000});  // 2 (8 - 1) 8 MB / 8 at 1 GB/s: 14 ms
    }
  const auto found = calibration_of(slices(job));
  CHECK(found.iteration_time_ns.median == (13 + 14) * ms);
  CHECK(found.uncalibrated_ns == (13 + 14) * ms);  // the slowest rank, as if alone
  CHECK(found.report.ranks[0].waiting_ns == 3 * 3 * ms);
  CHECK(found.report.ranks[5].waiting_ns == 0);
  CHECK(found.report.ranks[0].exposed_comm_ns == 3 * 14 * ms);
}

TEST_CASE("two ranks that are slow in turns are slower together than either") {
  // Each has one long span, before or behind a barrier: 2 + 9 alone, 9 + 9 together.
  Program job(2);
  for (int r = 0; r < 2; ++r) {
    job[r].mark();
    job[r].compute((r == 0 ? 2 : 9) * ms);
    job[r].blocking({.op = Op::kBarrier});
    job[r].compute((r == 0 ? 9 : 2) * ms);
    job[r].blocking({.op = Op::kBarrier});
  }
  const auto found = calibration_of(slices(job));
  CHECK(found.uncalibrated_ns == 11 * ms);
  CHECK(found.iteration_time_ns.median == 18 * ms);
}

TEST_CASE("an overlapped all-reduce costs what sticks out") {
  const auto iteration = [](std::int64_t overlapped) {
    Program job(2);
    for (int r = 0; r < 2; ++r)
      for (int i = 0; i < 2; ++i) {
        job[r].mark();
        job[r].compute(3 * ms);
        const auto reduced = job[r].issue({.op = Op::kAllReduce, .bytes = 5'000'000});  // 5 ms
        job[r].compute(overlapped);
        job[r].wait({reduced});
        job[r].compute(1 * ms);
      }
    return calibration_of(slices(job));
  };
  CHECK(iteration(4 * ms).iteration_time_ns.median == (3 + 5 + 1) * ms);
  CHECK(iteration(4 * ms).report.ranks[0].exposed_comm_ns == 2 * 1 * ms);
  CHECK(iteration(7 * ms).iteration_time_ns.median == (3 + 7 + 1) * ms);
}

TEST_CASE("tensor- and data-parallel all-reduces on one NIC at once take both their times") {
  // Ranks 0 and 1 are one tensor-parallel group, 2 and 3 the other; each meets its namesake for data. In a ring of two
  // a member sends the whole tensor: 3 MB and 1 MB over one link of 1 GB/s.
  Program job(4, "nccl");
  for (int r = 0; r < 4; ++r) {
    const int t = r / 2 * 2, d = r % 2;
    job[r].record.groups.push_back({t == 0 ? "tp 0" : "tp 1", {t, t + 1}});
    job[r].record.groups.push_back({d == 0 ? "dp 0" : "dp 1", {d, d + 2}});
    for (int i = 0; i < 2; ++i) {
      job[r].mark();
      job[r].compute(10 * ms);
      const auto tensor = job[r].issue({.op = Op::kAllReduce, .group = 1, .bytes = 3'000'000});
      const auto data = job[r].issue({.op = Op::kAllReduce, .group = 2, .bytes = 1'000'000});
      job[r].wait({tensor, data});
    }
  }
  const auto topology = simulate::Topology::one_switch(4, 1e9, 0);
  const auto on = [&](simulate::NetworkKind kind) {
    return calibration_of(slices(job), {.network = NetworkOptions{.topology = &topology, .kind = kind}});
  };
  CHECK(on(simulate::NetworkKind::kFlowLevel).iteration_time_ns.median == (10 + 4) * ms);
  CHECK(on(simulate::NetworkKind::kClosedForm).iteration_time_ns.median == (10 + 3) * ms);
  CHECK(on(simulate::NetworkKind::kFlowLevel).uncalibrated_ns == (10 + 3) * ms);
}

TEST_CASE("a chain of messages adds up") {
  Program job(5);
  for (int r = 0; r < 5; ++r) {
    job[r].mark();
    if (r > 0) job[r].blocking({.op = Op::kRecv, .peer = r - 1, .bytes = 1'000'000});  // 1 ms
    job[r].compute(2 * ms);
    if (r < 4) job[r].blocking({.op = Op::kSend, .peer = r + 1, .bytes = 1'000'000});
  }
  const auto found = calibration_of(slices(job));
  CHECK(found.report.critical_path_ns == (5 * 2 + 4 * 1) * ms);
  CHECK(found.iteration_time_ns.median == (5 * 2 + 4 * 1) * ms);  // rank 4 waits for all others in its iteration
  CHECK(found.uncalibrated_ns == (1 + 2 + 1) * ms);
}

TEST_CASE("an all-to-all starts with its last member") {
  Program job(4);
  const std::int64_t arrival[] = {1 * ms, 7 * ms, 2 * ms, 3 * ms};
  for (int r = 0; r < 4; ++r) {
    job[r].mark();
    job[r].compute(arrival[r]);
    job[r].blocking({.op = Op::kAllToAllSingle, .bytes = 4'000'000});  // (4 - 1) 4 MB / 4: 3 ms
  }
  const auto found = calibration_of(slices(job));
  CHECK(found.iteration_time_ns.median == (7 + 3) * ms);
  CHECK(found.report.ranks[0].waiting_ns == 6 * ms);
  CHECK(found.report.ranks[1].waiting_ns == 0);
}

TEST_CASE("of a recorded run the transfer is the least time over the members") {
  // The real run's waits are in the transfers of the early ones; no clocks need to agree.
  Program job(3);
  for (int r = 0; r < 3; ++r) {
    job[r].mark();
    job[r].compute((1 + r) * ms);
    job[r].blocking({.op = Op::kAllReduce, .service = 4 * ms});
  }
  CHECK(calibration_of(job.graph(true, "{}")).iteration_time_ns.median == (3 + 4) * ms);
}
