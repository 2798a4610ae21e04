// Waits moved in the program order of their rank: what overlaps with a collective and what does not.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "graph/builder.hpp"
#include "replay/matching.hpp"
#include "replay/moved_waits.hpp"

namespace prism {
namespace {

using Until = OverlapEdit::Until;

// Names of compute spans, of which some match.
Result<void> check_span(const ExecutionGraph& graph, std::size_t number, const OverlapEdit& edit) {
  if (edit.until != Until::kSpan) return {};
  std::set<std::string_view> names;
  for (std::size_t cls = 0; cls < graph.class_count(); ++cls) {
    const ClassView& view = graph.class_view(static_cast<int>(cls));
    for (std::size_t node = 0; node < view.node_kind.size(); ++node)
      if (static_cast<NodeKind>(view.node_kind[node]) == NodeKind::kCompute && view.node_name[node] != kNoName)
        names.insert(graph.string(view.node_name[node]));
  }
  if (std::any_of(names.begin(), names.end(), [&](auto name) { return engine::matches(edit.span, name); })) return {};
  constexpr std::size_t kShown = 10;
  std::vector<std::string_view> shown(names.begin(), std::next(names.begin(), std::min(kShown, names.size())));
  return Error{ErrorCode::kInvalidInput,
               fmt::format("overlap {} ({}): until_span = '{}' is the name of no compute span; {}", number,
                           engine::describe_communication(edit), edit.span,
                           names.empty() ? "the trace has no names"
                                         : fmt::format("accepted: {}{}", fmt::join(shown, ", "),
                                                       names.size() > kShown ? ", ..." : ""))};
}

}  // namespace

Result<ExecutionGraph> overlapped(const ExecutionGraph& given, const std::vector<OverlapEdit>& edits) {
  std::optional<ExecutionGraph> graph(given);
  for (std::size_t e = 0; e < edits.size(); ++e) {
    const OverlapEdit& edit = edits[e];
    PRISM_RETURN_IF_ERROR(check_span(*graph, e, edit));
    GraphBuilder builder({.world_size = graph->world_size(),
                          .progress_model = graph->progress_model(),
                          .timed = graph->timed(),
                          .metadata_json = graph->metadata_json()});
    bool moved = false;
    for (int rank = 0; rank < graph->world_size(); ++rank) {
      if (graph->class_of(rank) < 0) continue;
      PRISM_RETURN_IF_ERROR(graph->check_rank(rank));
      PRISM_ASSIGN_OR_RETURN(RankRecord record, extract(*graph, rank));
      if (graph->timing(rank).start_ns.size() != record.nodes.size())
        return Error{ErrorCode::kInvalidInput, fmt::format("rank {} of the graph has no times to replay", rank)};
      if (engine::matches(edit.ranks, edit.cls, *graph, rank)) moved |= engine::move_waits(*graph, record, edit);
      PRISM_RETURN_IF_ERROR(builder.add(record));
    }
    if (!moved)
      return Error{ErrorCode::kInvalidInput, fmt::format("overlap {} ({}): moves no wait for a collective", e,
                                                         engine::describe_communication(edit))};
    PRISM_ASSIGN_OR_RETURN(ExecutionGraph next, builder.finish());
    graph.emplace(std::move(next));
  }
  return *graph;
}

}  // namespace prism
