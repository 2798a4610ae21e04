#include "replay/checks.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace prism::engine {

Result<void> check_times(const ExecutionGraph& graph) {
  bool any = false;
  for (int rank = 0; rank < graph.world_size(); ++rank) {
    if (graph.class_of(rank) < 0) continue;
    PRISM_RETURN_IF_ERROR(graph.check_rank(rank));
    any = true;
    if (graph.timing(rank).start_ns.size() != graph.class_view(graph.class_of(rank)).node_kind.size())
      return Error{ErrorCode::kInvalidInput, fmt::format("rank {} of the graph has no times to replay", rank)};
  }
  if (!any) return Error{ErrorCode::kInvalidInput, "the graph has no rank to replay"};
  return {};
}

double latest_ns(const Job& job, const Durations& durations, const ServiceTimes& service) {
  double latest_start = 0, sum = 0;
  for (int rank = 0; rank < job.graph->world_size(); ++rank) {
    if (job.ranks[rank].cls < 0) continue;
    for (const auto start : job.timing(rank).start_ns)
      latest_start = std::max(latest_start, static_cast<double>(start));
    for (const auto duration : durations[rank]) sum += static_cast<double>(duration);
  }
  for (const auto duration : service.duration_ns) sum += static_cast<double>(duration);
  return latest_start + sum;
}

Result<void> check_extent(const Job& job, const Durations& durations, const ServiceTimes& service) {
  if (latest_ns(job, durations, service) < 9e18) return {};
  return Error{ErrorCode::kInvalidInput, "the times of the graph add up to more than 2^63 ns"};
}

}  // namespace prism::engine
