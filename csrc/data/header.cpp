#include "data/header.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "graph/strict_json.hpp"

namespace prism {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 4;
constexpr std::array kFields = {"version", "world_size", "for_ranks", "groups", "shards"};

Error bad(const std::string& place, std::string_view field, const json& value, std::string_view accepted) {
  return {ErrorCode::kCorruptFile, fmt::format("{}: {} is {:.80}; accepted: {}", place, field, value.dump(), accepted)};
}

bool is_count(const json& value, std::uint64_t most) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() <= most;
}

}  // namespace

Result<std::string> format_data_header(const DataHeader& header) {
  json text = {{"version", kDataVersion},
               {"world_size", header.world_size},
               {"for_ranks", nullptr},
               {"groups", header.groups},
               {"shards", header.shards}};
  if (header.for_ranks) text["for_ranks"] = *header.for_ranks;
  try {
    return text.dump();
  } catch (const json::exception& error) {
    return Error{ErrorCode::kInvalidInput, fmt::format("the name of a group is not UTF-8: {}", error.what())};
  }
}

Result<DataHeader> parse_data_header(std::string_view text, const std::string& path) {
  const auto place = path + ": __metadata__.prismdata";
  PRISM_ASSIGN_OR_RETURN(const auto json, parse_strict_json(text, kMaxDepth, place));
  if (!json.is_object()) return bad(place, "the header", json, "a JSON object");
  for (const auto* field : kFields)
    if (!json.contains(field)) return Error{ErrorCode::kCorruptFile, fmt::format("{}: {} is missing", place, field)};
  if (json["version"] != kDataVersion)
    return bad(place, "version", json["version"], fmt::format("{}, the version this program reads", kDataVersion));
  DataHeader header;
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  const auto& world = json["world_size"];
  if (!is_count(world, kMost) || world == 0) return bad(place, "world_size", world, "1 to 2147483647");
  header.world_size = world.get<int>();
  if (!is_count(json["shards"], kMost)) return bad(place, "shards", json["shards"], "0 to 2147483647");
  header.shards = json["shards"].get<std::uint32_t>();
  const auto& ranks = json["for_ranks"];
  if (!ranks.is_null() && !ranks.is_array()) return bad(place, "for_ranks", ranks, "null or a list of ranks");
  if (ranks.is_array()) {
    header.for_ranks.emplace();
    for (const auto& rank : ranks) {
      if (!is_count(rank, static_cast<std::uint64_t>(header.world_size) - 1) ||
          (!header.for_ranks->empty() && rank.get<std::int32_t>() <= header.for_ranks->back()))
        return bad(place, "for_ranks", rank, fmt::format("ascending ranks of 0 to {}", header.world_size - 1));
      header.for_ranks->push_back(rank.get<std::int32_t>());
    }
  }
  const auto& groups = json["groups"];
  if (!groups.is_array()) return bad(place, "groups", groups, "a list of names");
  for (const auto& name : groups) {
    if (!name.is_string() || (!header.groups.empty() && name.get_ref<const std::string&>() <= header.groups.back()))
      return bad(place, "groups", name, "names in ascending order");
    header.groups.push_back(name.get<std::string>());
  }
  return header;
}

}  // namespace prism
