// Training programs of a few lines, as graphs: what each rank computes, issues and waits for.
//
// In the record that a Program stands for nothing had to be waited for: compute spans follow each other, and a transfer
// ends `service` after its last member has come (or when the test says). Replay recomputes all waits, so that this
// record has the same replay as one with the waits in it.
#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "catch2.hpp"
#include "graph/builder.hpp"
#include "replay/replay.hpp"

namespace prism::test {

constexpr std::int64_t ms = 1'000'000;

struct CommSpec {
  Op op = Op::kAllReduce;
  std::int64_t service = 0;
  std::int32_t peer = -1;
  std::int32_t tag = 0;
  std::uint32_t group = 0;
  std::optional<std::int64_t> recorded_end = {};
  std::int64_t bytes = 0;
};

class RankProgram {
 public:
  RankProgram(int rank, std::vector<RankRecord::Group> groups) {
    record.rank = rank;
    record.groups = std::move(groups);
    lane("main");
  }
  // What follows happens on this lane, which begins at `at`.
  void lane(const std::string& name, std::int64_t at = 0) {
    auto known = std::find(record.lanes.begin(), record.lanes.end(), name);
    lane_ = static_cast<std::uint16_t>(known - record.lanes.begin());
    if (known != record.lanes.end()) return;
    record.lanes.push_back(name);
    now_.push_back(at);
  }
  std::uint32_t compute(std::int64_t duration, std::string_view name = {}) {
    return node({.kind = NodeKind::kCompute, .name = name, .duration_ns = duration});
  }
  std::int32_t issue(const CommSpec& spec, std::int64_t host = 0) { return batch({spec}, host).front(); }
  // Issued in one call.
  std::vector<std::int32_t> batch(const std::vector<CommSpec>& list, std::int64_t host = 0) {
    std::vector<std::int32_t> comms;
    std::uint32_t issue = 0;
    for (const CommSpec& spec : list) {
      auto comm = static_cast<std::int32_t>(record.comms.size());
      auto key = is_point_to_point(spec.op) ? std::tuple(spec.group, spec.peer, spec.tag, spec.op)
                                            : std::tuple(spec.group, -1, 0, Op::kNone);
      record.comms.push_back({.op = spec.op,
                              .group = spec.group,
                              .seq = seq_[key]++,
                              .peer = spec.peer,
                              .tag = spec.tag,
                              .batch = list.size() > 1 ? comm : -1,
                              .input_bytes = spec.bytes,
                              .output_bytes = spec.bytes});
      specs.push_back(spec);
      if (comms.empty()) issue = node({.kind = NodeKind::kIssue, .comm = comm, .duration_ns = host});
      transfers.push_back(node({.kind = NodeKind::kTransfer, .comm = comm}));
      record.edges.push_back({issue, transfers.back()});
      comms.push_back(comm);
    }
    return comms;
  }
  std::uint32_t wait(const std::vector<std::int32_t>& comms) {
    std::uint32_t wait = node({.kind = NodeKind::kWait, .comm = comms.front()});
    for (std::int32_t comm : comms) record.edges.push_back({transfers[static_cast<std::size_t>(comm)], wait});
    return wait;
  }
  std::uint32_t blocking(const CommSpec& spec) { return wait({issue(spec)}); }
  void mark() { record.marks.push_back(static_cast<std::uint32_t>(record.nodes.size())); }

  RankRecord record;
  std::vector<CommSpec> specs;           // [comms]
  std::vector<std::uint32_t> transfers;  // [comms]

 private:
  std::uint32_t node(RankRecord::Node node) {
    node.lane = lane_;
    node.start_ns = now_[lane_];
    now_[lane_] += node.duration_ns;
    record.nodes.push_back(node);
    return static_cast<std::uint32_t>(record.nodes.size() - 1);
  }
  std::uint16_t lane_ = 0;
  std::vector<std::int64_t> now_;
  std::map<std::tuple<std::uint32_t, std::int32_t, std::int32_t, Op>, std::int64_t> seq_;
};

class Program {
 public:
  explicit Program(int world_size, std::string progress_model = "gloo") : model_(std::move(progress_model)) {
    std::vector<std::int32_t> members;
    for (int r = 0; r < world_size; ++r) members.push_back(r);
    for (int r = 0; r < world_size; ++r) ranks.emplace_back(r, std::vector<RankRecord::Group>{{"world", members}});
  }
  RankProgram& operator[](int rank) { return ranks[static_cast<std::size_t>(rank)]; }

  // `metadata`: by default all clocks are one.
  ExecutionGraph graph(bool timed = true, std::string metadata = R"({"clock_domain": "one"})") {
    std::map<std::tuple<std::string, std::int64_t, int, int, int>, std::int64_t> last;  // when the last member came
    auto key = [](const RankProgram& rank, std::size_t comm) {
      const auto& c = rank.record.comms[comm];
      bool sends = c.op == Op::kSend;
      const std::string& group = rank.record.groups[c.group].name;
      if (!is_point_to_point(c.op)) return std::tuple(group, c.seq, -1, -1, -1);
      return std::tuple(group, c.seq, sends ? rank.record.rank : c.peer, sends ? c.peer : rank.record.rank, c.tag);
    };
    for (const RankProgram& rank : ranks)
      for (std::size_t c = 0; c < rank.transfers.size(); ++c) {
        auto [it, added] = last.try_emplace(key(rank, c), 0);
        it->second = std::max(it->second, rank.record.nodes[rank.transfers[c]].start_ns);
      }
    GraphBuilder builder({.world_size = static_cast<int>(ranks.size()),
                          .progress_model = model_,
                          .timed = timed,
                          .metadata_json = std::move(metadata)});
    for (RankProgram& rank : ranks) {
      for (std::size_t c = 0; c < rank.transfers.size(); ++c) {
        auto& node = rank.record.nodes[rank.transfers[c]];
        node.duration_ns =
            rank.specs[c].recorded_end.value_or(last[key(rank, c)] + rank.specs[c].service) - node.start_ns;
      }
      auto added = builder.add(rank.record);
      INFO((added ? std::string() : added.error().message));
      REQUIRE(added.ok());
    }
    auto graph = builder.finish();
    REQUIRE(graph.ok());
    return *graph;
  }

  std::vector<RankProgram> ranks;

 private:
  std::string model_;
};

inline ReplayReport replay_of(const ExecutionGraph& graph, const ReplayOptions& options = {}) {
  auto report = replay(graph, options);
  INFO((report ? std::string() : report.error().message));
  REQUIRE(report.ok());
  return *report;
}

inline std::int64_t end_of(const ReplayReport& report, int rank, std::uint32_t node) {
  const auto& timeline = report.timelines[static_cast<std::size_t>(rank)];
  return timeline.start_ns[node] + timeline.duration_ns[node];
}

}  // namespace prism::test
