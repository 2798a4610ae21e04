// What cannot be calibrated says why.
#include "calibrate/timed.hpp"

using namespace prism;
using namespace prism::test;

TEST_CASE("a trace without times") {
  Program job(1);
  job[0].compute(ms);
  CHECK_THAT(error_of(job.graph(false)), ContainsSubstring("time it first (prism time)"));
}

TEST_CASE("a cycle: two groups that two ranks use in opposite order") {
  Program job(2);
  for (int r = 0; r < 2; ++r) {
    job[r].record.groups.push_back({"tensor", {0, 1}});
    job[r].record.groups.push_back({"data", {0, 1}});
    const std::uint32_t first = r == 0 ? 1 : 2;
    job[r].blocking({.op = Op::kAllReduce, .group = first});
    job[r].blocking({.op = Op::kAllReduce, .group = 3 - first});
  }
  const auto error = error_of(slices(job));
  CHECK_THAT(error, ContainsSubstring("rank 0 (main) waits for all_reduce 0 of group 'tensor': rank 1 has not joined"));
  CHECK_THAT(error, ContainsSubstring("rank 1 (main) waits for all_reduce 0 of group 'data': rank 0 has not joined"));
}

TEST_CASE("a cycle is shown before the many who wait behind it") {
  // Ranks 41 and 42 each receive from the other first; everybody else is in the barrier already.
  Program job(50);
  for (int r = 0; r < 50; ++r) {
    if (r == 41 || r == 42) {
      const int other = 83 - r;
      job[r].blocking({.op = Op::kRecv, .peer = other});
      job[r].blocking({.op = Op::kSend, .peer = other});
    }
    job[r].blocking({.op = Op::kBarrier});
  }
  const auto error = error_of(slices(job));
  CHECK_THAT(error, ContainsSubstring("replay cannot go on:\n"
                                      "  rank 41 (main) waits for recv 0 from rank 42 (group 'world', tag 0): no send\n"
                                      "  rank 42 (main) waits for recv 0 from rank 41 (group 'world', tag 0): no send\n"
                                      "  rank 0 (main) waits for barrier 0 of group 'world': rank 41, 42 has not"));
  CHECK_THAT(error, ContainsSubstring("and 34 more"));
}

TEST_CASE("a send that nobody receives") {
  Program job(2);
  job[0].issue({.op = Op::kSend, .peer = 1, .tag = 3});
  job[1].compute(ms);
  CHECK_THAT(error_of(slices(job)),
             ContainsSubstring("1 sends and 0 receives from rank 0 to rank 1 with tag 3; accepted: equal"));
}

TEST_CASE("members that issue different operations") {
  Program job(2);
  job[0].blocking({.op = Op::kAllReduce});
  job[1].blocking({.op = Op::kBarrier});
  CHECK_THAT(error_of(slices(job)), ContainsSubstring("rank 1 has barrier #0 where rank 0 has all_reduce #0"));
}

TEST_CASE("options out of range") {
  Program job(1);
  job[0].compute(ms);
  CHECK(error_of(slices(job), {.samples = 0}) == "0 samples; accepted: 1 to 1000000");
  CHECK(error_of(slices(job), {.threads = -1}) == "-1 threads; accepted: 0 (all cores) to 1024");
  CHECK(error_of(slices(job), {.warmup = 1}) == "1 iterations of warm-up; accepted: 0 to 0, as the trace has 0");
}

TEST_CASE("times that no clock shows") {
  Program job(2);
  for (int r = 0; r < 2; ++r) job[r].compute(4'000'000'000'000'000'000);
  CHECK_THAT(error_of(slices(job)), ContainsSubstring("add up to more than 4e18 ns"));
}
