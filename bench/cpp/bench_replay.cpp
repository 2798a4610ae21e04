// Speed of an offline replay. Prints one JSON object a line.
#include <fmt/format.h>

#include <numeric>

#include "core/deadline.hpp"
#include "graph/builder.hpp"
#include "replay/replay.hpp"

using namespace prism;

namespace {

// `steps` times: a span, a ring exchange with both neighbours, a span, an all_reduce of everybody.
RankRecord record_of(int rank, int ranks, int steps) {
  RankRecord record;
  record.rank = rank;
  record.lanes = {"main"};
  std::vector<std::int32_t> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  record.groups = {{"world", members}};
  std::int64_t now = 0;
  auto node = [&](NodeKind kind, std::int32_t comm, std::int64_t duration) {
    record.nodes.push_back({.kind = kind, .comm = comm, .start_ns = now, .duration_ns = duration});
    if (kind != NodeKind::kTransfer) now += duration;
    return static_cast<std::uint32_t>(record.nodes.size() - 1);
  };
  auto issue = [&](Op op, std::int64_t seq, std::int32_t peer) {
    auto comm = static_cast<std::int32_t>(record.comms.size());
    record.comms.push_back({.op = op, .seq = seq, .peer = peer});
    std::uint32_t issued = node(NodeKind::kIssue, comm, 2'000), transfer = node(NodeKind::kTransfer, comm, 50'000);
    record.edges.push_back({issued, transfer});
    return transfer;
  };
  for (int i = 0; i < steps; ++i) {
    node(NodeKind::kCompute, -1, 100'000 + (rank * 7919 + i * 104'729) % 50'000);
    std::uint32_t sent = issue(Op::kSend, i, (rank + 1) % ranks),
                  received = issue(Op::kRecv, i, (rank + ranks - 1) % ranks);
    node(NodeKind::kCompute, -1, 100'000);
    std::uint32_t wait = node(NodeKind::kWait, -1, 0);
    record.edges.push_back({sent, wait});
    record.edges.push_back({received, wait});
    std::uint32_t reduced = issue(Op::kAllReduce, i, -1);
    record.edges.push_back({reduced, node(NodeKind::kWait, -1, 0)});
  }
  return record;
}

}  // namespace

int main() {
  for (auto [ranks, steps] : {std::pair(16, 20'000), std::pair(1024, 300)}) {
    GraphBuilder builder(
        {.world_size = ranks, .progress_model = "gloo", .timed = true, .metadata_json = R"({"clock_domain": "one"})"});
    std::size_t nodes = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      RankRecord record = record_of(rank, ranks, steps);
      nodes += record.nodes.size();
      if (auto added = builder.add(record); !added) {
        fmt::print(stderr, "{}\n", added.error().message);
        return 1;
      }
    }
    auto graph = builder.finish();
    if (!graph) return 1;
    for (const bool analysis : {false, true}) {
      std::int64_t start = now_ns();
      auto report = replay(*graph, {.analysis = analysis});
      double seconds = static_cast<double>(now_ns() - start) * 1e-9;
      if (!report) {
        fmt::print(stderr, "{}\n", report.error().message);
        return 1;
      }
      fmt::print(
          "{{\"name\": \"replay{}: {} ranks, {:.1f} M nodes\", \"value\": {:.2f}, \"unit\": \"M nodes/s\", \"limit\": "
          "2, \"better\": \"higher\"}}\n",
          analysis ? " and analysis" : "", ranks, static_cast<double>(nodes) * 1e-6,
          static_cast<double>(nodes) * 1e-6 / seconds);
    }
  }
}
