// Programs as traces that were timed slice by slice, and their calibration.
#pragma once
#include "calibrate/calibrate.hpp"
#include "replay/program.hpp"

namespace prism::test {

// Warm-up is named by each test: none. All ranks claim one clock, which means nothing.
inline const char* kSlices =
    R"({"clock_domain": "one", "timing": {"method": "slices", "warmup_iterations": 0, "slices": [[0], [1]]}})";
inline ExecutionGraph slices(Program& program) { return program.graph(true, kSlices); }

// A message takes no time, nor does a collective of no bytes; of c bytes a message takes c ns.
inline CalibrateOptions at_1_gigabyte_per_second() { return {.links = {.latency_ns = 0, .bytes_per_second = 1e9}}; }

inline Calibration calibration_of(const ExecutionGraph& graph,
                                  const CalibrateOptions& options = at_1_gigabyte_per_second()) {
  auto calibration = calibrate(graph, options);
  INFO((calibration ? std::string() : calibration.error().message));
  REQUIRE(calibration.ok());
  return *calibration;
}

inline ExecutionGraph trace_of(const ExecutionGraph& graph, const Calibration& calibration) {
  auto trace = calibrated_trace(graph, calibration);
  INFO((trace ? std::string() : trace.error().message));
  REQUIRE(trace.ok());
  return *trace;
}

inline std::int64_t median_of(Program& program) { return calibration_of(slices(program)).iteration_time_ns.median; }

inline std::string error_of(const ExecutionGraph& graph, const CalibrateOptions& options = {}) {
  auto calibration = calibrate(graph, options);
  REQUIRE(!calibration.ok());
  return calibration.error().message;
}

}  // namespace prism::test
