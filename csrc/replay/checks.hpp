// What is looked at before a graph is executed: a file may say anything of its times.
#pragma once
#include <cstdint>
#include <span>

#include "core/result.hpp"
#include "replay/edits.hpp"
#include "replay/job.hpp"
#include "replay/service_times.hpp"

namespace prism::engine {

// kInvalidInput: no rank, or one without times; kCorruptFile as of ExecutionGraph::check_rank().
Result<void> check_times(const ExecutionGraph& graph);

// How late an execution can come, whatever waits for what.
class Extent {
 public:
  // Where its lanes start; what is on them follows.
  void begins(const Job& job, int rank);
  void takes(std::span<const std::int64_t> duration_ns);
  void takes(double duration_ns) { sum_ += duration_ns; }
  // kInvalidInput where that is more than half of what 64 bits hold, so that two such sums may be added.
  Result<void> check() const;

 private:
  double latest_start_ = 0, sum_ = 0;
};

// Of an execution with these durations and transfers. On a network the carrier sees to the transfers' times.
Result<void> check_extent(const Job& job, const Durations& durations, const ServiceTimes& service);

}  // namespace prism::engine
