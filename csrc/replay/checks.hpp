// What is looked at before a graph is executed: a file may say anything of its times.
#pragma once
#include "core/result.hpp"
#include "replay/edits.hpp"
#include "replay/job.hpp"
#include "replay/service_times.hpp"

namespace prism::engine {

// kInvalidInput: no rank, or one without times; kCorruptFile as of ExecutionGraph::check_rank().
Result<void> check_times(const ExecutionGraph& graph);
// No moment of an execution with these durations and transfers is later, whatever waits for what; ns. On a network the
// times of the transfers are left to the carrier.
double latest_ns(const Job& job, const Durations& durations, const ServiceTimes& service);
// kInvalidInput where that is more than the clock can show.
Result<void> check_extent(const Job& job, const Durations& durations, const ServiceTimes& service);

}  // namespace prism::engine
