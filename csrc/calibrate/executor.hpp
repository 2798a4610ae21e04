// Executes one job again and again, with other durations each time: by a sweep where nothing is shared and nothing
// depends on the order of time, else event by event. One thread each.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "calibrate/sampling.hpp"
#include "replay/execution.hpp"
#include "replay/report.hpp"
#include "replay/sweep.hpp"

namespace prism::calibration {

// What all threads read.
struct Plan {
  const engine::Job* job = nullptr;
  const engine::ServiceTimes* service = nullptr;
  const NetworkOptions* network = nullptr;        // nullptr: transfers take their service times
  std::optional<engine::Sweep> sweep;             // without a network
  std::vector<std::vector<int>> parts;            // for the events
  std::vector<std::int64_t> clock_starts;         // [world size]
  std::vector<engine::IterationPlan> iterations;  // [classes]
  std::size_t first_counted = 0, counted = 0;
};
Plan make_plan(const engine::Job& job, const engine::ServiceTimes& service, const NetworkOptions* network,
               const Sampling& sampling);

class Executor {
 public:
  // kInvalidInput: the network cannot carry the job.
  static Result<Executor> make(const Plan& plan);
  // kDeadlock with who waits for whom.
  Result<void> execute(const engine::Durations& durations);
  // Of the counted iterations, the slowest rank's; of the whole where nothing is marked.
  std::vector<std::int64_t> iteration_times(const engine::Durations& durations) const;
  Result<engine::Execution> take_execution(const engine::Durations& durations) &&;

 private:
  explicit Executor(const Plan& plan) : plan_(&plan), sweep_(plan.sweep) {}
  const Plan* plan_;
  std::unique_ptr<simulate::Topology> topology_;  // own: a topology remembers the ways that were asked for
  std::optional<NetworkOptions> network_;
  std::optional<engine::Sweep> sweep_;
  std::optional<engine::Execution> execution_;  // of the events
};

}  // namespace prism::calibration
