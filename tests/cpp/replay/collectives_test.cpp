// How collectives hold their members, as arithmetic in milliseconds.
#include "program.hpp"

using namespace prism;
using namespace prism::test;

TEST_CASE("an all_reduce of two ranks starts when the slower one has come") {
  Program job(2);
  std::int64_t compute[] = {10 * ms, 14 * ms};
  for (int r = 0; r < 2; ++r) {
    job[r].mark();
    job[r].compute(compute[r]);
    job[r].blocking({.service = 3 * ms});
    job[r].compute(5 * ms);
  }
  ReplayReport report = replay_of(job.graph());
  CHECK(report.critical_path_ns == (14 + 3 + 5) * ms);
  REQUIRE(report.iterations.size() == 1);
  CHECK(report.iterations[0].time_ns == 22 * ms);
  CHECK(report.ranks[0].busy_ns == 15 * ms);
  CHECK(report.ranks[0].waiting_ns == 4 * ms);
  CHECK(report.ranks[0].exposed_comm_ns == 3 * ms);
  CHECK(report.ranks[1].busy_ns == 19 * ms);
  CHECK(report.ranks[1].waiting_ns == 0);
  CHECK(report.ranks[1].exposed_comm_ns == 3 * ms);
}

TEST_CASE("gradients that are reduced behind the backward pass cost only what sticks out of it") {
  // Four buckets of 10 ms of backward each.
  auto step = [](const char* model, std::vector<std::int64_t> ends) {
    Program job(2, model);
    for (int r = 0; r < 2; ++r) {
      std::vector<std::int32_t> works;
      for (std::int64_t end : ends) {
        job[r].compute(10 * ms);
        works.push_back(job[r].issue({.recorded_end = end * ms}));
      }
      job[r].wait(works);
    }
    return replay_of(job.graph());
  };
  ReplayReport fast = step("gloo", {16, 26, 36, 46});  // 6 ms each
  CHECK(fast.critical_path_ns == 46 * ms);
  CHECK(fast.ranks[0].exposed_comm_ns == 6 * ms);
  CHECK(fast.ranks[0].waiting_ns == 0);
  // 25 ms each: Gloo's two workers take 10..35 and 20..45, then 35..60 and 45..70.
  CHECK(step("gloo", {35, 45, 60, 70}).critical_path_ns == 70 * ms);
  // NCCL's one stream: 10..35..60..85..110.
  CHECK(step("nccl", {35, 60, 85, 110}).critical_path_ns == 110 * ms);
}

TEST_CASE("a small all_reduce overtakes a large one on Gloo's second worker, but not two of them") {
  auto job_with = [](int large, const char* model) {
    Program job(2, model);
    std::vector<std::uint32_t> waits;
    for (int r = 0; r < 2; ++r) {
      std::vector<std::int32_t> works;
      for (int i = 0; i < large; ++i) works.push_back(job[r].issue({.recorded_end = 280 * ms}));
      // Behind two large ones the record has it done 5 ms after the first of them ended.
      bool queued = large == 2;
      std::int32_t small = job[r].issue({.recorded_end = (queued ? 285 : 5) * ms});
      waits.push_back(job[r].wait({small}));
      job[r].wait(works);
    }
    ReplayReport report = replay_of(job.graph());
    return end_of(report, 0, waits[0]);
  };
  CHECK(job_with(1, "gloo") == 5 * ms);
  CHECK(job_with(2, "gloo") == 285 * ms);
}

TEST_CASE("a queued collective is late for the peers too") {
  // Rank 0 is busy with two collectives of group "pair" when it issues the third; rank 2's only work is that third.
  Program job(2);
  std::uint32_t third = 0;
  for (int r = 0; r < 2; ++r) {
    job[r].issue({.service = 10 * ms});
    job[r].issue({.service = 10 * ms});
    third = job[r].blocking({.recorded_end = 12 * ms});
  }
  ReplayOptions slower;
  slower.edits.push_back({.rank = 1, .node = 0, .add_ns = 7 * ms});  // rank 1 issues its first 7 ms later
  CHECK(end_of(replay_of(job.graph()), 0, third) == 12 * ms);
  CHECK(end_of(replay_of(job.graph(), slower), 0, third) == 19 * ms);
}

TEST_CASE("a late member of a broadcast holds its parent and what is behind it in the tree, nobody else") {
  auto ends = [](int late, Op op) {
    Program job(4);
    std::vector<std::uint32_t> wait;
    for (int r = 0; r < 4; ++r) {
      job[r].compute(1 * ms);
      wait.push_back(job[r].blocking({.op = op, .service = 2 * ms, .peer = is_rooted(op) ? 0 : -1}));
    }
    ReplayReport report = replay_of(job.graph(), {.edits = {{.rank = late, .add_ns = 200 * ms}}});
    std::vector<std::int64_t> result;
    for (int r = 0; r < 4; ++r) result.push_back(end_of(report, r, wait[static_cast<std::size_t>(r)]) / ms);
    return result;
  };
  using Ends = std::vector<std::int64_t>;
  // Measured with Gloo: the tree is 0 -> 1, 0 -> 2, 1 -> 3.
  CHECK(ends(0, Op::kBroadcast) == Ends{203, 203, 203, 203});
  CHECK(ends(1, Op::kBroadcast) == Ends{203, 203, 3, 203});
  CHECK(ends(2, Op::kBroadcast) == Ends{203, 3, 203, 3});
  CHECK(ends(3, Op::kBroadcast) == Ends{3, 203, 3, 203});
  CHECK(ends(0, Op::kGather) == Ends{203, 203, 203, 203});
  CHECK(ends(2, Op::kGather) == Ends{203, 3, 203, 3});
  CHECK(ends(2, Op::kScatter) == Ends{203, 3, 203, 3});
  CHECK(ends(2, Op::kReduce) == Ends{203, 203, 203, 203});  // a ring
  CHECK(ends(2, Op::kAllToAllSingle) == Ends{203, 203, 203, 203});
}

TEST_CASE("an unknown backend holds everybody for the last member, and the report says so") {
  Program job(2, "mystery");
  for (int r = 0; r < 2; ++r) {
    job[r].compute((1 + 4 * r) * ms);
    job[r].blocking({.op = Op::kBroadcast, .service = 1 * ms, .peer = 0});
  }
  ReplayReport report = replay_of(job.graph());
  CHECK(end_of(report, 0, 3) == 6 * ms);
  REQUIRE(report.notes.size() == 2);
  CHECK(report.notes[1].find("unknown progress model 'mystery'") != std::string::npos);
}
