#include "replay/edits.hpp"

#include <fmt/format.h>

#include <cmath>

#include "replay/matching.hpp"

namespace prism::engine {
namespace {

std::string described(const SpanEdit& edit) {
  auto ranks = edit.ranks;
  if (edit.rank) ranks.insert(ranks.begin(), {*edit.rank, *edit.rank});
  auto text = describe(ranks, edit.cls, edit.iteration);
  if (edit.name) text += fmt::format(" name '{}'", *edit.name);
  if (edit.node) text += fmt::format(" node {}", *edit.node);
  return text.empty() ? "every span" : text.substr(1);
}

bool matches_node(const SpanEdit& edit, const ExecutionGraph& graph, int rank, std::uint32_t node) {
  const ClassView& view = graph.class_view(graph.class_of(rank));
  auto kind = static_cast<NodeKind>(view.node_kind[node]);
  if (edit.node) return node == *edit.node && (kind == NodeKind::kCompute || kind == NodeKind::kIssue);
  if (kind != NodeKind::kCompute) return false;
  if (edit.name && (view.node_name[node] == kNoName || !matches(edit.name, graph.string(view.node_name[node]))))
    return false;
  return !edit.iteration || iteration_of(view, graph.timing(rank), node) == *edit.iteration;
}

}  // namespace

Result<Durations> Durations::make(const Job& job, const std::vector<SpanEdit>& edits) {
  const ExecutionGraph& graph = *job.graph;
  Durations durations(job);
  for (std::size_t e = 0; e < edits.size(); ++e) {
    const SpanEdit& edit = edits[e];
    auto bad = [&](std::string_view what) {
      return Error{ErrorCode::kInvalidInput, fmt::format("edit {} ({}): {}", e, described(edit), what)};
    };
    if (!std::isfinite(edit.scale) || edit.scale < 0) return bad("scale must be a number >= 0");
    if (edit.node && !edit.rank) return bad("a node is counted within a rank: give the rank");
    bool matched = false;
    for (int rank = 0; rank < graph.world_size(); ++rank) {
      if (job.ranks[rank].cls < 0 || (edit.rank && *edit.rank != rank) || !matches(edit.ranks, edit.cls, graph, rank))
        continue;
      const auto nodes = static_cast<std::uint32_t>(graph.timing(rank).duration_ns.size());
      for (std::uint32_t node = 0; node < nodes; ++node) {
        if (!matches_node(edit, graph, rank, node)) continue;
        auto& own = durations.own(rank);
        own[node] = edited(own[node], edit.scale, edit.add_ns, edit.set_ns);
        if (own[node] < 0) return bad("the edited span is longer than 2^63 ns");
        matched = true;
      }
    }
    if (!matched) return bad("matches no compute span of the graph");
  }
  return durations;
}

}  // namespace prism::engine
