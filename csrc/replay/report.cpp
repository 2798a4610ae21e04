#include "replay/report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "replay/analyse.hpp"

namespace prism::engine {
namespace {

using Timeline = ReplayReport::Timeline;

ReplayReport::Rank rank_report(const Job& job, const Execution& execution, int rank) {
  const ClassView& view = job.view(rank);
  const Timeline& timeline = execution.timelines[rank];
  ReplayReport::Rank report{.rank = rank};
  for (std::uint32_t node = 0; node < view.node_kind.size(); ++node) {
    auto kind = static_cast<NodeKind>(view.node_kind[node]);
    if (kind == NodeKind::kCompute || kind == NodeKind::kIssue) report.busy_ns += timeline.duration_ns[node];
    if (kind != NodeKind::kWait) continue;
    const auto waiting = split_wait(job, execution, rank, node).waiting_ns;
    report.waiting_ns += waiting;
    report.exposed_comm_ns += timeline.duration_ns[node] - waiting;
  }
  const auto memory = job.graph->memory(rank);
  for (std::size_t step = 0; step < memory.peak.size(); ++step) {
    if (memory.peak[step] < report.peak_memory_bytes) continue;
    const auto at = timeline.end_ns(memory.node[step]);
    if (memory.peak[step] == report.peak_memory_bytes && at >= report.peak_memory_at_ns && step > 0) continue;
    report.peak_memory_bytes = memory.peak[step];
    report.peak_memory_at_ns = at;
  }
  return report;
}

// Nodes from `from` on, on its lane, up to `to` (kNone: to the lane's end).
std::vector<std::uint32_t> lane_nodes(const ClassPlan& plan, std::uint32_t from, std::uint32_t to) {
  std::vector<std::uint32_t> nodes;
  for (std::uint32_t node = from; node != to && node != kNone; node = plan.next_on_lane[node]) nodes.push_back(node);
  return nodes;
}

std::vector<IterationSpan> iteration_spans(const Job& job, const Execution& execution, int rank) {
  const Timeline& timeline = execution.timelines[rank];
  const auto plan = iteration_plan(job.view(rank), job.plan(rank));
  std::vector<IterationSpan> spans;
  for (std::size_t i = 0; i < plan.count(); ++i) {
    const auto begin = timeline.start_ns[plan.marks[i]];
    const auto took = iteration_time(
        plan, i, [&](std::uint32_t node) { return timeline.start_ns[node]; },
        [&](std::uint32_t node) { return timeline.duration_ns[node]; });
    spans.push_back({.rank = rank,
                     .node = i + 1 < plan.marks.size() ? plan.marks[i + 1] : plan.last,
                     .begin_ns = begin,
                     .end_ns = begin + took});
  }
  return spans;
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

ReplayReport make_report(const Job& job, Execution execution, bool with_analysis) {
  ReplayReport report;
  std::vector<std::vector<IterationSpan>> spans;  // of ranks with marks
  IterationSpan whole;                            // of the job
  std::size_t unmarked = 0, common = SIZE_MAX;
  for (int rank = 0; rank < job.graph->world_size(); ++rank) {
    if (job.ranks[rank].cls < 0) continue;
    report.ranks.push_back(rank_report(job, execution, rank));
    const Timeline& timeline = execution.timelines[rank];
    for (std::uint32_t node = 0; node < timeline.start_ns.size(); ++node)
      if (timeline.end_ns(node) > whole.end_ns)
        whole = {.rank = rank, .node = node, .begin_ns = 0, .end_ns = timeline.end_ns(node)};
    auto own = iteration_spans(job, execution, rank);
    unmarked += own.empty();
    if (own.empty()) continue;
    common = std::min(common, own.size());
    spans.push_back(std::move(own));
  }
  report.critical_path_ns = whole.end_ns;
  std::vector<IterationSpan> slowest;  // [iterations]
  if (spans.empty()) {
    slowest.push_back(whole);
    report.notes.push_back(
        "no iteration marks: the whole trace counts as one iteration (prismllm.iteration() marks one)");
  }
  const auto time = [](const IterationSpan& span) { return span.end_ns - span.begin_ns; };
  for (std::size_t i = 0; !spans.empty() && i < common; ++i) {
    slowest.push_back(spans[0][i]);
    for (const auto& own : spans)
      if (time(own[i]) > time(slowest[i])) slowest[i] = own[i];
  }
  for (std::size_t i = 0; i < slowest.size(); ++i)
    report.iterations.push_back({static_cast<int>(i), time(slowest[i]), slowest[i].rank});
  if (!spans.empty() && unmarked > 0)
    report.notes.push_back(
        fmt::format("{} ranks have no iteration marks and do not count in the iteration times", unmarked));
  if (job.unmet > 0)
    report.notes.push_back(
        fmt::format("{} collectives have members that were not recorded; they are taken to come in time", job.unmet));
  if (with_analysis) analyse(job, execution, slowest, report);
  report.timelines = std::move(execution.timelines);
  return report;
}

}  // namespace prism::engine
