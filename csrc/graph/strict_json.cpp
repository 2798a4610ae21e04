#include "graph/strict_json.hpp"

#include <fmt/format.h>

#include <set>
#include <stdexcept>
#include <vector>

namespace prism {

Result<nlohmann::json> parse_strict_json(std::string_view text, int max_depth, const std::string& place) {
  using json = nlohmann::json;
  std::vector<std::set<std::string>> names;  // of the open objects, by depth
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      if (depth >= max_depth) throw std::length_error(fmt::format("nesting deeper than {}", max_depth));
      names.resize(depth + 1);
      names[depth].clear();
    } else if (event == json::parse_event_t::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!names[depth - 1].insert(name).second)
        throw std::invalid_argument(fmt::format("the name '{:.80}' occurs twice", name));
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const std::exception& error) {  // the library's parse errors and those of `watch`
    return Error{ErrorCode::kCorruptFile, fmt::format("{} is not acceptable JSON: {:.200}", place, error.what())};
  }
}

}  // namespace prism
