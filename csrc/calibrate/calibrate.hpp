// Calibration: from spans that were timed slice by slice to one timeline in which every dependency holds, with the
// spread that the repetitions show. Waits are recomputed, clocks of different ranks are never compared.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replay/replay.hpp"

namespace prism {

struct CalibrateOptions {
  // Iterations at the beginning that are neither drawn from nor counted; default: the trace's, or 1.
  std::optional<int> warmup = {};
  // Executions; default: as many as give 400 iterations, at least 32. The median's standard error is 1.25 / sqrt(n) of
  // the spread of one iteration, so 6% of it.
  std::optional<int> samples = {};
  std::uint64_t seed = 0;
  int threads = 0;  // 0: all cores; the answer is the same for any number
  // For slices without a network: transfers by closed form.
  ClosedFormLinks links = {};
  // `topology` is only read; each thread makes its own. `bins` and `flows` do not count.
  std::optional<NetworkOptions> network = {};
  std::string network_name = {};  // for the trace's metadata
};

struct Quantiles {
  std::int64_t p05 = 0, median = 0, p95 = 0;  // ns
};
// Between the two nearest values, as NumPy does; of at least one value, which are put in order.
std::int64_t quantile(std::vector<std::int64_t>& values, double q);
Quantiles quantiles_of(std::vector<std::int64_t> values);

struct Calibration {
  Quantiles iteration_time_ns;  // of all counted iterations of all sampled executions
  // Each rank's own spans and its transfers as if alone, without waiting; the slowest rank.
  std::int64_t uncalibrated_ns = 0;
  // Of the execution in which each span takes its median.
  std::int64_t of_medians_ns = 0;
  std::vector<std::vector<std::int64_t>> iteration_times_ns;  // [samples][counted iterations], the slowest rank's
  int warmup = 0;
  int first_counted = 0, counted = 0;  // iterations
  int chosen = 0;                      // the sample whose median is nearest to the headline
  Quantiles busy_ns;                   // computing, of one rank in one iteration: all ranks and repetitions
  ReplayReport report;                 // of the chosen sample
  std::string comm;                    // where transfers come from: a network's name, "recorded", "closed form"
  std::string metadata_json;           // of the calibrated trace
  std::vector<std::string> notes;
};

// Errors: kInvalidInput (no times, options that cannot be), kCorruptFile and kMismatch (operations that do not match),
// kDeadlock with who waits for whom. A calibrated trace is one execution: it is executed again as it is.
Result<Calibration> calibrate(const ExecutionGraph& graph, const CalibrateOptions& options = {});
// The chosen execution as a trace.
Result<ExecutionGraph> calibrated_trace(const ExecutionGraph& graph, const Calibration& calibration);

}  // namespace prism
