// What ranks draw, and what the headline says.
#include <cmath>
#include <random>

#include "calibrate/timed.hpp"
#include "simulate/topology.hpp"

using namespace prism;
using namespace prism::test;

namespace {

// Iterations of `members` that compute about 10 ms and meet in a barrier; a mark ends the last one.
Program members(int count, int iterations, double sigma_ms) {
  std::mt19937 random(42);
  std::normal_distribution<double> about(10.0, sigma_ms);
  Program job(count);
  for (int r = 0; r < count; ++r) {
    for (int i = 0; i < iterations; ++i) {
      job[r].mark();
      job[r].compute(std::llround(about(random) * 1e6));
      job[r].blocking({.op = Op::kBarrier});
    }
    job[r].mark();
    job[r].compute(0);
  }
  return job;
}

}  // namespace

TEST_CASE("64 members that need N(10, 0.2) ms take 10.47 ms, not 10") {
  auto job = members(64, 60, 0.2);
  const auto found = calibration_of(slices(job));
  // The greatest of 64 normals is on average 2.35 sigma above the mean; its median is 2.30 above.
  CHECK(std::abs(static_cast<double>(found.iteration_time_ns.median) - 10.47e6) < 0.03e6);
  CHECK(std::abs(static_cast<double>(found.of_medians_ns) - 10.05e6) < 0.1e6);
  // The spread of that greatest is 0.43 sigma: 5% and 95% lie at 1.70 and 3.15 sigma.
  CHECK(std::abs(static_cast<double>(found.iteration_time_ns.p05) - (10e6 + 1.70 * 0.2e6)) < 0.05e6);
  CHECK(std::abs(static_cast<double>(found.iteration_time_ns.p95) - (10e6 + 3.15 * 0.2e6)) < 0.08e6);
}

TEST_CASE("the same answer for any number of threads, another one for another seed") {
  auto job = members(8, 10, 0.5);
  const auto graph = slices(job);
  const auto topology = simulate::Topology::one_switch(8, 1e9, 1000);
  for (const bool on_network : {false, true}) {
    CalibrateOptions options{.samples = 20, .seed = 1, .threads = 1};
    if (on_network) options.network = NetworkOptions{.topology = &topology};
    const auto one = calibration_of(graph, options);
    options.threads = 5;
    const auto five = calibration_of(graph, options);
    CHECK(one.iteration_times_ns == five.iteration_times_ns);
    CHECK(one.metadata_json == five.metadata_json);
    options.seed = 2;
    CHECK(one.iteration_times_ns != calibration_of(graph, options).iteration_times_ns);
  }
}

TEST_CASE("a repetition is drawn as a whole: what is long in one span is short in the next") {
  // 1 + 9 or 9 + 1, with a barrier behind. Spans drawn apart would give 2 and 18 as well.
  Program job(1);
  for (int i = 0; i < 6; ++i) {
    job[0].mark();
    job[0].compute((i % 2 == 0 ? 1 : 9) * ms);
    job[0].blocking({.op = Op::kBarrier});
    job[0].compute((i % 2 == 0 ? 9 : 1) * ms);
    job[0].blocking({.op = Op::kBarrier});
  }
  const auto found = calibration_of(slices(job));
  CHECK(found.iteration_time_ns.p05 == 10 * ms);
  CHECK(found.iteration_time_ns.p95 == 10 * ms);
}

TEST_CASE("ranks draw independently of each other") {
  // Both need 1 or 3 ms. Together 1 happens in a quarter of the executions, 3 in the others.
  Program job(2);
  for (int r = 0; r < 2; ++r)
    for (int i = 0; i < 9; ++i) {
      job[r].mark();
      job[r].compute((i % 2 == 0 ? 1 : 3) * ms);
      job[r].blocking({.op = Op::kBarrier});
    }
  auto options = at_1_gigabyte_per_second();
  options.samples = 500;
  const auto found = calibration_of(slices(job), options);
  std::size_t fast = 0, all = 0;
  for (const auto& sample : found.iteration_times_ns)
    for (const auto time : sample) fast += time == 1 * ms, ++all;
  CHECK(found.iteration_time_ns.median == 3 * ms);
  // 5 of 9 repetitions are fast.
  CHECK(std::abs(static_cast<double>(fast) / static_cast<double>(all) - 25.0 / 81.0) < 0.03);
}

TEST_CASE("an iteration with a checkpoint is drawn from such iterations only") {
  // Every third one writes a checkpoint for 100 ms and more behind a second barrier.
  Program job(2);
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < 9; ++i) {
      job[r].mark();
      job[r].compute((10 + i % 2) * ms);
      job[r].blocking({.op = Op::kBarrier});
      if (i % 3 != 2) continue;
      job[r].compute((100 + i) * ms);
      job[r].blocking({.op = Op::kBarrier});
    }
    job[r].mark();
    job[r].compute(0);
  }
  auto options = at_1_gigabyte_per_second();
  options.samples = 50;
  const auto found = calibration_of(slices(job), options);
  CHECK(found.counted == 9);
  for (const auto& sample : found.iteration_times_ns)
    for (std::size_t i = 0; i < sample.size(); ++i) CHECK((sample[i] > 100 * ms) == (i % 3 == 2));
  CHECK(found.iteration_time_ns.median <= 11 * ms);
}

TEST_CASE("warm-up is neither drawn nor counted, and stays in the trace") {
  Program job(2);
  for (int r = 0; r < 2; ++r)
    for (int i = 0; i < 5; ++i) {
      job[r].mark();
      job[r].compute((i < 2 ? 500 : 10) * ms);
      job[r].blocking({.op = Op::kBarrier});
    }
  auto options = at_1_gigabyte_per_second();
  options.warmup = 2;
  const auto found = calibration_of(slices(job), options);
  CHECK(found.iteration_time_ns.p05 == 10 * ms);
  CHECK(found.iteration_time_ns.p95 == 10 * ms);
  CHECK(found.report.iterations[1].time_ns == 500 * ms);
  CHECK(found.report.iterations[2].time_ns == 10 * ms);
  options.warmup = 5;
  CHECK(error_of(slices(job), options) == "5 iterations of warm-up; accepted: 0 to 4, as the trace has 5");
}

TEST_CASE("the span in which the program leaves the last iteration is no repetition") {
  // The last optimizer step goes on to the end of the program, 900 ms later.
  Program job(2);
  for (int r = 0; r < 2; ++r)
    for (int i = 0; i < 4; ++i) {
      job[r].mark();
      job[r].compute(10 * ms);
      job[r].blocking({.op = Op::kBarrier});
      job[r].compute((i == 3 ? 900 : 2) * ms);
    }
  const auto found = calibration_of(slices(job));
  CHECK(found.counted == 3);
  CHECK(found.iteration_time_ns.p95 == 12 * ms);
  CHECK(found.iteration_time_ns.p05 == 12 * ms);
}

TEST_CASE("what other threads do in an iteration is found by what hands over to them") {
  // Backward runs on a second lane: 20 ms in the odd iterations, 30 ms in the even ones. Its clock is as it was when it
  // ran late: all of it behind the last mark.
  Program job(1);
  std::vector<std::uint32_t> forward, back;
  for (int i = 0; i < 4; ++i) {
    job[0].mark();
    forward.push_back(job[0].compute(5 * ms));
    job[0].compute(0);
    back.push_back(job[0].wait({job[0].issue({.op = Op::kBarrier})}));
  }
  job[0].lane("autograd", 1000 * ms);
  for (int i = 0; i < 4; ++i) {
    const auto span = job[0].compute((i % 2 == 0 ? 30 : 20) * ms);
    job[0].record.edges.push_back({forward[static_cast<std::size_t>(i)], span});
    job[0].record.edges.push_back({span, back[static_cast<std::size_t>(i)]});
  }
  auto options = at_1_gigabyte_per_second();
  options.samples = 100;
  const auto found = calibration_of(slices(job), options);
  std::size_t long_ones = 0, short_ones = 0;
  for (const auto& sample : found.iteration_times_ns)
    for (const auto time : sample) long_ones += time == 35 * ms, short_ones += time == 25 * ms;
  CHECK(long_ones + short_ones == 100 * static_cast<std::size_t>(found.counted));
  CHECK(long_ones > 100);
  CHECK(short_ones > 100);
}

TEST_CASE("without marks the whole trace is one iteration, said in a note") {
  Program job(2);
  for (int r = 0; r < 2; ++r) {
    job[r].compute((3 + r) * ms);
    job[r].blocking({.op = Op::kBarrier});
  }
  const auto found = calibration_of(slices(job));
  CHECK(found.iteration_time_ns.median == 4 * ms);
  CHECK(std::any_of(found.notes.begin(), found.notes.end(),
                    [](const auto& note) { return note.find("no iteration marks") != std::string::npos; }));
}
