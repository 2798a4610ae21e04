// A receiver tells its sender that it is ready; that word waits behind what its host is sending.
#include "program.hpp"
#include "simulate/topologies.hpp"

using namespace prism;
using namespace prism::test;
using simulate::Topology;
using simulate::TopologySpec;

namespace {

constexpr std::int64_t MB = 1'000'000;

ReplayReport on(const Topology& topology, const ExecutionGraph& graph) {
  return replay_of(graph, {.network = NetworkOptions{.topology = &topology}});
}

}  // namespace

TEST_CASE("a receiver's word that it is ready waits behind what its host is sending") {
  TopologySpec spec = Topology::one_switch(3, 1e9, 0).spec();
  spec.queue_bytes = 100'000;  // 0.1 ms
  const auto topology = Topology::make(std::move(spec)).value();
  // Rank 1 comes after 1 ms; rank 0 waits to send 1 MB (1 ms) to it, rank 2 for what it sends.
  const auto ends = [&](bool sends_first) {
    Program job(3, "nccl");
    job[0].blocking({.op = Op::kSend, .peer = 1, .bytes = MB});
    job[2].blocking({.op = Op::kRecv, .peer = 1, .bytes = MB});
    job[1].compute(ms);
    const CommSpec send{.op = Op::kSend, .peer = 2, .bytes = MB}, receive{.op = Op::kRecv, .peer = 0, .bytes = MB};
    const auto both = job[1].batch(sends_first ? std::vector{send, receive} : std::vector{receive, send});
    job[1].wait(both);
    const auto report = on(topology, job.graph(false));
    return std::pair(end_of(report, 1, job[1].transfers[sends_first ? 1 : 0]), end_of(report, 2, job[2].transfers[0]));
  };
  CHECK(ends(false) == std::pair(2 * ms, 2 * ms));
  CHECK(ends(true) == std::pair(2 * ms + ms / 10, 2 * ms));
}

TEST_CASE("a word waits for what is left of each message, up to the queue") {
  TopologySpec spec = Topology::one_switch(4, 1e9, 0).spec();
  spec.queue_bytes = 100'000;  // 0.1 ms
  const auto topology = Topology::make(std::move(spec)).value();
  // Rank 1 sends 1 MB (1 ms) to each of `receivers`, and is ready for 1 MB of rank 0 `later` ns after that.
  const auto end = [&](const std::vector<int>& receivers, std::int64_t later) {
    Program job(4, "nccl");
    job[0].blocking({.op = Op::kSend, .peer = 1, .bytes = MB});
    std::vector<CommSpec> sends;
    for (const int receiver : receivers) {
      job[receiver].blocking({.op = Op::kRecv, .peer = 1, .bytes = MB});
      sends.push_back({.op = Op::kSend, .peer = receiver, .bytes = MB});
    }
    job[1].compute(ms);  // all others are there
    const auto sent = job[1].batch(sends);
    if (later > 0) job[1].compute(later);
    const auto received = job[1].batch({{.op = Op::kRecv, .peer = 0, .bytes = MB}});
    job[1].wait(sent);
    job[1].wait(received);
    return end_of(on(topology, job.graph(false)), 1, job[1].transfers.back()) - ms;
  };
  CHECK(end({2}, 0) == ms / 10 + ms);
  CHECK(end({2}, ms / 2) == ms / 2 + ms / 10 + ms);
  CHECK(end({2}, 95 * ms / 100) == ms + ms);  // 50 kB are left
  CHECK(end({2}, 2 * ms) == 2 * ms + ms);
  CHECK(end({2, 3}, 0) == ms / 5 + ms);  // 100 kB of each
}

TEST_CASE("behind what goes to the same rank a word waits until all of it is there") {
  TopologySpec spec = Topology::one_switch(2, 1e9, 0).spec();
  spec.queue_bytes = 100'000;
  const auto topology = Topology::make(std::move(spec)).value();
  for (const bool sends_first : {false, true}) {
    Program job(2, "nccl");
    job[0].wait(job[0].batch({{.op = Op::kRecv, .peer = 1, .bytes = MB}, {.op = Op::kSend, .peer = 1, .bytes = MB}}));
    job[1].compute(ms);
    const CommSpec send{.op = Op::kSend, .peer = 0, .bytes = MB}, receive{.op = Op::kRecv, .peer = 0, .bytes = MB};
    job[1].wait(job[1].batch(sends_first ? std::vector{send, receive} : std::vector{receive, send}));
    const auto report = on(topology, job.graph(false));
    CHECK(report.critical_path_ns == (sends_first ? 3 * ms : 2 * ms));  // one after the other, or both at once
  }
}
