// Sends, receives, pipelines and coalesced batches, as arithmetic in milliseconds.
#include "program.hpp"

using namespace prism;
using namespace prism::test;

TEST_CASE("a send is a rendezvous: it ends with the transfer, however long the receiver takes to come") {
  Program job(2);
  std::uint32_t sent = job[0].blocking({.op = Op::kSend, .service = 2 * ms, .peer = 1});
  job[1].compute(30 * ms);
  std::uint32_t received = job[1].blocking({.op = Op::kRecv, .service = 2 * ms, .peer = 0});
  ReplayReport report = replay_of(job.graph());
  CHECK(end_of(report, 0, sent) == 32 * ms);
  CHECK(end_of(report, 1, received) == 32 * ms);
  CHECK(report.ranks[0].waiting_ns == 30 * ms);
  CHECK(report.ranks[0].exposed_comm_ns == 2 * ms);
}

TEST_CASE("the bubble of a 1F1B pipeline is (p - 1) / m of its work when messages cost nothing") {
  // Not structured bindings: clang 14 does not let lambdas use them.
  const auto pipeline = GENERATE(std::pair(2, 4), std::pair(4, 8), std::pair(8, 8), std::pair(4, 1));
  const int stages = pipeline.first, microbatches = pipeline.second;
  const std::int64_t forward = 10 * ms, backward = 20 * ms;
  Program job(stages);
  for (int s = 0; s < stages; ++s) {
    auto& rank = job[s];
    std::vector<std::int32_t> sends;
    auto run_forward = [&] {
      if (s > 0) rank.blocking({.op = Op::kRecv, .peer = s - 1, .tag = 0});
      rank.compute(forward);
      if (s + 1 < stages) sends.push_back(rank.issue({.op = Op::kSend, .peer = s + 1, .tag = 0}));
    };
    auto run_backward = [&] {
      if (s + 1 < stages) rank.blocking({.op = Op::kRecv, .peer = s + 1, .tag = 1});
      rank.compute(backward);
      if (s > 0) sends.push_back(rank.issue({.op = Op::kSend, .peer = s - 1, .tag = 1}));
    };
    int warm_up = std::min(microbatches, stages - s - 1);
    for (int i = 0; i < warm_up; ++i) run_forward();
    for (int i = 0; i < microbatches - warm_up; ++i) {
      run_forward();
      run_backward();
    }
    for (int i = 0; i < warm_up; ++i) run_backward();
    rank.wait(sends);
  }
  ReplayReport report = replay_of(job.graph());
  std::int64_t work = microbatches * (forward + backward);
  CHECK(report.critical_path_ns - work == (stages - 1) * (forward + backward));
  for (const auto& rank : report.ranks) CHECK(rank.busy_ns == work);
}

TEST_CASE("a late rank in a coalesced ring exchange holds its neighbours, not the rank two hops away") {
  Program job(4);
  std::vector<std::uint32_t> done;
  for (int r = 0; r < 4; ++r) {
    job[r].compute(1 * ms);
    auto works = job[r].batch({{.op = Op::kSend, .service = 1 * ms, .peer = (r + 1) % 4},
                               {.op = Op::kRecv, .service = 1 * ms, .peer = (r + 3) % 4}});
    done.push_back(job[r].wait(works));
  }
  ReplayReport report = replay_of(job.graph(), {.edits = {{.rank = 0, .add_ns = 250 * ms}}});
  CHECK(end_of(report, 0, done[0]) == 252 * ms);
  CHECK(end_of(report, 1, done[1]) == 252 * ms);
  CHECK(end_of(report, 2, done[2]) == 2 * ms);
  CHECK(end_of(report, 3, done[3]) == 252 * ms);
}

TEST_CASE("messages of one pair meet in order, and those of other tags pass them") {
  Program job(2);
  std::int32_t first = job[0].issue({.op = Op::kSend, .service = 1 * ms, .peer = 1, .tag = 5});
  job[0].compute(10 * ms);
  std::int32_t second = job[0].issue({.op = Op::kSend, .service = 1 * ms, .peer = 1, .tag = 6});
  job[0].wait({first, second});
  std::uint32_t tag6 = job[1].blocking({.op = Op::kRecv, .service = 1 * ms, .peer = 0, .tag = 6});
  std::uint32_t tag5 = job[1].blocking({.op = Op::kRecv, .service = 1 * ms, .peer = 0, .tag = 5});
  ReplayReport report = replay_of(job.graph());
  CHECK(end_of(report, 1, tag6) == 11 * ms);
  CHECK(end_of(report, 1, tag5) == 12 * ms);
}

TEST_CASE("a receive from any source takes whoever comes first in the replay") {
  Program job(3);
  job[0].compute(0);
  std::uint32_t one = job[0].blocking({.op = Op::kRecv, .service = 1 * ms, .peer = -1});
  job[0].compute(100 * ms);
  std::uint32_t two = job[0].blocking({.op = Op::kRecv, .service = 1 * ms, .peer = -1});
  std::uint32_t sent[3] = {};
  for (int r = 1; r < 3; ++r) {
    job[r].compute(10 * r * ms);
    sent[r] = job[r].blocking({.op = Op::kSend, .service = 1 * ms, .peer = 0});
    // What the record says of its ends does not matter: the service times are set below.
  }
  // In the record rank 1 came first. Here it comes after rank 2.
  ReplayReport report = replay_of(job.graph(), {.edits = {{.rank = 1, .add_ns = 30 * ms}}});
  CHECK(end_of(report, 2, sent[2]) < end_of(report, 1, sent[1]));
  CHECK(end_of(report, 0, one) == end_of(report, 2, sent[2]));
  CHECK(end_of(report, 0, two) == end_of(report, 1, sent[1]));
}

TEST_CASE("a message whose end was looked at late took no longer than its other end saw") {
  // Rank 0 sends at 0 and looks at 100 ms; rank 1, which blocked, had everything after 2 ms.
  Program job(2);
  std::int32_t send = job[0].issue({.op = Op::kSend, .peer = 1, .recorded_end = 100 * ms});
  job[0].compute(100 * ms);
  std::uint32_t looked = job[0].wait({send});
  std::uint32_t received = job[1].blocking({.op = Op::kRecv, .peer = 0, .recorded_end = 2 * ms});
  ReplayOptions late_receiver{.edits = {{.rank = 1, .node = 0, .add_ns = 30 * ms}}};
  ReplayReport report = replay_of(job.graph(), late_receiver);
  CHECK(end_of(report, 1, received) == 32 * ms);
  CHECK(end_of(report, 0, looked) == 100 * ms);
}

TEST_CASE("a receiver that slept on after the message had come keeps that as its wake-up time") {
  // The sender, which blocked, was done after 2 ms. The receiver looked at 10 ms and went on at 45 ms.
  Program job(2);
  job[0].blocking({.op = Op::kSend, .peer = 1, .recorded_end = 2 * ms});
  std::int32_t recv = job[1].issue({.op = Op::kRecv, .peer = 0, .recorded_end = 45 * ms});
  job[1].compute(10 * ms);
  std::uint32_t looked = job[1].wait({recv});
  job[1].record.nodes[looked].duration_ns = 35 * ms;
  CHECK(end_of(replay_of(job.graph()), 1, looked) == 45 * ms);
}
