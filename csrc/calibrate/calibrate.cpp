#include "calibrate/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calibrate/executor.hpp"
#include "calibrate/measured.hpp"
#include "calibrate/overlay.hpp"
#include "calibrate/samples.hpp"

namespace prism {
namespace {

using calibration::Executor;
using calibration::Measured;
using calibration::Sampling;

constexpr int kIterations = 400, kFewestSamples = 32, kMostSamples = 1'000'000;
constexpr int kMostThreads = 1024;

Error wrong(std::string text) { return {ErrorCode::kInvalidInput, std::move(text)}; }

// The sample whose iterations have the median nearest to that of all; of several the first.
int nearest(const std::vector<std::vector<std::int64_t>>& times, std::int64_t median) {
  int best = 0;
  std::int64_t least = INT64_MAX;
  for (std::size_t s = 0; s < times.size(); ++s) {
    auto own = times[s];
    const auto distance = std::abs(quantile(own, 0.5) - median);
    if (distance < least) least = distance, best = static_cast<int>(s);
  }
  return best;
}

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

nlohmann::json to_json(const Quantiles& q) {
  return {{"median", seconds(q.median)}, {"p05", seconds(q.p05)}, {"p95", seconds(q.p95)}};
}

std::string metadata_of(const Measured& measured, const Calibration& calibration, const CalibrateOptions& options) {
  auto metadata = measured.metadata;
  metadata["clock_domain"] = "calibrated";
  metadata["calibrated"] = {{"iteration_time_s", to_json(calibration.iteration_time_ns)},
                            {"uncalibrated_iteration_time_s", seconds(calibration.uncalibrated_ns)},
                            {"iteration_time_of_medians_s", seconds(calibration.of_medians_ns)},
                            {"busy_s", to_json(calibration.busy_ns)},
                            {"samples", calibration.iteration_times_ns.size()},
                            {"sample", calibration.chosen},
                            {"seed", options.seed},
                            {"warmup_iterations", calibration.warmup},
                            {"first_iteration", calibration.first_counted},
                            {"iterations", calibration.counted},
                            {"comm", calibration.comm},
                            {"notes", calibration.notes}};
  return metadata.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Of a calibrated trace that is executed again as it is: the figures of the executions that it was chosen from.
void keep_figures(const ExecutionGraph& graph, const Measured& measured, Calibration& calibration) {
  calibration.metadata_json = graph.metadata_json();
  const auto& stored = measured.metadata["calibrated"];
  if (const auto comm = stored.value("comm", nlohmann::json()); comm.is_string()) calibration.comm = comm;
  const auto times = stored.value("iteration_time_s", nlohmann::json());
  const auto known = [&](const char* name) {
    return times.is_object() && times.contains(name) && times[name].is_number();
  };
  if (!known("median") || !known("p05") || !known("p95")) return;
  const auto ns = [&](const char* name) { return std::llround(std::clamp(times[name].get<double>(), 0.0, 9e9) * 1e9); };
  calibration.iteration_time_ns = {ns("p05"), ns("median"), ns("p95")};
}

bool is_unchanged(const ExecutionGraph& graph, const ReplayReport& report) {
  return std::all_of(report.ranks.begin(), report.ranks.end(), [&](const auto& one) {
    const auto before = graph.timing(one.rank);
    const auto& now = report.timelines[static_cast<std::size_t>(one.rank)];
    return std::ranges::equal(before.start_ns, now.start_ns) && std::ranges::equal(before.duration_ns, now.duration_ns);
  });
}

Result<void> check(const CalibrateOptions& options) {
  if (options.samples && (*options.samples < 1 || *options.samples > kMostSamples))
    return wrong(fmt::format("{} samples; accepted: 1 to {}", *options.samples, kMostSamples));
  if (options.threads < 0 || options.threads > kMostThreads)
    return wrong(fmt::format("{} threads; accepted: 0 (all cores) to {}", options.threads, kMostThreads));
  return {};
}

}  // namespace

std::int64_t quantile(std::vector<std::int64_t>& values, double q) {
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const auto high = std::min(low + 1, values.size() - 1);
  return values[low] + std::llround((at - static_cast<double>(low)) * static_cast<double>(values[high] - values[low]));
}

Quantiles quantiles_of(std::vector<std::int64_t> values) {
  return {quantile(values, 0.05), quantile(values, 0.5), quantile(values, 0.95)};
}

Result<Calibration> calibrate(const ExecutionGraph& graph, const CalibrateOptions& options) {
  PRISM_RETURN_IF_ERROR(check(options));
  PRISM_ASSIGN_OR_RETURN(
      auto measured, calibration::measure(graph, options.links, options.network ? options.network->topology : nullptr));
  const auto& job = measured.job;
  const auto known = warmup_of(measured);
  PRISM_ASSIGN_OR_RETURN(const auto sampling, Sampling::make(job, options.warmup, known));
  const auto plan = make_plan(job, measured.service, options.network ? &*options.network : nullptr, sampling);
  Calibration result;
  result.notes = measured.service.notes;
  result.comm = options.network ? options.network_name : measured.slices ? "closed form" : "recorded";
  result.warmup = sampling.warmup();
  if (!options.warmup && known.value_or(0) > result.warmup)
    result.notes.push_back(fmt::format("the trace names {} iterations of warm-up and has {}: none is left out", *known,
                                       sampling.iterations()));
  result.first_counted = sampling.first_counted();
  result.counted = sampling.counted();
  result.busy_ns = sampling.busy();

  engine::Durations medians(job), durations(job);
  const bool varies = sampling.varies() && !measured.calibrated;
  if (varies) sampling.medians(medians);
  PRISM_ASSIGN_OR_RETURN(auto executor, Executor::make(plan));
  PRISM_RETURN_IF_ERROR(executor.execute(medians));
  auto of_medians = executor.iteration_times(medians);
  result.of_medians_ns = quantile(of_medians, 0.5);
  PRISM_ASSIGN_OR_RETURN(const auto alone_ns, alone(plan, medians));
  result.uncalibrated_ns = uncalibrated(plan, alone_ns);

  if (varies) {
    const int enough = std::max(kFewestSamples, (kIterations + result.counted - 1) / std::max(1, result.counted));
    PRISM_ASSIGN_OR_RETURN(result.iteration_times_ns, run_samples(plan, sampling, medians, options.seed,
                                                                  options.samples.value_or(enough), options.threads));
  } else {
    result.iteration_times_ns.push_back(executor.iteration_times(medians));
    if (measured.calibrated)
      result.notes.push_back("the trace is calibrated: one execution, which is executed again as it is");
    else if (sampling.iterations() > 0)
      result.notes.push_back("no rank has two repetitions to draw from: one execution, no spread");
  }
  std::vector<std::int64_t> all;
  for (const auto& one : result.iteration_times_ns) all.insert(all.end(), one.begin(), one.end());
  result.iteration_time_ns = quantiles_of(std::move(all));
  result.chosen = nearest(result.iteration_times_ns, result.iteration_time_ns.median);
  // Anew: which of several equal ways a message takes depends on who has asked before, and whoever executes the trace
  // again begins here.
  std::optional<Executor> last(std::move(executor));
  if (varies) {
    sampling.draw(options.seed, result.chosen, durations);
    if (options.network) {
      PRISM_ASSIGN_OR_RETURN(auto fresh, Executor::make(plan));
      last.emplace(std::move(fresh));
    }
    PRISM_RETURN_IF_ERROR(last->execute(durations));
  }
  PRISM_ASSIGN_OR_RETURN(auto execution, std::move(*last).take_execution(durations));
  result.report = make_report(job, std::move(execution));
  result.notes.insert(result.notes.end(), result.report.notes.begin(), result.report.notes.end());
  if (measured.calibrated && (!options.network || is_unchanged(graph, result.report)))
    keep_figures(graph, measured, result);
  else
    result.metadata_json = metadata_of(measured, result, options);
  return result;
}

Result<ExecutionGraph> calibrated_trace(const ExecutionGraph& graph, const Calibration& calibration) {
  return retimed(graph, calibration.report, calibration.metadata_json);
}

}  // namespace prism
