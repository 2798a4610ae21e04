#include "calibrate/measured.hpp"

#include <fmt/format.h>

#include "replay/checks.hpp"

namespace prism::calibration {

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
  PRISM_ASSIGN_OR_RETURN(measured.job, engine::prepare(graph));
  measured.slices = measured.job.provenance.slices;
  measured.service = engine::service_times(measured.job, links);
  if (on_network) {
    measured.service.notes = {fmt::format("transfers on a network of {} endpoints", on_network->endpoints())};
  } else {
    engine::Extent extent;
    extent.takes(measured.service.duration_ns);
    PRISM_RETURN_IF_ERROR(extent.check());
  }
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
