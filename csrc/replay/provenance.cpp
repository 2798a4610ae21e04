#include "replay/provenance.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace prism::engine {
namespace {

bool is_one_clock(const nlohmann::json& metadata) {
  if (!metadata.contains("clock_domain")) return false;
  const auto& domain = metadata["clock_domain"];
  if (!domain.is_array()) return domain.is_string();
  return std::all_of(domain.begin(), domain.end(), [&](const auto& d) { return d == domain.front(); });
}

nlohmann::json metadata_of(const ExecutionGraph& graph) {
  auto metadata = nlohmann::json::parse(graph.metadata_json(), nullptr, /*allow_exceptions=*/false);
  return metadata.is_object() ? metadata : nlohmann::json::object();
}

}  // namespace

Provenance provenance_of(const ExecutionGraph& graph) {
  const auto metadata = metadata_of(graph);
  const auto of = [&](const char* key) { return metadata.value(key, nlohmann::json()); };
  const bool executed = of("calibrated").is_object() || of("replayed") == true;
  const auto timing = of("timing");
  return {.one_clock = is_one_clock(metadata),
          .slices =
              graph.timed() && !executed && timing.is_object() && timing.value("method", nlohmann::json()) == "slices",
          .executed = executed};
}

std::string as_replayed(const ExecutionGraph& graph) {
  auto metadata = metadata_of(graph);
  metadata["replayed"] = true;
  metadata["clock_domain"] = "replayed";
  return metadata.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace prism::engine
