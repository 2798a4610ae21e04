// JSON from strangers: nlohmann/json with the checks that it leaves to its caller.
#pragma once
#include <nlohmann/json.hpp>

#include "core/result.hpp"

namespace prism {

// UTF-8, nothing after the document, no name twice in an object, nesting of at most `max_depth` (so that recursion over
// the result is bounded). Errors are kCorruptFile and start with `place`.
Result<nlohmann::json> parse_strict_json(std::string_view text, int max_depth, const std::string& place);

}  // namespace prism
