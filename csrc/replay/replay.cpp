#include "replay/replay.hpp"

#include <fmt/format.h>

#include "graph/builder.hpp"
#include "replay/report.hpp"

namespace prism {

Result<ReplayReport> replay(const ExecutionGraph& graph, const ReplayOptions& options) {
  if (!(options.links.bytes_per_second > 0) || options.links.latency_ns < 0)
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("links: {} bytes/s and a latency of {} ns; accepted: > 0 and >= 0",
                             options.links.bytes_per_second, options.links.latency_ns)};
  bool recorded = false;
  for (int rank = 0; rank < graph.world_size(); ++rank) {
    if (graph.class_of(rank) < 0) continue;
    PRISM_RETURN_IF_ERROR(graph.check_rank(rank));
    recorded = true;
    if (graph.timing(rank).start_ns.size() != graph.class_view(graph.class_of(rank)).node_kind.size())
      return Error{ErrorCode::kInvalidInput, fmt::format("rank {} of the graph has no times to replay", rank)};
  }
  if (!recorded) return Error{ErrorCode::kInvalidInput, "the graph has no rank to replay"};
  PRISM_ASSIGN_OR_RETURN(engine::Job job, engine::prepare(graph));
  PRISM_ASSIGN_OR_RETURN(engine::Durations durations, engine::Durations::make(job, options.edits));
  engine::ServiceTimes service = engine::service_times(job, options.links);
  engine::Engine execution(job, durations, service);
  PRISM_RETURN_IF_ERROR(execution.run());
  ReplayReport report = engine::make_report(job, std::move(execution));
  report.notes.insert(report.notes.begin(), service.notes.begin(), service.notes.end());
  if (job.model.name != graph.progress_model())
    report.notes.push_back(
        fmt::format("unknown progress model '{}': everything starts with its last member", graph.progress_model()));
  return report;
}

Result<ExecutionGraph> retimed(const ExecutionGraph& graph, const ReplayReport& report) {
  GraphBuilder builder({.world_size = graph.world_size(),
                        .progress_model = graph.progress_model(),
                        .timed = true,
                        .metadata_json = graph.metadata_json()});
  for (const ReplayReport::Rank& rank : report.ranks) {
    PRISM_ASSIGN_OR_RETURN(RankRecord record, extract(graph, rank.rank));
    const auto& timeline = report.timelines[static_cast<std::size_t>(rank.rank)];
    for (std::size_t node = 0; node < record.nodes.size(); ++node) {
      record.nodes[node].start_ns = timeline.start_ns[node];
      record.nodes[node].duration_ns = timeline.duration_ns[node];
    }
    PRISM_RETURN_IF_ERROR(builder.add(record));
  }
  return builder.finish();
}

}  // namespace prism
