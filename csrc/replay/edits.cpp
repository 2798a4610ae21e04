#include "replay/edits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace prism::engine {
namespace {

// Iteration that a node belongs to, -1 before the first mark: by program order on the marks' lane, elsewhere by time.
int iteration_of(const ClassView& view, TimingView timing, std::uint32_t node) {
  auto marks = view.mark_node;
  auto begun = std::partition_point(marks.begin(), marks.end(), [&](std::uint32_t mark) {
    return view.node_lane[mark] == view.node_lane[node] ? mark <= node : timing.start_ns[mark] <= timing.start_ns[node];
  });
  return static_cast<int>(begun - marks.begin()) - 1;
}

std::string describe(const SpanEdit& edit) {
  std::string text;
  if (edit.rank) text += fmt::format(" rank {}", *edit.rank);
  if (edit.iteration) text += fmt::format(" iteration {}", *edit.iteration);
  if (edit.name) text += fmt::format(" name '{}'", *edit.name);
  if (edit.node) text += fmt::format(" node {}", *edit.node);
  return text.empty() ? " every span" : text;
}

bool matches(const SpanEdit& edit, const ExecutionGraph& graph, int rank, std::uint32_t node) {
  const ClassView& view = graph.class_view(graph.class_of(rank));
  auto kind = static_cast<NodeKind>(view.node_kind[node]);
  if (edit.node) return node == *edit.node && (kind == NodeKind::kCompute || kind == NodeKind::kIssue);
  if (kind != NodeKind::kCompute) return false;
  if (edit.name && (view.node_name[node] == kNoName || graph.string(view.node_name[node]) != *edit.name)) return false;
  return !edit.iteration || iteration_of(view, graph.timing(rank), node) == *edit.iteration;
}

}  // namespace

Result<Durations> Durations::make(const Job& job, const std::vector<SpanEdit>& edits) {
  const ExecutionGraph& graph = *job.graph;
  Durations durations(job);
  for (std::size_t e = 0; e < edits.size(); ++e) {
    const SpanEdit& edit = edits[e];
    auto bad = [&](std::string_view what) {
      return Error{ErrorCode::kInvalidInput, fmt::format("edit {} ({}): {}", e, describe(edit).substr(1), what)};
    };
    if (!std::isfinite(edit.scale) || edit.scale < 0) return bad("scale must be a number >= 0");
    if (edit.node && !edit.rank) return bad("a node is counted within a rank: give the rank");
    bool matched = false;
    for (int rank = 0; rank < graph.world_size(); ++rank) {
      if (job.ranks[rank].cls < 0 || (edit.rank && *edit.rank != rank)) continue;
      const auto nodes = static_cast<std::uint32_t>(graph.timing(rank).duration_ns.size());
      for (std::uint32_t node = 0; node < nodes; ++node) {
        if (!matches(edit, graph, rank, node)) continue;
        auto& own = durations.own(rank);
        double changed = static_cast<double>(own[node]) * edit.scale + static_cast<double>(edit.add_ns);
        if (changed > 9e18) return bad("the edited span is longer than 2^63 ns");
        own[node] = std::max<std::int64_t>(0, std::llround(changed));
        matched = true;
      }
    }
    if (!matched) return bad("matches no compute span of the graph");
  }
  return durations;
}

}  // namespace prism::engine
