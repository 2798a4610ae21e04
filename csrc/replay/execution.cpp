#include "replay/execution.hpp"

#include <algorithm>

namespace prism::engine {

Execution recorded(const Job& job, const ServiceTimes& service) {
  Execution execution{std::vector<ReplayReport::Timeline>(job.ranks.size()), std::vector<std::int64_t>(job.entries, 0)};
  std::int64_t first = INT64_MAX;
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank)
    for (const auto start : job.timings[rank].start_ns) first = std::min(first, start);
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    auto& [start_ns, duration_ns] = execution.timelines[rank];
    for (const auto start : job.timings[rank].start_ns) start_ns.push_back(start - first);
    duration_ns.assign(job.timings[rank].duration_ns.begin(), job.timings[rank].duration_ns.end());
  }
  for (std::uint32_t entry = 0; entry < job.entries; ++entry) {
    const auto node = job.transfer_node(entry);
    if (node == kNone) continue;
    auto& [start_ns, duration_ns] = execution.timelines[job.entry_rank[entry]];
    // A message that was looked at late had ended earlier.
    const auto end = std::max(start_ns[node], service.recorded_end_ns[entry] - first);
    duration_ns[node] = end - start_ns[node];
    execution.transfer_start_ns[entry] = std::clamp(end - service.duration_ns[entry], start_ns[node], end);
  }
  return execution;
}

WaitSplit split_wait(const Job& job, const Execution& execution, int rank, std::uint32_t node) {
  const ClassView& view = job.view(rank);
  const auto& timeline = execution.timelines[rank];
  std::uint32_t last = kNone;
  for (std::uint32_t source : job.plan(rank).in[node])
    if (static_cast<NodeKind>(view.node_kind[source]) == NodeKind::kTransfer &&
        (last == kNone || timeline.end_ns(source) > timeline.end_ns(last)))
      last = source;
  if (last == kNone) return {};
  const auto entry = job.ranks[rank].entry_base + static_cast<std::uint32_t>(view.node_comm[last]);
  const auto waiting = execution.transfer_start_ns[entry] - timeline.start_ns[node];
  return {entry, std::clamp<std::int64_t>(waiting, 0, timeline.duration_ns[node])};
}

std::vector<std::int64_t> clock_starts(const Job& job) {
  std::vector<std::int64_t> first(job.ranks.size(), INT64_MAX);
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    if (job.ranks[r].cls < 0) continue;
    for (std::uint32_t node : job.classes[job.ranks[r].cls].lane_first)
      if (node != kNone) first[r] = std::min(first[r], job.timing(static_cast<int>(r)).start_ns[node]);
  }
  if (job.graph->timed() && job.provenance.one_clock)
    first.assign(first.size(), *std::min_element(first.begin(), first.end()));
  return first;
}

}  // namespace prism::engine
