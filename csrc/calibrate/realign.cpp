#include "calibrate/realign.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "calibrate/executor.hpp"
#include "calibrate/measured.hpp"
#include "graph/diff.hpp"
#include "replay/checks.hpp"

namespace prism {
namespace {

using calibration::Measured;
using Changed = std::vector<engine::Sweep::NodeOfRank>;

Result<void> check(const ExecutionGraph& onto, const ExecutionGraph& timed, const std::vector<int>& ranks) {
  if (ranks.empty()) return Error{ErrorCode::kInvalidInput, "no ranks were timed again"};
  if (!timed.timed()) return Error{ErrorCode::kInvalidInput, "the trace of the ranks has no measured times"};
  for (const int rank : ranks) {
    if (rank < 0 || rank >= onto.world_size() || rank >= timed.world_size())
      return Error{ErrorCode::kInvalidInput, fmt::format("rank {}; accepted: 0 to {}", rank,
                                                         std::min(onto.world_size(), timed.world_size()) - 1)};
    if (timed.class_of(rank) < 0 || onto.class_of(rank) < 0)
      return Error{ErrorCode::kInvalidInput, fmt::format("rank {} is not in both traces", rank)};
  }
  PRISM_ASSIGN_OR_RETURN(const auto found, first_difference(onto, timed, false, ranks));
  if (found)
    return Error{ErrorCode::kMismatch,
                 fmt::format("the structure has changed: rank {}{}, {}: {}, and {} where it was timed again; capture, "
                             "time and calibrate anew",
                             found->rank, found->node < 0 ? "" : fmt::format(", node {}", found->node), found->field,
                             found->a, found->b)};
  for (const int rank : ranks)
    if (timed.timing(rank).start_ns.empty())
      return Error{ErrorCode::kInvalidInput, fmt::format("rank {} was not timed again: it has no times", rank)};
  return {};
}

// The spans of `ranks` into `durations`; returns those that are others than before.
Changed replace(const ExecutionGraph& timed, const std::vector<int>& ranks, const engine::Job& job,
                engine::Durations& durations) {
  Changed changed;
  for (const int rank : ranks) {
    const auto duration = timed.timing(rank).duration_ns;
    auto& own = durations.own(rank);
    for (std::uint32_t node = 0; node < own.size(); ++node) {
      const auto kind = static_cast<NodeKind>(job.view(rank).node_kind[node]);
      if ((kind != NodeKind::kCompute && kind != NodeKind::kIssue) || own[node] == duration[node]) continue;
      own[node] = duration[node];
      changed.push_back({rank, node});
    }
  }
  return changed;
}

// Of slices, which are not executed: the times as they stand, those of `ranks` from where they were timed again.
ReplayReport put_together(const ExecutionGraph& onto, const ExecutionGraph& timed, const std::vector<int>& ranks) {
  ReplayReport report;
  report.timelines.resize(static_cast<std::size_t>(onto.world_size()));
  for (int rank = 0; rank < onto.world_size(); ++rank) {
    if (onto.class_of(rank) < 0) continue;
    report.ranks.push_back({.rank = rank});
    const auto& from = std::binary_search(ranks.begin(), ranks.end(), rank) ? timed : onto;
    const auto [start, duration] = from.timing(rank);
    report.timelines[rank] = {{start.begin(), start.end()}, {duration.begin(), duration.end()}};
  }
  return report;
}

void say_so(nlohmann::json& metadata, const ReplayReport& report, const std::vector<int>& ranks) {
  auto& calibrated = metadata["calibrated"];
  const auto known = calibrated.value("warmup_iterations", nlohmann::json(0));
  const auto warmup = known.is_number_unsigned() ? known.get<std::uint64_t>() : 0;
  std::vector<std::int64_t> times;
  for (const auto& iteration : report.iterations)
    if (static_cast<std::uint64_t>(iteration.index) >= warmup) times.push_back(iteration.time_ns);
  if (times.empty()) times.push_back(report.iterations.back().time_ns);
  const auto seconds = [](std::int64_t ns) { return static_cast<double>(ns) / 1e9; };
  const auto q = quantiles_of(std::move(times));
  calibrated["iteration_time_s"] = {{"median", seconds(q.median)}, {"p05", seconds(q.p05)}, {"p95", seconds(q.p95)}};
  calibrated["samples"] = 1;
  calibrated["realigned_ranks"] = ranks;
}

}  // namespace

Result<Realignment> realign(const ExecutionGraph& onto, const ExecutionGraph& timed, std::vector<int> ranks,
                            const std::optional<NetworkOptions>& network) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  PRISM_RETURN_IF_ERROR(check(onto, timed, ranks));
  PRISM_ASSIGN_OR_RETURN(auto measured, calibration::measure(onto, {}, network ? network->topology : nullptr));
  if (!measured.calibrated && !measured.slices)
    return Error{ErrorCode::kInvalidInput,
                 "the trace is one of a real run; accepted: one that was timed in slices (prism time) or calibrated"};
  const auto& job = measured.job;
  engine::Durations durations(job);
  const auto changed = replace(timed, ranks, job, durations);
  PRISM_RETURN_IF_ERROR(engine::check_extent(job, durations, measured.service));
  Realignment result;
  result.metadata_json = onto.metadata_json();
  for (int rank = 0; rank < static_cast<int>(job.ranks.size()); ++rank)
    if (job.ranks[rank].cls >= 0) result.nodes += job.plan(rank).next_on_lane.size();
  if (!measured.calibrated) {
    result.report = put_together(onto, timed, ranks);
    return result;
  }
  const auto starts = engine::clock_starts(job);
  auto sweep = network ? std::nullopt : engine::Sweep::make(job);
  std::optional<std::size_t> visited;
  if (sweep) {
    sweep->load(measured.service, starts);
    visited = sweep->update(durations, changed);
  }
  if (visited) {
    result.visited = *visited;
    result.report = make_report(job, std::move(*sweep).take_execution(durations));
  } else {
    PRISM_ASSIGN_OR_RETURN(const auto sampling, calibration::Sampling::make(job, std::nullopt, std::nullopt));
    const auto plan = make_plan(job, measured.service, network ? &*network : nullptr, sampling);
    PRISM_ASSIGN_OR_RETURN(auto executor, calibration::Executor::make(plan));
    PRISM_RETURN_IF_ERROR(executor.execute(durations));
    PRISM_ASSIGN_OR_RETURN(auto execution, std::move(executor).take_execution(durations));
    result.visited = result.nodes;
    result.report = make_report(job, std::move(execution));
  }
  say_so(measured.metadata, result.report, ranks);
  result.metadata_json = measured.metadata.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return result;
}

Result<ExecutionGraph> realigned_trace(const ExecutionGraph& onto, const Realignment& realignment) {
  return retimed(onto, realignment.report, realignment.metadata_json);
}

}  // namespace prism
