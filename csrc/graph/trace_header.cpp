#include "graph/trace_header.hpp"

#include <fmt/ranges.h>

#include <array>
#include <limits>

#include "graph/strict_json.hpp"

namespace prism {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 32;
constexpr std::array kProgressModels = {"gloo", "nccl", "conservative"};
constexpr std::array kFields = {"version", "world_size", "progress_model", "timed", "strings", "groups", "metadata"};

Error bad(const std::string& place, std::string_view field, const json& value, std::string_view accepted) {
  return {ErrorCode::kCorruptFile, fmt::format("{}: {} is {:.80}; accepted: {}", place, field, value.dump(), accepted)};
}

Result<std::vector<std::string>> string_list(const json& value, std::string_view field, const std::string& place) {
  if (!value.is_array()) return bad(place, field, value, "a list of strings");
  std::vector<std::string> list;
  list.reserve(value.size());
  for (const auto& item : value) {
    if (!item.is_string()) return bad(place, field, item, "strings");
    list.push_back(item.get<std::string>());
  }
  return list;
}

}  // namespace

Result<std::string> format_trace_header(const GraphHeader& header) {
  auto metadata = parse_strict_json(header.metadata_json, kMaxDepth - 1, "the trace's metadata");
  if (!metadata || !metadata->is_object())
    return Error{ErrorCode::kInvalidInput,
                 metadata ? "the trace's metadata is not a JSON object" : metadata.error().message};
  const json text = {{"version", kTraceVersion},
                     {"world_size", header.world_size},
                     {"progress_model", header.progress_model},
                     {"timed", header.timed},
                     {"strings", header.strings},
                     {"groups", header.group_names},
                     {"metadata", std::move(metadata).value()}};
  try {
    return text.dump();
  } catch (const json::exception& error) {
    return Error{ErrorCode::kInvalidInput, fmt::format("a name in the trace is not UTF-8: {}", error.what())};
  }
}

Result<GraphHeader> parse_trace_header(std::string_view text, const std::string& path) {
  const auto place = path + ": __metadata__.prism";
  PRISM_ASSIGN_OR_RETURN(const auto json, parse_strict_json(text, kMaxDepth, place));
  if (!json.is_object()) return bad(place, "the header", json, "a JSON object");
  for (const auto* field : kFields)
    if (!json.contains(field)) return Error{ErrorCode::kCorruptFile, fmt::format("{}: {} is missing", place, field)};
  if (json["version"] != kTraceVersion)
    return bad(place, "version", json["version"], fmt::format("{}, the version this program reads", kTraceVersion));
  GraphHeader header;
  const auto& world = json["world_size"];
  if (!world.is_number_unsigned() || world.get<std::uint64_t>() < 1 ||
      world.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max()))
    return bad(place, "world_size", world, "1 to 2147483647");
  header.world_size = world.get<int>();
  const auto& model = json["progress_model"];
  if (std::ranges::find(kProgressModels, model) == kProgressModels.end())
    return bad(place, "progress_model", model, fmt::format("{}", fmt::join(kProgressModels, ", ")));
  header.progress_model = model.get<std::string>();
  if (!json["timed"].is_boolean()) return bad(place, "timed", json["timed"], "true or false");
  header.timed = json["timed"].get<bool>();
  PRISM_ASSIGN_OR_RETURN(header.strings, string_list(json["strings"], "strings", place));
  PRISM_ASSIGN_OR_RETURN(header.group_names, string_list(json["groups"], "groups", place));
  if (!json["metadata"].is_object()) return bad(place, "metadata", json["metadata"], "a JSON object");
  header.metadata_json = json["metadata"].dump();
  return header;
}

}  // namespace prism
