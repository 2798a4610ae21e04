// What an execution leaves: when each node ran, and when each transfer could start.
#pragma once
#include <cstdint>
#include <vector>

#include "replay/edits.hpp"
#include "replay/job.hpp"
#include "replay/replay.hpp"
#include "replay/service_times.hpp"

namespace prism::engine {

struct Execution {
  std::vector<ReplayReport::Timeline> timelines;  // [world size]
  std::vector<std::int64_t> transfer_start_ns;    // [entries]
};

// The record of a timed graph on one clock, as if it had been executed.
Execution recorded(const Job& job, const ServiceTimes& service);

// What a wait was for: the transfer that ended last of those that it covers (kNone: none), and how much of the wait was
// waiting until that could start.
struct WaitSplit {
  std::uint32_t entry = kNone;
  std::int64_t waiting_ns = 0;
};
WaitSplit split_wait(const Job& job, const Execution& execution, int rank, std::uint32_t node);

// [world size] What is 0 of the replay: the record's first node, where clocks can be compared; else each rank's own.
std::vector<std::int64_t> clock_starts(const Job& job);

}  // namespace prism::engine
