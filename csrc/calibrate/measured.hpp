// A timed trace prepared for calibration: its job, with times that mean the same for every rank, and its transfers.
#pragma once
#include <nlohmann/json.hpp>

#include "calibrate/calibrate.hpp"
#include "replay/job.hpp"
#include "replay/service_times.hpp"
#include "simulate/topology.hpp"

namespace prism::calibration {

struct Measured {
  engine::Job job;
  engine::ServiceTimes service;
  nlohmann::json metadata;  // an object
  bool slices = false;      // timed slice by slice: waits and transfers mean nothing, nor do clocks
  bool calibrated = false;  // an execution, not repetitions
};

// Checks every value first. The graph outlives the result. `on_network`: nullptr, where transfers take their own times.
Result<Measured> measure(const ExecutionGraph& graph, const ClosedFormLinks& links,
                         const simulate::Topology* on_network);

// Iterations of warm-up, if the trace says how many.
std::optional<int> warmup_of(const Measured& measured);

}  // namespace prism::calibration
