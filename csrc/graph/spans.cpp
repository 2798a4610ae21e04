#include <fmt/format.h>

#include <map>
#include <utility>

#include "graph/builder.hpp"

namespace prism {
namespace {

Result<std::map<int, ExecutionGraph>> by_rank(const std::vector<std::string>& fragments, int world_size) {
  std::map<int, ExecutionGraph> ranks;
  for (const auto& path : fragments) {
    PRISM_ASSIGN_OR_RETURN(auto graph, open_trace(path));
    if (graph.world_size() != world_size)
      return Error{ErrorCode::kInvalidInput, fmt::format("{}: a fragment of a job of {} ranks; accepted: {} ranks",
                                                         path, graph.world_size(), world_size)};
    for (int rank = 0; rank < world_size; ++rank) {
      if (graph.class_of(rank) < 0) continue;
      if (!ranks.emplace(rank, graph).second)
        return Error{ErrorCode::kInvalidInput, fmt::format("{}: rank {} is in two fragments", path, rank)};
    }
  }
  return ranks;
}

Result<void> add_like(GraphBuilder& builder, const ExecutionGraph& base, int rank, int like) {
  std::vector<std::uint32_t> groups;
  for (const auto group : base.group_slots(rank)) {
    const auto members = base.group_members(group);
    PRISM_ASSIGN_OR_RETURN(const auto number,
                           builder.add_group({std::string(base.group_name(group)), {members.begin(), members.end()}}));
    groups.push_back(number);
  }
  const auto peers = base.peer_slots(rank);
  return builder.add_alike(rank, like, std::move(groups), {peers.begin(), peers.end()});
}

}  // namespace

Result<ExecutionGraph> with_spans_of(const ExecutionGraph& base, const std::vector<std::string>& fragments,
                                     std::string metadata_json) {
  PRISM_ASSIGN_OR_RETURN(const auto timed, by_rank(fragments, base.world_size()));
  GraphBuilder builder({.world_size = base.world_size(),
                        .progress_model = base.progress_model(),
                        .timed = true,
                        .metadata_json = std::move(metadata_json)});
  std::map<int, int> of_class;  // a rank with a fragment
  for (const auto& [rank, graph] : timed)
    if (base.class_of(rank) >= 0) of_class.emplace(base.class_of(rank), rank);
  for (const auto& [rank, graph] : timed) {
    PRISM_ASSIGN_OR_RETURN(auto record, extract(graph, rank));
    for (auto& node : record.nodes)
      if (node.kind != NodeKind::kCompute) node.duration_ns = 0;
    record.marks.clear();
    if (base.class_of(rank) >= 0) {
      PRISM_RETURN_IF_ERROR(base.check_rank(rank));
      const auto& view = base.class_view(base.class_of(rank));
      if (view.node_kind.size() == record.nodes.size())
        record.marks.assign(view.mark_node.begin(), view.mark_node.end());
    }
    PRISM_RETURN_IF_ERROR(builder.add(record));
  }
  for (int rank = 0; rank < base.world_size(); ++rank) {
    if (base.class_of(rank) < 0 || timed.count(rank) != 0) continue;
    if (base.timed()) {
      PRISM_ASSIGN_OR_RETURN(const auto record, extract(base, rank));
      PRISM_RETURN_IF_ERROR(builder.add(record));
    } else if (const auto model = of_class.find(base.class_of(rank)); model != of_class.end()) {
      PRISM_RETURN_IF_ERROR(add_like(builder, base, rank, model->second));
    } else {
      return Error{ErrorCode::kInvalidInput,
                   fmt::format("rank {} was not timed, nor was any other of its class", rank)};
    }
  }
  return builder.finish();
}

}  // namespace prism
