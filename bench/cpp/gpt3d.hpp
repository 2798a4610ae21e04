// A GPT trained with tensor, pipeline and data parallelism, as a graph: what examples/gpt3d.py does, at the scale of
// thousands of ranks. Tensor ranks are adjacent, then come data-parallel replicas, then pipeline stages.
//
// A stage has one layer and runs 1F1B. In each direction of a microbatch it computes two halves of the layer, and the
// tensor group all-reduces after each. The gradients go to the data-parallel group in buckets, behind the backward pass
// of the last microbatch; the parameters come back the same way. With 32 microbatches and 24 buckets a rank in the
// middle has 438 operations an iteration: spans and communications, sends and receives each counted.
#pragma once
#include <fmt/format.h>

#include <optional>
#include <random>
#include <vector>

#include "graph/builder.hpp"

namespace prism::bench {

struct Gpt3d {
  int tp = 8, pp = 16, dp = 64;
  int iterations = 2;
  int microbatches = 32, buckets = 24;
  std::int64_t half_ns = 3'260'000;  // half a layer forward; backward takes twice that
  std::int64_t tensor_bytes = 8 << 20, activation_bytes = 8 << 20, bucket_bytes = 16 << 20;
  bool jitter = true;  // +-5% on every span

  int ranks() const { return tp * pp * dp; }
  int rank(int stage, int replica, int shard) const { return (stage * dp + replica) * tp + shard; }
};

class Gpt3dRank {
 public:
  Gpt3dRank(const Gpt3d& job, int number)
      : job_(job), stage_(number / job.tp / job.dp), random_(static_cast<unsigned>(1 + number)) {
    const int replica = number / job.tp % job.dp, shard = number % job.tp;
    record.rank = number;
    record.lanes = {"main"};
    record.groups = {{fmt::format("tp {} {}", stage_, replica), {}},
                     {fmt::format("dp {} {}", stage_, shard), {}},
                     {fmt::format("pp {} {}", replica, shard), {}}};
    for (int t = 0; t < job.tp; ++t) record.groups[kTensor].members.push_back(job.rank(stage_, replica, t));
    for (int d = 0; d < job.dp; ++d) record.groups[kData].members.push_back(job.rank(stage_, d, shard));
    for (int p = 0; p < job.pp; ++p) record.groups[kPipeline].members.push_back(job.rank(p, replica, shard));
    for (int i = 0; i < job.iterations; ++i) iteration();
    record.marks.push_back(compute(0));
  }
  RankRecord record;
  std::size_t operations = 0;  // of one iteration

 private:
  enum Group { kTensor, kData, kPipeline };

  void iteration() {
    operations = 0;
    record.marks.push_back(static_cast<std::uint32_t>(record.nodes.size()));
    const int ahead = std::min(job_.pp - 1 - stage_, job_.microbatches);
    for (int i = 0; i < ahead; ++i) forward();
    for (int i = ahead; i < job_.microbatches; ++i) forward(), backward(i - ahead);
    for (int i = job_.microbatches - ahead; i < job_.microbatches; ++i) backward(i);
    wait(sent_);
    wait(reduced_);
    sent_.clear(), reduced_.clear();
    compute(job_.half_ns);  // the optimizer
    std::vector<std::uint32_t> gathered;
    for (int b = 0; b < job_.buckets; ++b) gathered.push_back(issue(Op::kAllGather, kData, job_.bucket_bytes));
    wait(gathered);
    wait({issue(Op::kAllReduce, kPipeline, 8)});  // the norm of the gradients
  }
  void forward() {
    if (stage_ > 0) wait({issue(Op::kRecv, kPipeline, job_.activation_bytes, -1)});
    for (int half = 0; half < 2; ++half) {
      compute(job_.half_ns);
      wait({issue(Op::kAllReduce, kTensor, job_.tensor_bytes)});
    }
    if (stage_ < job_.pp - 1) sent_.push_back(issue(Op::kSend, kPipeline, job_.activation_bytes, +1));
  }
  void backward(int microbatch) {
    if (stage_ < job_.pp - 1) wait({issue(Op::kRecv, kPipeline, job_.activation_bytes, +1)});
    for (int half = 0; half < 2; ++half) {
      compute(2 * job_.half_ns);
      wait({issue(Op::kAllReduce, kTensor, job_.tensor_bytes)});
      for (int b = 0; microbatch == job_.microbatches - 1 && b < job_.buckets / 2; ++b)
        reduced_.push_back(issue(Op::kReduceScatter, kData, job_.bucket_bytes));
    }
    if (stage_ > 0) sent_.push_back(issue(Op::kSend, kPipeline, job_.activation_bytes, -1));
  }

  std::uint32_t compute(std::int64_t duration) {
    ++operations;
    if (job_.jitter) duration = duration * static_cast<std::int64_t>(950 + random_() % 101) / 1000;
    return node(NodeKind::kCompute, -1, duration);
  }
  std::uint32_t issue(Op op, Group group, std::int64_t bytes, int towards = 0) {
    ++operations;
    const auto comm = static_cast<std::int32_t>(record.comms.size());
    const bool message = is_point_to_point(op);
    auto& seq = seq_[message ? 3 + (op == Op::kSend) + 2 * (towards > 0) : group];
    record.comms.push_back({.op = op,
                            .group = static_cast<std::uint32_t>(group),
                            .seq = seq++,
                            .peer = message ? record.rank + towards * job_.dp * job_.tp : -1,
                            .input_bytes = op == Op::kRecv ? 0 : bytes,
                            .output_bytes = op == Op::kSend ? 0 : bytes});
    const auto issued = node(NodeKind::kIssue, comm, kIssueNs), transfer = node(NodeKind::kTransfer, comm, 0);
    record.edges.push_back({issued, transfer});
    return transfer;
  }
  void wait(const std::vector<std::uint32_t>& transfers) {
    const auto waits = node(NodeKind::kWait, -1, 0);
    for (const auto transfer : transfers) record.edges.push_back({transfer, waits});
  }
  std::uint32_t node(NodeKind kind, std::int32_t comm, std::int64_t duration) {
    record.nodes.push_back({.kind = kind, .comm = comm, .start_ns = now_, .duration_ns = duration});
    if (kind != NodeKind::kTransfer) now_ += duration;
    return static_cast<std::uint32_t>(record.nodes.size() - 1);
  }

  static constexpr std::int64_t kIssueNs = 10'000;
  const Gpt3d job_;
  const int stage_;
  std::minstd_rand random_;
  std::int64_t now_ = 0, seq_[7] = {};
  std::vector<std::uint32_t> sent_, reduced_;
};

// Prints what is wrong. `operations`: of all ranks in one iteration.
inline std::optional<ExecutionGraph> graph_of(const Gpt3d& job, std::size_t& operations) {
  GraphBuilder builder({.world_size = job.ranks(), .progress_model = "nccl", .timed = false});
  operations = 0;
  for (int rank = 0; rank < job.ranks(); ++rank) {
    const Gpt3dRank one(job, rank);
    operations += one.operations;
    if (auto added = builder.add(one.record); !added)
      return fmt::print(stderr, "{}\n", added.error().message), std::nullopt;
  }
  auto graph = builder.finish();
  if (!graph) return fmt::print(stderr, "{}\n", graph.error().message), std::nullopt;
  return *graph;
}

}  // namespace prism::bench
