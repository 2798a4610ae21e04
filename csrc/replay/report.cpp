#include "replay/report.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace prism::engine {
namespace {

using Timeline = ReplayReport::Timeline;

std::int64_t end_of(const Timeline& timeline, std::uint32_t node) {
  return timeline.start_ns[node] + timeline.duration_ns[node];
}

ReplayReport::Rank rank_report(const Job& job, const Execution& execution, int rank) {
  const ClassView& view = job.view(rank);
  const ClassPlan& plan = job.plan(rank);
  const Timeline& timeline = execution.timelines[rank];
  ReplayReport::Rank report{.rank = rank};
  for (std::uint32_t node = 0; node < view.node_kind.size(); ++node) {
    auto kind = static_cast<NodeKind>(view.node_kind[node]);
    if (kind == NodeKind::kCompute || kind == NodeKind::kIssue) report.busy_ns += timeline.duration_ns[node];
    if (kind != NodeKind::kWait) continue;
    // The transfer that ended last is the one that was waited for.
    std::uint32_t last = kNone;
    for (std::uint32_t source : plan.in[node])
      if (static_cast<NodeKind>(view.node_kind[source]) == NodeKind::kTransfer &&
          (last == kNone || end_of(timeline, source) > end_of(timeline, last)))
        last = source;
    std::int64_t waiting = 0;
    if (last != kNone) {
      std::uint32_t entry = job.ranks[rank].entry_base + static_cast<std::uint32_t>(view.node_comm[last]);
      waiting = std::clamp<std::int64_t>(execution.transfer_start_ns[entry] - timeline.start_ns[node], 0,
                                         timeline.duration_ns[node]);
    }
    report.waiting_ns += waiting;
    report.exposed_comm_ns += timeline.duration_ns[node] - waiting;
  }
  for (std::int64_t peak : job.graph->memory(rank).peak)
    report.peak_memory_bytes = std::max(report.peak_memory_bytes, peak);
  return report;
}

// Nodes from `from` on, on its lane, up to `to` (kNone: to the lane's end).
std::vector<std::uint32_t> lane_nodes(const ClassPlan& plan, std::uint32_t from, std::uint32_t to) {
  std::vector<std::uint32_t> nodes;
  for (std::uint32_t node = from; node != to && node != kNone; node = plan.next_on_lane[node]) nodes.push_back(node);
  return nodes;
}

std::vector<std::int64_t> iteration_times(const Job& job, const Execution& execution, int rank) {
  const Timeline& timeline = execution.timelines[rank];
  const auto plan = iteration_plan(job.view(rank), job.plan(rank));
  std::vector<std::int64_t> times;
  for (std::size_t i = 0; i < plan.count(); ++i)
    times.push_back(iteration_time(
        plan, i, [&](std::uint32_t node) { return timeline.start_ns[node]; },
        [&](std::uint32_t node) { return timeline.duration_ns[node]; }));
  return times;
}

}  // namespace

// Programs mark the beginning of each iteration, and some also the end of the last; what follows such a mark is not an
// iteration, as it issues less than the iteration before it. An iteration that no mark ends has as many nodes as the
// one before it, and its last compute span, in which the program also leaves the loop, is taken to be no longer than
// the one in that place there.
IterationPlan iteration_plan(const ClassView& view, const ClassPlan& plan) {
  IterationPlan result{view.mark_node};
  const auto marks = view.mark_node;
  if (marks.empty()) return result;
  const auto tail = lane_nodes(plan, marks.back(), kNone);
  if (marks.size() == 1) {
    result.last = tail.back();
    return result;
  }
  const auto before = lane_nodes(plan, marks[marks.size() - 2], marks.back());
  const auto kind = [&](std::uint32_t node) { return static_cast<NodeKind>(view.node_kind[node]); };
  const auto issues = [&](const std::vector<std::uint32_t>& nodes) {
    return std::count_if(nodes.begin(), nodes.end(), [&](auto node) { return kind(node) == NodeKind::kIssue; });
  };
  if (issues(before) == 0 || issues(tail) < issues(before)) return result;
  const auto count = std::min(tail.size(), before.size());
  result.last = tail[count - 1];
  const auto model = before[count - 1];
  if (kind(result.last) == NodeKind::kCompute && kind(model) == NodeKind::kCompute) result.model = model;
  return result;
}

ReplayReport make_report(const Job& job, Execution execution) {
  ReplayReport report;
  std::vector<std::vector<std::int64_t>> times;  // of ranks with marks
  std::int64_t job_end = 0;
  std::size_t unmarked = 0, common = SIZE_MAX;
  for (int rank = 0; rank < job.graph->world_size(); ++rank) {
    if (job.ranks[rank].cls < 0) continue;
    report.ranks.push_back(rank_report(job, execution, rank));
    const Timeline& timeline = execution.timelines[rank];
    for (std::uint32_t node = 0; node < timeline.start_ns.size(); ++node)
      job_end = std::max(job_end, end_of(timeline, node));
    auto own = iteration_times(job, execution, rank);
    unmarked += own.empty();
    if (own.empty()) continue;
    common = std::min(common, own.size());
    times.push_back(std::move(own));
  }
  report.critical_path_ns = job_end;
  if (times.empty()) {
    report.iterations.push_back({0, job_end});
    report.notes.push_back(
        "no iteration marks: the whole trace counts as one iteration (prismllm.iteration() marks one)");
  }
  for (std::size_t i = 0; !times.empty() && i < common; ++i) {
    std::int64_t slowest = 0;
    for (const auto& own : times) slowest = std::max(slowest, own[i]);
    report.iterations.push_back({static_cast<int>(i), slowest});
  }
  if (!times.empty() && unmarked > 0)
    report.notes.push_back(
        fmt::format("{} ranks have no iteration marks and do not count in the iteration times", unmarked));
  if (job.unmet > 0)
    report.notes.push_back(
        fmt::format("{} collectives have members that were not recorded; they are taken to come in time", job.unmet));
  report.timelines = std::move(execution.timelines);
  return report;
}

}  // namespace prism::engine
