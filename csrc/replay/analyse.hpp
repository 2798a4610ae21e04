// The analysis of an execution, and each rank's bubble.
#pragma once
#include <cstdint>
#include <vector>

#include "replay/execution.hpp"
#include "replay/replay.hpp"

namespace prism::engine {

// On the rank that took longest: an iteration's begin and end, and the node in which it ends.
struct IterationSpan {
  int rank = 0;
  std::uint32_t node = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
};

// Fills report.analysis, and bubble_ns of report.ranks.
void analyse(const Job& job, const Execution& execution, const std::vector<IterationSpan>& iterations,
             ReplayReport& report);

}  // namespace prism::engine
