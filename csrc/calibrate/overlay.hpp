// The uncalibrated figure: slices laid over each other as they were timed, for comparison with the calibrated one.
#pragma once
#include "calibrate/executor.hpp"

namespace prism::calibration {

// Every rank by itself: its own spans, each transfer as long as alone from its own issue on, nobody waited for. The
// median of its counted iterations; the slowest rank's. `alone_ns`: [entries].
std::int64_t uncalibrated(const Plan& plan, const std::vector<std::int64_t>& alone_ns);

// [entries] How long each part of a communication takes while nothing else is under way: on the plan's network, after
// an execution with these durations, else the service times.
Result<std::vector<std::int64_t>> alone(const Plan& plan, const engine::Durations& durations);

}  // namespace prism::calibration
