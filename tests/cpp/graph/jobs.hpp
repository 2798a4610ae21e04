// Training jobs written down by hand, as a recorder would record them.
#pragma once
#include <string>
#include <vector>

#include "folder.hpp"
#include "graph/builder.hpp"

namespace prism::test {

// Appends to a record in program order on one lane, 10 ns a node.
class Writer {
 public:
  Writer(int rank, std::vector<RankRecord::Group> groups) {
    record.rank = rank;
    record.lanes = {"main"};
    record.groups = std::move(groups);
  }

  void compute(std::string_view name = {}) { node(NodeKind::kCompute, -1, name); }
  // Issues a collective; returns it for wait().
  std::int32_t collective(Op op, std::uint32_t group, std::int64_t bytes, std::int32_t root = -1) {
    RankRecord::Comm comm;
    comm.op = op;
    comm.dtype = DType::kFloat32;
    comm.reduce_op = is_reduction(op) ? ReduceOp::kSum : ReduceOp::kNone;
    comm.group = group;
    comm.seq = seq_[group]++;
    comm.peer = root;
    if (root >= 0 && record.groups[group].members[root] == record.rank) comm.flags = kCommIsRoot;
    comm.input_bytes = comm.output_bytes = bytes;
    return issue(comm);
  }
  std::int32_t message(Op op, std::uint32_t group, std::int32_t peer, std::int64_t bytes, std::int32_t tag = 0) {
    RankRecord::Comm comm;
    comm.op = op;
    comm.dtype = DType::kFloat32;
    comm.group = group;
    comm.peer = peer;
    comm.tag = tag;
    for (const auto& earlier : record.comms)
      comm.seq += earlier.op == op && earlier.peer == peer && earlier.tag == tag && earlier.group == group;
    (op == Op::kSend ? comm.input_bytes : comm.output_bytes) = bytes;
    return issue(comm);
  }
  void wait(std::int32_t comm) {
    const auto at = node(NodeKind::kWait, comm);
    for (std::uint32_t i = 0; i < at; ++i)
      if (record.nodes[i].kind == NodeKind::kTransfer && record.nodes[i].comm == comm) record.edges.push_back({i, at});
  }
  void all_reduce(std::uint32_t group, std::int64_t bytes) { wait(collective(Op::kAllReduce, group, bytes)); }
  void mark() { record.marks.push_back(static_cast<std::uint32_t>(record.nodes.size())); }

  RankRecord record;

 private:
  std::uint32_t node(NodeKind kind, std::int32_t comm, std::string_view name = {}) {
    record.nodes.push_back({kind, 0, comm, name, now_, 10});
    now_ += 10;
    return static_cast<std::uint32_t>(record.nodes.size() - 1);
  }
  std::int32_t issue(const RankRecord::Comm& comm) {
    const auto id = static_cast<std::int32_t>(record.comms.size());
    record.comms.push_back(comm);
    const auto at = node(NodeKind::kIssue, id);
    record.edges.push_back({at, node(NodeKind::kTransfer, id)});
    return id;
  }
  std::int64_t now_ = 0;
  std::int64_t seq_[16] = {};
};

// Tensor x pipeline x data parallel training: rank = (d * pp + p) * tp + t, as Megatron numbers them with dp outermost.
struct Job3D {
  int tp = 2, pp = 4, dp = 2, iterations = 3, microbatches = 2;
  int world() const { return tp * pp * dp; }
  int rank_of(int t, int p, int d) const { return (d * pp + p) * tp + t; }

  RankRecord record(int rank) const {
    const int t = rank % tp, p = rank / tp % pp, d = rank / tp / pp;
    RankRecord::Group world{"world", {}}, tensor{"tp" + std::to_string(d * pp + p), {}},
        pipe{"pp" + std::to_string(d * tp + t), {}}, data{"dp" + std::to_string(p * tp + t), {}};
    for (int r = 0; r < this->world(); ++r) world.members.push_back(r);
    for (int i = 0; i < tp; ++i) tensor.members.push_back(rank_of(i, p, d));
    for (int i = 0; i < pp; ++i) pipe.members.push_back(rank_of(t, i, d));
    for (int i = 0; i < dp; ++i) data.members.push_back(rank_of(t, p, i));
    Writer w(rank, {world, tensor, pipe, data});
    w.wait(w.collective(Op::kBarrier, 0, 0));
    for (int i = 0; i < iterations; ++i) {
      w.mark();
      for (int m = 0; m < microbatches; ++m) {
        if (p > 0) w.wait(w.message(Op::kRecv, 2, rank_of(t, p - 1, d), 512));
        w.compute("forward");
        w.all_reduce(1, 512);
        if (p + 1 < pp) w.wait(w.message(Op::kSend, 2, rank_of(t, p + 1, d), 512));
      }
      for (int m = 0; m < microbatches; ++m) {
        if (p + 1 < pp) w.wait(w.message(Op::kRecv, 2, rank_of(t, p + 1, d), 512));
        w.compute("backward");
        w.all_reduce(1, 512);
        if (p > 0) w.wait(w.message(Op::kSend, 2, rank_of(t, p - 1, d), 512));
      }
      w.all_reduce(3, 4096);
      w.compute("optimizer");
    }
    w.record.memory = {{2, 1000, 1500}, {5, 800, 2000 + rank}};
    return w.record;
  }

  Result<ExecutionGraph> build(bool reversed = false) const {
    GraphBuilder builder({.world_size = world(), .timed = true, .metadata_json = R"({"program":"train.py"})"});
    for (int i = 0; i < world(); ++i) PRISM_RETURN_IF_ERROR(builder.add(record(reversed ? world() - 1 - i : i)));
    return builder.finish();
  }
};

// The job's trace as a file; returns its path.
std::string written(const Folder& folder, const Job3D& job = {});

}  // namespace prism::test
