#include "calibrate/overlay.hpp"

#include <algorithm>

#include "replay/program_order.hpp"

namespace prism::calibration {

std::int64_t uncalibrated(const Plan& plan, const std::vector<std::int64_t>& alone_ns) {
  const auto& job = *plan.job;
  std::vector<std::vector<std::uint32_t>> orders;
  for (const auto& one : job.classes) orders.push_back(engine::in_order(one));
  std::int64_t slowest = 0;
  for (int rank = 0; rank < static_cast<int>(job.ranks.size()); ++rank) {
    const auto cls = job.ranks[rank].cls;
    if (cls < 0) continue;
    const auto& view = job.view(rank);
    const auto& of_class = job.plan(rank);
    const auto duration = job.timing(rank).duration_ns;
    std::vector<std::int64_t> start(duration.size(), 0), end(duration.size(), 0);
    for (const auto first : of_class.lane_first)
      if (first != engine::kNone && of_class.in[first].empty())
        start[first] = job.timing(rank).start_ns[first] - plan.clock_starts[rank];
    std::int64_t last = 0;
    for (const auto node : orders[cls]) {
      const auto kind = static_cast<NodeKind>(view.node_kind[node]);
      auto ready = start[node];
      for (const auto source : of_class.in[node]) ready = std::max(ready, end[source]);
      if (kind != NodeKind::kWait) start[node] = ready;
      end[node] = ready;
      if (kind == NodeKind::kTransfer)
        end[node] += alone_ns[job.ranks[rank].entry_base + static_cast<std::uint32_t>(view.node_comm[node])];
      else if (kind != NodeKind::kWait)
        end[node] += duration[node];
      if (const auto next = of_class.next_on_lane[node]; next != engine::kNone)
        start[next] = std::max(start[next], end[node]);
      last = std::max(last, end[node]);
    }
    const auto& iterations = plan.iterations[cls];
    std::vector<std::int64_t> times;
    for (std::size_t i = 0; i < plan.counted && iterations.count() > 0; ++i)
      times.push_back(engine::iteration_time(
          iterations, plan.first_counted + i, [&](std::uint32_t node) { return start[node]; },
          [&](std::uint32_t node) { return end[node] - start[node]; }));
    if (plan.counted == 0) times.push_back(last);
    if (!times.empty()) slowest = std::max(slowest, quantile(times, 0.5));
  }
  return slowest;
}

Result<std::vector<std::int64_t>> alone(const Plan& plan, const engine::Durations& durations) {
  const auto& job = *plan.job;
  if (!plan.network) return plan.service->duration_ns;
  auto by_itself = *plan.network;
  by_itself.kind = simulate::NetworkKind::kClosedForm;
  auto other = plan;
  other.network = &by_itself;
  PRISM_ASSIGN_OR_RETURN(auto executor, Executor::make(other));
  PRISM_RETURN_IF_ERROR(executor.execute(durations));
  PRISM_ASSIGN_OR_RETURN(const auto execution, std::move(executor).take_execution(durations));
  std::vector<std::int64_t> times(job.entries);
  for (std::uint32_t entry = 0; entry < job.entries; ++entry) {
    const auto& timeline = execution.timelines[job.entry_rank[entry]];
    times[entry] = timeline.end_ns(job.transfer_node(entry)) - execution.transfer_start_ns[entry];
  }
  return times;
}

}  // namespace prism::calibration
