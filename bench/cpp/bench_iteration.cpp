// One training iteration on a network: 16 pipeline stages by 1F1B with 32 microbatches, then rings of 64 replicas
// reduce the gradients of each stage; every rank has one link of 50 GB/s and 1 us to one switch. SimGrid 3.32 (CM02)
// has it at 166.547596 ms in 2.6 s for 1,024 ranks: 47 times forward and backward, 88 messages on the critical path,
// 126 steps of the ring. Here up to 1 ns more for each of the 89 ends, which the engine rounds up. Prints one JSON
// object a line.
#include <fmt/format.h>
#include <sys/resource.h>

#include <cmath>
#include <optional>
#include <random>
#include <string>

#include "core/deadline.hpp"
#include "graph/builder.hpp"
#include "replay/replay.hpp"
#include "replay/sweep.hpp"

using namespace prism;

namespace {

constexpr std::int64_t kForward = 1'000'000, kBackward = 2'000'000;  // ns
constexpr std::int64_t kActivations = 8 << 20, kGradients = 256 << 20;
constexpr double kSimGridMs = 166.547596;  // without jitter

struct Parallel {
  int stages, replicas, microbatches;
  int ring;  // replicas that reduce gradients together
};

class Record {
 public:
  Record(const Parallel& parallel, int stage, int replica) : replicas_(parallel.replicas) {
    record.rank = stage * replicas_ + replica;
    record.lanes = {"main"};
    record.groups = {{"world", {}}, {fmt::format("stage {} replicas {}", stage, replica / parallel.ring), {}}};
    for (int r = 0; r < parallel.stages * replicas_; ++r) record.groups[0].members.push_back(r);
    const int first = stage * replicas_ + replica / parallel.ring * parallel.ring;
    for (int r = 0; r < parallel.ring; ++r) record.groups[1].members.push_back(first + r);
  }
  void compute(std::int64_t duration) { node(NodeKind::kCompute, -1, duration); }
  std::uint32_t issue(Op op, std::int64_t bytes, int neighbour = 0) {
    const auto comm = static_cast<std::int32_t>(record.comms.size());
    const bool message = is_point_to_point(op);
    auto& seq = seq_[message ? (op == Op::kSend) + 2 * (neighbour > 0) : 4];
    record.comms.push_back({.op = op,
                            .group = message ? 0u : 1u,
                            .seq = seq++,
                            .peer = message ? record.rank + neighbour * replicas_ : -1,
                            .input_bytes = op == Op::kRecv ? 0 : bytes,
                            .output_bytes = op == Op::kSend ? 0 : bytes});
    const auto issued = node(NodeKind::kIssue, comm, 0), transfer = node(NodeKind::kTransfer, comm, 0);
    record.edges.push_back({issued, transfer});
    return transfer;
  }
  void wait(const std::vector<std::uint32_t>& transfers) {
    const auto waits = node(NodeKind::kWait, -1, 0);
    for (const auto transfer : transfers) record.edges.push_back({transfer, waits});
  }
  RankRecord record;

 private:
  std::uint32_t node(NodeKind kind, std::int32_t comm, std::int64_t duration) {
    record.nodes.push_back({.kind = kind, .comm = comm, .start_ns = now_, .duration_ns = duration});
    if (kind != NodeKind::kTransfer) now_ += duration;
    return static_cast<std::uint32_t>(record.nodes.size() - 1);
  }
  int replicas_;
  std::int64_t now_ = 0, seq_[5] = {};
};

// All receives are posted before the first microbatch and sends do not block, so that a message is under way as soon as
// it has been computed.
RankRecord record_of(const Parallel& parallel, int stage, int replica, bool jitter) {
  std::minstd_rand random(static_cast<unsigned>(1 + stage * parallel.replicas + replica));
  const auto about = [&](std::int64_t duration) {
    return jitter ? duration * static_cast<std::int64_t>(950 + random() % 101) / 1000 : duration;
  };
  Record rank(parallel, stage, replica);
  const bool first = stage == 0, last = stage == parallel.stages - 1;
  std::vector<std::uint32_t> activations, gradients, sent;
  for (int i = 0; i < parallel.microbatches; ++i) {
    if (!first) activations.push_back(rank.issue(Op::kRecv, kActivations, -1));
    if (!last) gradients.push_back(rank.issue(Op::kRecv, kActivations, +1));
  }
  int forwards = 0, backwards = 0;
  const auto forward = [&] {
    if (!first) rank.wait({activations[forwards++]});
    rank.compute(about(kForward));
    if (!last) sent.push_back(rank.issue(Op::kSend, kActivations, +1));
  };
  const auto backward = [&] {
    if (!last) rank.wait({gradients[backwards++]});
    rank.compute(about(kBackward));
    if (!first) sent.push_back(rank.issue(Op::kSend, kActivations, -1));
  };
  const int ahead = std::min(parallel.stages - 1 - stage, parallel.microbatches);
  for (int i = 0; i < ahead; ++i) forward();
  for (int i = ahead; i < parallel.microbatches; ++i) forward(), backward();
  for (int i = 0; i < ahead; ++i) backward();
  rank.wait(sent);
  rank.wait({rank.issue(Op::kAllReduce, kGradients)});
  return rank.record;
}

using Kind = simulate::NetworkKind;

struct Line {
  Parallel parallel;
  Kind kind;
  bool jitter;
  double limit;
  int ranks() const { return parallel.stages * parallel.replicas; }
  std::string name() const {
    const char* how = kind == Kind::kFlowLevel   ? "links shared"
                      : kind == Kind::kOccupancy ? "NIC occupancy"
                                                 : "closed form";
    return fmt::format("iteration of {} ranks, {}{}", ranks(), how, jitter ? ", +-5%" : "");
  }
};

std::optional<ExecutionGraph> graph_of(const Line& line) {
  const auto& parallel = line.parallel;
  GraphBuilder builder({.world_size = line.ranks(), .progress_model = "nccl", .timed = false});
  for (int rank = 0; rank < line.ranks(); ++rank) {
    auto record = record_of(parallel, rank / parallel.replicas, rank % parallel.replicas, line.jitter);
    if (auto added = builder.add(record); !added)
      return fmt::print(stderr, "{}\n", added.error().message), std::nullopt;
  }
  auto graph = builder.finish();
  if (!graph) return fmt::print(stderr, "{}\n", graph.error().message), std::nullopt;
  return *graph;
}

std::int64_t peak_mib() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_maxrss / 1024;
}

// An operation is what LogGOPSim takes as one: a span, a send, a receive, also those in the steps of the ring.
double operations(const Line& line) {
  const auto& [stages, replicas, microbatches, ring] = line.parallel;
  const double spans = 2.0 * stages * microbatches, messages = 4.0 * (stages - 1) * microbatches;
  return replicas * (spans + messages + stages * 4.0 * (ring - 1));
}

bool measure(const Line& line) {
  const auto graph = graph_of(line);
  if (!graph) return false;
  const auto topology = simulate::Topology::one_switch(line.ranks(), 50e9, 1'000'000);
  const auto before = peak_mib();
  const std::int64_t start = now_ns();
  auto report = replay(*graph, {.network = NetworkOptions{.topology = &topology, .kind = line.kind}});
  const double seconds = static_cast<double>(now_ns() - start) * 1e-9;
  if (!report) return fmt::print(stderr, "{}\n", report.error().message), false;
  const double ms = static_cast<double>(report->iterations[0].time_ns) * 1e-6;
  fmt::print("{}: {:.6f} ms, {:.1f} M operations, {} MiB more than before\n", line.name(), ms, operations(line) * 1e-6,
             peak_mib() - before);
  fmt::print("{{\"name\": \"{}\", \"value\": {:.3f}, \"unit\": \"s\", \"limit\": {}}}\n", line.name(), seconds,
             line.limit);
  return line.jitter || line.kind == Kind::kOccupancy || std::abs(ms - kSimGridMs) < 1e-4;
}

// Each transfer takes a time of its own. What is prepared once serves many sweeps.
bool measure_sweep(const Line& line) {
  const auto graph = graph_of(line);
  if (!graph) return false;
  auto job = engine::prepare(*graph);
  if (!job) return false;
  auto durations = engine::Durations::make(*job, {});
  const auto service = engine::service_times(*job, {.latency_ns = 1'000, .bytes_per_second = 50e9});
  auto sweep = engine::Sweep::make(*job);
  if (!durations || !sweep) return false;
  std::size_t nodes = 0;
  for (int rank = 0; rank < line.ranks(); ++rank) nodes += job->plan(rank).next_on_lane.size();
  const auto starts = engine::clock_starts(*job);
  if (!sweep->run(*durations, service, starts)) return false;  // takes the memory
  const std::int64_t start = now_ns();
  if (!sweep->run(*durations, service, starts)) return false;
  const double seconds = static_cast<double>(now_ns() - start) * 1e-9;
  const auto name = fmt::format("iteration of {} ranks, sweep", line.ranks());
  fmt::print("{}: {:.1f} M operations, {:.1f} M nodes, {:.1f} bytes of scratch a node\n", name, operations(line) * 1e-6,
             static_cast<double>(nodes) * 1e-6,
             static_cast<double>(sweep->scratch_bytes()) / static_cast<double>(nodes));
  fmt::print("{{\"name\": \"{}\", \"value\": {:.3f}, \"unit\": \"s\", \"limit\": {}}}\n", name, seconds, line.limit);
  fmt::print(
      "{{\"name\": \"{}\", \"value\": {:.1f}, \"unit\": \"M nodes/s\", \"limit\": 20, \"better\": \"higher\"}}\n", name,
      static_cast<double>(nodes) * 1e-6 / seconds);
  return true;
}

}  // namespace

// With an argument: the lines that have it in their names.
int main(int argc, char** argv) {
  const Parallel thousand{16, 64, 32, 64}, sixteen_thousand{16, 1024, 32, 64}, all{16, 4096, 32, 64};
  const std::string only = argc > 1 ? argv[1] : "";
  const Line lines[] = {{thousand, Kind::kClosedForm, false, 1},   {thousand, Kind::kFlowLevel, false, 1},
                        {thousand, Kind::kFlowLevel, true, 1},     {sixteen_thousand, Kind::kFlowLevel, true, 30},
                        {thousand, Kind::kOccupancy, true, 0.185}, {sixteen_thousand, Kind::kOccupancy, true, 1.2},
                        {all, Kind::kOccupancy, true, 5}};
  for (const auto& line : lines)
    if (line.name().find(only) != std::string::npos && !measure(line)) return 1;
  if (std::string("65536 ranks, sweep").find(only) != std::string::npos &&
      !measure_sweep({all, Kind::kClosedForm, true, 0.5}))
    return 1;
  return 0;
}
