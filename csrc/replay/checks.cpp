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

void Extent::begins(const Job& job, int rank) {
  for (const auto node : job.plan(rank).lane_first)
    if (node != kNone) latest_start_ = std::max(latest_start_, static_cast<double>(job.timing(rank).start_ns[node]));
}

void Extent::takes(std::span<const std::int64_t> duration_ns) {
  for (const auto duration : duration_ns) sum_ += static_cast<double>(duration);
}

Result<void> Extent::check() const {
  if (latest_start_ + sum_ < 4e18) return {};
  return Error{ErrorCode::kInvalidInput, "the times of the trace add up to more than 4e18 ns (126 years)"};
}

Result<void> check_extent(const Job& job, const Durations& durations, const ServiceTimes& service) {
  Extent extent;
  for (int rank = 0; rank < static_cast<int>(job.ranks.size()); ++rank) {
    if (job.ranks[rank].cls < 0) continue;
    extent.begins(job, rank);
    extent.takes(durations[rank]);
  }
  extent.takes(service.duration_ns);
  return extent.check();
}

}  // namespace prism::engine
