#include "calibrate/executor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "replay/components.hpp"
#include "replay/engine.hpp"
#include "replay/on_network.hpp"
#include "replay/traffic.hpp"

namespace prism::calibration {

Plan make_plan(const engine::Job& job, const engine::ServiceTimes& service, const NetworkOptions* network,
               const Sampling& sampling) {
  Plan plan{.job = &job,
            .service = &service,
            .network = network,
            .sweep = network ? std::nullopt : engine::Sweep::make(job),
            .parts = engine::independent_parts(job, network),
            .clock_starts = engine::clock_starts(job),
            .iterations = {},
            .first_counted = static_cast<std::size_t>(sampling.first_counted()),
            .counted = static_cast<std::size_t>(sampling.counted())};
  for (std::size_t cls = 0; cls < job.classes.size(); ++cls)
    plan.iterations.push_back(engine::iteration_plan(job.views[cls], job.classes[cls]));
  return plan;
}

Result<Executor> Executor::make(const Plan& plan) {
  Executor executor(plan);
  if (plan.network) {
    PRISM_ASSIGN_OR_RETURN(auto topology, simulate::Topology::make(plan.network->topology->spec()));
    executor.topology_ = std::make_unique<simulate::Topology>(std::move(topology));
    executor.network_ = *plan.network;
    executor.network_->topology = executor.topology_.get();
    executor.network_->use = false;
    executor.network_->bins = 0;
    executor.network_->flows = false;
  }
  return executor;
}

Result<void> Executor::execute(const engine::Durations& durations) {
  execution_.reset();
  if (sweep_ && sweep_->run(durations, *plan_->service, plan_->clock_starts)) return {};
  std::unique_ptr<engine::Carrier> carrier = std::make_unique<engine::FixedTimes>(*plan_->service);
  if (network_) {
    PRISM_ASSIGN_OR_RETURN(carrier, engine::OnNetwork::make(*plan_->job, *network_));
  }
  engine::Engine events(*plan_->job, durations, *plan_->service, *carrier);
  PRISM_RETURN_IF_ERROR(events.run(plan_->parts));
  execution_ = std::move(events).take_execution();
  return {};
}

std::vector<std::int64_t> Executor::iteration_times(const engine::Durations& durations) const {
  const auto& job = *plan_->job;
  std::vector<std::int64_t> slowest(std::max<std::size_t>(1, plan_->counted), 0);
  for (int rank = 0; rank < static_cast<int>(job.ranks.size()); ++rank) {
    if (job.ranks[rank].cls < 0) continue;
    const auto start = [&](std::uint32_t node) {
      return execution_ ? execution_->timelines[rank].start_ns[node] : sweep_->start_ns(rank, node, durations);
    };
    const auto duration = [&](std::uint32_t node) {
      return execution_ ? execution_->timelines[rank].duration_ns[node] : sweep_->end_ns(rank, node) - start(node);
    };
    const auto& iterations = plan_->iterations[job.ranks[rank].cls];
    for (std::size_t i = 0; i < plan_->counted && iterations.count() > 0; ++i)
      slowest[i] = std::max(slowest[i], engine::iteration_time(iterations, plan_->first_counted + i, start, duration));
    const auto nodes = static_cast<std::uint32_t>(job.plan(rank).next_on_lane.size());
    for (std::uint32_t node = 0; plan_->counted == 0 && node < nodes; ++node) {
      const auto end = execution_ ? start(node) + duration(node) : sweep_->end_ns(rank, node);
      slowest[0] = std::max(slowest[0], end);
    }
  }
  return slowest;
}

Result<engine::Execution> Executor::take_execution(const engine::Durations& durations) && {
  auto execution = execution_ ? std::move(*execution_) : std::move(*sweep_).take_execution(durations);
  const auto& job = *plan_->job;
  for (std::uint32_t entry = 0; entry < job.entries; ++entry)
    if (execution.transfer_start_ns[entry] == INT64_MIN)
      return Error{ErrorCode::kDeadlock, fmt::format("rank {}: {} never meets its other end", job.entry_rank[entry],
                                                     engine::describe(job, entry))};
  return execution;
}

}  // namespace prism::calibration
