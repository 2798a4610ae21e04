#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "graph/builder.hpp"
#include "graph/iterations.hpp"

namespace prism {

Result<RankRecord> extract(const ExecutionGraph& graph, int rank) {
  if (rank < 0 || rank >= graph.world_size())
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("rank {} of the trace; accepted: 0 to {}", rank, graph.world_size() - 1)};
  if (graph.class_of(rank) < 0)
    return Error{ErrorCode::kInvalidInput, fmt::format("rank {} was not recorded in the trace", rank)};
  PRISM_RETURN_IF_ERROR(graph.check_rank(rank));
  const auto& v = graph.class_view(graph.class_of(rank));
  const auto timing = graph.timing(rank);
  RankRecord record;
  record.rank = rank;
  for (const auto lane : v.lane_name) record.lanes.emplace_back(graph.string(lane));
  for (const auto group : graph.group_slots(rank)) {
    const auto members = graph.group_members(group);
    record.groups.push_back({std::string(graph.group_name(group)), {members.begin(), members.end()}});
  }
  record.nodes.reserve(v.node_kind.size());
  for (std::size_t i = 0; i < v.node_kind.size(); ++i)
    record.nodes.push_back({static_cast<NodeKind>(v.node_kind[i]), v.node_lane[i], v.node_comm[i],
                            v.node_name[i] == kNoName ? std::string_view() : graph.string(v.node_name[i]),
                            timing.start_ns.empty() ? 0 : timing.start_ns[i],
                            timing.duration_ns.empty() ? 0 : timing.duration_ns[i]});
  record.comms.reserve(v.comm_op.size());
  for (std::size_t i = 0; i < v.comm_op.size(); ++i) {
    const auto op = static_cast<Op>(v.comm_op[i]);
    const bool has_peer_slot = is_point_to_point(op) && v.comm_peer[i] >= 0;
    record.comms.push_back({op, static_cast<DType>(v.comm_dtype[i]), static_cast<ReduceOp>(v.comm_reduce_op[i]),
                            v.comm_flags[i], v.comm_group[i], v.comm_seq[i],
                            has_peer_slot ? graph.rank_of_peer_slot(rank, v.comm_peer[i]) : v.comm_peer[i],
                            v.comm_tag[i], v.comm_batch[i], v.comm_input_bytes[i], v.comm_output_bytes[i]});
  }
  for (std::size_t i = 0; i < v.edge_src.size(); ++i) record.edges.push_back({v.edge_src[i], v.edge_dst[i]});
  record.marks.assign(v.mark_node.begin(), v.mark_node.end());
  const auto memory = graph.memory(rank);
  for (std::size_t i = 0; i < memory.node.size(); ++i)
    record.memory.push_back({memory.node[i], memory.bytes[i], memory.peak[i]});
  return record;
}

Result<ExecutionGraph> merge_fragments(const std::vector<std::string>& paths, GraphBuilder::Options options,
                                       const Alike& alike) {
  // (rank, fragment), in rank order: classes and groups are numbered alike whatever the order of the paths.
  std::vector<std::pair<int, std::size_t>> ranks;
  std::vector<ExecutionGraph> fragments;
  bool marked = false;
  for (const auto& path : paths) {
    PRISM_ASSIGN_OR_RETURN(auto graph, open_trace(path));
    if (graph.world_size() != options.world_size)
      return Error{ErrorCode::kInvalidInput, fmt::format("{}: a fragment of a job of {} ranks; accepted: {} ranks",
                                                         path, graph.world_size(), options.world_size)};
    for (int rank = 0; rank < graph.world_size(); ++rank) {
      if (graph.class_of(rank) < 0) continue;
      if (auto good = graph.check_rank(rank); !good) return good.error();
      marked = marked || !graph.class_view(graph.class_of(rank)).mark_node.empty();
      ranks.emplace_back(rank, fragments.size());
    }
    fragments.push_back(std::move(graph));
  }
  std::ranges::sort(ranks);
  for (std::size_t i = 1; i < ranks.size(); ++i)
    if (ranks[i].first == ranks[i - 1].first)
      return Error{ErrorCode::kInvalidInput, fmt::format("rank {} is in {} and in {}", ranks[i].first,
                                                         paths[ranks[i - 1].second], paths[ranks[i].second])};
  std::vector<Periods> periods;
  if (!marked) {
    for (const auto& [rank, fragment] : ranks) {
      PRISM_ASSIGN_OR_RETURN(const auto record, extract(fragments[fragment], rank));
      periods.push_back(find_periods(record));
    }
    agree_on_iterations(periods);
  }
  GraphBuilder builder(std::move(options));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    PRISM_ASSIGN_OR_RETURN(auto record, extract(fragments[ranks[i].second], ranks[i].first));
    if (!marked) record.marks = iteration_marks(record, periods[i]);
    PRISM_RETURN_IF_ERROR(builder.add(record));
  }
  std::vector<std::uint32_t> numbers;
  if (!alike.ranks.empty())
    for (const auto& group : alike.groups) {
      PRISM_ASSIGN_OR_RETURN(const auto number, builder.add_group(group));
      numbers.push_back(number);
    }
  for (const auto& one : alike.ranks) {
    std::vector<std::uint32_t> groups;
    for (const auto group : one.groups) {
      if (group >= numbers.size())
        return Error{ErrorCode::kInvalidInput,
                     fmt::format("rank {}: group {}; accepted: below {}", one.rank, group, numbers.size())};
      groups.push_back(numbers[group]);
    }
    PRISM_RETURN_IF_ERROR(builder.add_alike(one.rank, one.like, std::move(groups), one.peers));
  }
  return builder.finish();
}

}  // namespace prism
