// Many executions at once, on all cores.
#pragma once
#include <cstdint>
#include <vector>

#include "calibrate/executor.hpp"
#include "calibrate/sampling.hpp"

namespace prism::calibration {

// [samples][counted iterations] The times of `samples` executions, by so many threads (0: one a core), which have ended
// when this returns. Whoever executes which, the answer is the same. Errors: that of the first sample that has one.
Result<std::vector<std::vector<std::int64_t>>> run_samples(const Plan& plan, const Sampling& sampling,
                                                           const engine::Durations& medians, std::uint64_t seed,
                                                           int samples, int threads);

}  // namespace prism::calibration
