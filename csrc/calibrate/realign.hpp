// Partial re-alignment: some ranks were timed again.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "calibrate/calibrate.hpp"

namespace prism {

struct Realignment {
  ReplayReport report;
  std::string metadata_json;
  // Nodes and parts of communications that were looked at, of so many; a timed trace is not executed: 0.
  std::size_t visited = 0, nodes = 0;
};

// Puts the compute spans and issues of `ranks` from `timed` onto `onto`, node by node. Where `onto` is calibrated,
// everything downstream of what changed moves: without a network only that is computed again, on a network all of it.
// The answer is that of executing all again. Where it is only timed, it stays so, to be calibrated.
// Errors: kInvalidInput (ranks that are not there, no times), kMismatch with the first difference in structure.
Result<Realignment> realign(const ExecutionGraph& onto, const ExecutionGraph& timed, std::vector<int> ranks,
                            const std::optional<NetworkOptions>& network = std::nullopt);
Result<ExecutionGraph> realigned_trace(const ExecutionGraph& onto, const Realignment& realignment);

}  // namespace prism
