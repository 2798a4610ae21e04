#include "graph/check.hpp"

#include <limits>
#include <optional>

namespace prism {
namespace {

Result<void> check_nodes(const ClassView& v, const ClassLimits& limits, const Where& where) {
  const auto comms = static_cast<std::int64_t>(v.comm_op.size());
  // Bit 0: the communication has an issue node, bit 1: it has a transfer node.
  std::vector<std::uint8_t> seen(v.comm_op.size(), 0);
  for (std::size_t i = 0; i < v.node_kind.size(); ++i) {
    const auto kind = static_cast<NodeKind>(v.node_kind[i]);
    if (kind >= NodeKind::kCount)
      return where.bad("node_kind", i, v.node_kind[i], "0 to 3 (compute, issue, transfer, wait)");
    if (v.node_lane[i] >= v.lane_name.size())
      return where.bad("node_lane", i, v.node_lane[i], fmt::format("below {} lanes", v.lane_name.size()));
    if (v.node_name[i] != kNoName && v.node_name[i] >= limits.strings)
      return where.bad("node_name", i, v.node_name[i], fmt::format("below {} strings, or none", limits.strings));
    const bool needs_comm = kind == NodeKind::kIssue || kind == NodeKind::kTransfer;
    if (v.node_comm[i] < (needs_comm ? 0 : -1) || v.node_comm[i] >= comms)
      return where.bad("node_comm", i, v.node_comm[i], fmt::format("{} to {}", needs_comm ? 0 : -1, comms - 1));
    if (needs_comm) {
      const std::uint8_t bit = kind == NodeKind::kIssue ? 1 : 2;
      if (seen[v.node_comm[i]] & bit)
        return where.bad("node_comm", i, v.node_comm[i], "one issue and one transfer a communication");
      seen[v.node_comm[i]] |= bit;
    }
  }
  for (std::size_t i = 0; i < v.lane_name.size(); ++i)
    if (v.lane_name[i] >= limits.strings)
      return where.bad("lane_name", i, v.lane_name[i], fmt::format("below {} strings", limits.strings));
  for (std::size_t i = 0; i < v.mark_node.size(); ++i)
    if (v.mark_node[i] >= v.node_kind.size() || (i > 0 && v.mark_node[i] <= v.mark_node[i - 1]))
      return where.bad("mark_node", i, v.mark_node[i], fmt::format("ascending, below {} nodes", v.node_kind.size()));
  return {};
}

Result<void> check_comms(const ClassView& v, const ClassLimits& limits, const Where& where) {
  for (std::size_t i = 0; i < v.comm_op.size(); ++i) {
    const auto op = static_cast<Op>(v.comm_op[i]);
    if (op == Op::kNone || op >= Op::kCount)
      return where.bad("comm_op", i, v.comm_op[i], fmt::format("1 to {}", static_cast<int>(Op::kCount) - 1));
    if (v.comm_dtype[i] >= static_cast<int>(DType::kCount))
      return where.bad("comm_dtype", i, v.comm_dtype[i], fmt::format("0 to {}", static_cast<int>(DType::kCount) - 1));
    if (v.comm_reduce_op[i] >= static_cast<int>(ReduceOp::kCount))
      return where.bad("comm_reduce_op", i, v.comm_reduce_op[i],
                       fmt::format("0 to {}", static_cast<int>(ReduceOp::kCount) - 1));
    if (v.comm_flags[i] > (is_rooted(op) ? kCommAsync | kCommIsRoot : kCommAsync))
      return where.bad("comm_flags", i, v.comm_flags[i], "1 (async), and 2 (root) for rooted operations");
    if (v.comm_group[i] >= limits.group_sizes.size())
      return where.bad("comm_group", i, v.comm_group[i], fmt::format("below {} groups", limits.group_sizes.size()));
    if (v.comm_seq[i] < 0) return where.bad("comm_seq", i, v.comm_seq[i], "not negative");
    if (v.comm_batch[i] < -1) return where.bad("comm_batch", i, v.comm_batch[i], "-1 or a number of a batch");
    if (v.comm_input_bytes[i] < 0) return where.bad("comm_input_bytes", i, v.comm_input_bytes[i], "not negative");
    if (v.comm_output_bytes[i] < 0) return where.bad("comm_output_bytes", i, v.comm_output_bytes[i], "not negative");
    std::int64_t lowest = -1, end = 0;  // neither a message nor rooted: only -1
    if (op == Op::kSend || op == Op::kRecv) {
      lowest = op == Op::kRecv ? -1 : 0;  // only a receive may take any source
      end = static_cast<std::int64_t>(limits.peers);
    } else if (is_rooted(op)) {
      lowest = 0;
      end = static_cast<std::int64_t>(limits.group_sizes[v.comm_group[i]]);
    }
    if (v.comm_peer[i] < lowest || v.comm_peer[i] >= end)
      return where.bad("comm_peer", i, v.comm_peer[i], fmt::format("{} to {} for {}", lowest, end - 1, name(op)));
    if (!is_point_to_point(op) && v.comm_tag[i] != 0)
      return where.bad("comm_tag", i, v.comm_tag[i], "0 but in messages");
  }
  return {};
}

// Kahn's algorithm over lane order and edges. Returns a node on or behind a cycle, if there is one.
std::optional<std::uint32_t> node_in_cycle(const ClassView& v) {
  const auto nodes = v.node_kind.size();
  const std::uint32_t none = kNoName;
  std::vector<std::uint32_t> next(nodes, none), last(v.lane_name.size(), none), incoming(nodes, 0);
  for (std::uint32_t i = 0; i < nodes; ++i) {
    if (v.node_kind[i] == static_cast<std::uint8_t>(NodeKind::kTransfer)) continue;  // not in lane order
    auto& previous = last[v.node_lane[i]];
    if (previous != none) {
      next[previous] = i;
      ++incoming[i];
    }
    previous = i;
  }
  std::vector<std::uint32_t> first(nodes + 1, 0), targets(v.edge_src.size());
  for (const auto src : v.edge_src) ++first[src + 1];
  for (std::size_t i = 0; i < nodes; ++i) first[i + 1] += first[i];
  auto fill = first;
  for (std::size_t e = 0; e < v.edge_src.size(); ++e) {
    targets[fill[v.edge_src[e]]++] = v.edge_dst[e];
    ++incoming[v.edge_dst[e]];
  }
  std::vector<std::uint32_t> ready;
  for (std::uint32_t i = 0; i < nodes; ++i)
    if (incoming[i] == 0) ready.push_back(i);
  std::size_t done = 0;
  while (!ready.empty()) {
    const auto node = ready.back();
    ready.pop_back();
    ++done;
    if (next[node] != none && --incoming[next[node]] == 0) ready.push_back(next[node]);
    for (auto e = first[node]; e < first[node + 1]; ++e)
      if (--incoming[targets[e]] == 0) ready.push_back(targets[e]);
  }
  if (done == nodes) return std::nullopt;
  for (std::uint32_t i = 0; i < nodes; ++i)
    if (incoming[i] != 0) return i;
  return 0;
}

Result<void> check_edges(const ClassView& v, const Where& where) {
  bool forward = true;  // lane order is by index, so edges that all point forward cannot close a cycle
  if (v.edge_src.size() >= kNoName)
    return where.bad(fmt::format("{} edges; accepted: fewer than 2^32 - 1", v.edge_src.size()));
  for (std::size_t i = 0; i < v.edge_src.size(); ++i) {
    if (v.edge_src[i] >= v.node_kind.size())
      return where.bad("edge_src", i, v.edge_src[i], fmt::format("below {} nodes", v.node_kind.size()));
    if (v.edge_dst[i] >= v.node_kind.size())
      return where.bad("edge_dst", i, v.edge_dst[i], fmt::format("below {} nodes", v.node_kind.size()));
    forward = forward && v.edge_src[i] < v.edge_dst[i];
  }
  if (forward) return {};
  if (const auto node = node_in_cycle(v))
    return where.bad(fmt::format("edge_src and edge_dst close a cycle through or before node {}", *node));
  return {};
}

}  // namespace

Result<void> check_structure(const ClassView& view, const ClassLimits& limits, const Where& where) {
  PRISM_RETURN_IF_ERROR(check_nodes(view, limits, where));
  PRISM_RETURN_IF_ERROR(check_comms(view, limits, where));
  return check_edges(view, where);
}

Result<void> check_timing(const ClassView& view, const TimingView& timing, const Where& where) {
  std::vector<std::int64_t> last(view.lane_name.size(), 0);
  for (std::size_t i = 0; i < timing.start_ns.size(); ++i) {
    const auto start = timing.start_ns[i], duration = timing.duration_ns[i];
    if (start < 0) return where.bad("start_ns", i, start, "not negative");
    if (duration < 0 || duration > std::numeric_limits<std::int64_t>::max() - start)
      return where.bad("duration_ns", i, duration, "not negative, and an end below 2^63 ns");
    if (view.node_kind[i] == static_cast<std::uint8_t>(NodeKind::kTransfer)) continue;
    auto& previous = last[view.node_lane[i]];
    if (start < previous)
      return where.bad("start_ns", i, start, fmt::format("at least {}, the start before it on its lane", previous));
    previous = start;
  }
  return {};
}

Result<void> check_memory(const ClassView& view, const MemoryView& memory, const Where& where) {
  for (std::size_t i = 0; i < memory.node.size(); ++i) {
    if (memory.node[i] >= view.node_kind.size())
      return where.bad("memory_node", i, memory.node[i], fmt::format("below {} nodes", view.node_kind.size()));
    if (memory.bytes[i] < 0) return where.bad("memory_bytes", i, memory.bytes[i], "not negative");
    if (memory.peak[i] < memory.bytes[i])
      return where.bad("memory_peak", i, memory.peak[i], fmt::format("at least memory_bytes, {}", memory.bytes[i]));
  }
  return {};
}

}  // namespace prism
