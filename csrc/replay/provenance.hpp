// What a graph's metadata says of its times.
#pragma once
#include <string>

#include "graph/graph.hpp"

namespace prism::engine {

struct Provenance {
  // The times of all ranks are on one clock ("clock_domain": one string for all ranks, or a list with one for each).
  bool one_clock = false;
  // Ranks were timed slice by slice ("timing": {"method": "slices"}) and not put together since: compute spans are
  // measured; waits and transfers mean nothing, nor do clocks.
  bool slices = false;
  // The times are those of an execution of ours ("calibrated", "replayed"): each part of a communication ended exactly
  // when its transfer says.
  bool executed = false;
};
Provenance provenance_of(const ExecutionGraph& graph);

// The graph's metadata where its times become those of a replay, which are on one clock.
std::string as_replayed(const ExecutionGraph& graph);

}  // namespace prism::engine
