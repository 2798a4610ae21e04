#include "calibrate/measured.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace prism::calibration {
namespace {

bool from_slices(const nlohmann::json& metadata) {
  const auto timing = metadata.find("timing");
  return timing != metadata.end() && timing->is_object() && timing->value("method", nlohmann::json()) == "slices";
}

void forget_waits_and_clocks(Measured& measured) {
  auto& job = measured.job;
  measured.start_ns.resize(job.ranks.size());
  measured.duration_ns.resize(job.ranks.size());
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    if (job.ranks[r].cls < 0) continue;
    const auto rank = static_cast<int>(r);
    const auto timing = job.timing(rank);
    const auto& kinds = job.view(rank).node_kind;
    auto &start = measured.start_ns[r], &duration = measured.duration_ns[r];
    start.assign(timing.start_ns.begin(), timing.start_ns.end());
    const auto own_first = *std::min_element(start.begin(), start.end());
    for (auto& at : start) at -= own_first;
    duration.assign(timing.duration_ns.begin(), timing.duration_ns.end());
    for (std::size_t node = 0; node < duration.size(); ++node)
      if (kinds[node] == static_cast<std::uint8_t>(NodeKind::kWait) ||
          kinds[node] == static_cast<std::uint8_t>(NodeKind::kTransfer))
        duration[node] = 0;
    job.timings[r] = {start, duration};
  }
}

}  // namespace

Result<Measured> measure(const ExecutionGraph& graph, const ClosedFormLinks& links,
                         const simulate::Topology* on_network) {
  if (!graph.timed())
    return Error{ErrorCode::kInvalidInput,
                 "the trace has no measured times, only structure; time it first (prism time), or record a real run "
                 "(prism record)"};
  if (!(links.bytes_per_second > 0) || links.latency_ns < 0)
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("links: {} bytes/s and a latency of {} ns; accepted: > 0 and >= 0", links.bytes_per_second,
                             links.latency_ns)};
  PRISM_RETURN_IF_ERROR(validate(graph));
  bool any = false;
  for (int rank = 0; rank < graph.world_size(); ++rank) {
    if (graph.class_of(rank) < 0) continue;
    any = true;
    const auto nodes = graph.class_view(graph.class_of(rank)).node_kind.size();
    if (nodes == 0 || graph.timing(rank).start_ns.size() != nodes)
      return Error{ErrorCode::kInvalidInput, fmt::format("rank {} of the trace has no times; time it as well", rank)};
  }
  if (!any) return Error{ErrorCode::kInvalidInput, "the trace has no rank"};
  Measured measured;
  measured.metadata = nlohmann::json::parse(graph.metadata_json(), nullptr, /*allow_exceptions=*/false);
  if (!measured.metadata.is_object()) measured.metadata = nlohmann::json::object();
  const auto calibrated = measured.metadata.value("calibrated", nlohmann::json());
  measured.calibrated = calibrated.is_object();
  measured.slices = !measured.calibrated && from_slices(measured.metadata);
  PRISM_ASSIGN_OR_RETURN(measured.job, engine::prepare(graph));
  if (measured.slices) forget_waits_and_clocks(measured);
  measured.service =
      measured.slices ? engine::closed_form_times(measured.job, links) : engine::service_times(measured.job, links);
  double sum = 0;
  for (const auto duration : measured.service.duration_ns) sum += static_cast<double>(duration);
  if (!on_network && sum > 4e18)
    return Error{ErrorCode::kInvalidInput, "the transfers of the trace add up to more than 4e18 ns"};
  if (on_network)
    measured.service.notes = {fmt::format("transfers on a network of {} endpoints", on_network->endpoints())};
  else if (measured.slices)
    measured.service.notes.push_back(
        fmt::format("slices do not time transfers: closed form, latency {} s, {} bytes/s (--comm gives a network)",
                    static_cast<double>(links.latency_ns) * 1e-9, links.bytes_per_second));
  return measured;
}

std::optional<int> warmup_of(const Measured& measured) {
  const auto timing = measured.metadata.find(measured.calibrated ? "calibrated" : "timing");
  if (timing == measured.metadata.end() || !timing->is_object()) return std::nullopt;
  const auto known = timing->find("warmup_iterations");
  if (known == timing->end() || !known->is_number_unsigned() || known->get<std::uint64_t>() > INT_MAX)
    return std::nullopt;
  return static_cast<int>(known->get<std::uint64_t>());
}

}  // namespace prism::calibration
