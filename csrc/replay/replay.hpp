// Offline replay: executes an ExecutionGraph with all ranks virtual. Time jumps; every wait is
// recomputed from what it waits for, never replayed. Runs on the calling thread; the graph is only read.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.hpp"
#include "replay/analysis.hpp"
#include "replay/network_options.hpp"
#include "replay/what_if.hpp"

namespace prism {

// For graphs without times of communication: a message of c bytes takes latency + c / rate; see service_times.cpp for
// the collectives. The defaults are a 10 Gbit/s network with a TCP stack.
struct ClosedFormLinks {
  std::int64_t latency_ns = 20'000;
  double bytes_per_second = 1.25e9;
};

struct ReplayOptions {
  std::vector<SpanEdit> edits = {};
  std::vector<CommunicationEdit> communications = {};  // not on a network
  ClosedFormLinks links = {};
  // Communication takes what it takes on this network, in the place of recorded times and of `links`.
  std::optional<NetworkOptions> network = {};
  bool analysis = false;  // whether the report has one, and bubbles
};

struct ReplayReport {
  struct Iteration {
    int index = 0;
    std::int64_t time_ns = 0;  // max over ranks, see report.cpp
    int rank = 0;              // that took so long; of several the lowest
  };
  // busy: compute and issue, summed over the rank's lanes. A wait is waiting until the transfer that it ends with
  // could start (the last member had come), and exposed communication from then on.
  struct Rank {
    int rank = 0;
    std::int64_t busy_ns = 0, exposed_comm_ns = 0, waiting_ns = 0, peak_memory_bytes = 0;
    std::int64_t peak_memory_at_ns = 0;  // the end of the first node that saw it
    std::int64_t bubble_ns = 0;          // with an analysis; the definition stands in analyse.cpp
  };
  // One entry a node of the rank's class; ns since the first rank's first node started.
  struct Timeline {
    std::vector<std::int64_t> start_ns, duration_ns;
    std::int64_t end_ns(std::uint32_t node) const { return start_ns[node] + duration_ns[node]; }
  };
  std::vector<Iteration> iterations;
  std::vector<Rank> ranks;            // recorded ranks, ascending
  std::int64_t critical_path_ns = 0;  // the longest chain of dependent nodes, from the first start to the last end
  std::vector<Timeline> timelines;    // [world size]; empty where not recorded
  std::vector<std::string> notes;     // what a reader must know to trust the numbers
  std::optional<NetworkUse> network;  // of a replay on a network
  std::optional<Analysis> analysis;
};

// Errors: kInvalidInput (an edit that matches nothing, or is of transfers on a network), kMismatch, kDeadlock with who
// waits for whom.
Result<ReplayReport> replay(const ExecutionGraph& graph, const ReplayOptions& options = {});
// The same figures, with an analysis, of the times that the graph has; of its replay where it is not timed, or its
// ranks' clocks cannot be compared.
Result<ReplayReport> as_recorded(const ExecutionGraph& graph);
// The graph with the times of a replay, and with other metadata where it is given.
Result<ExecutionGraph> retimed(const ExecutionGraph& graph, const ReplayReport& report,
                               std::optional<std::string> metadata_json = std::nullopt);

}  // namespace prism
