// GraphHeader as JSON text, the entry "prism" of a file's __metadata__.
#pragma once
#include "graph/columns.hpp"

namespace prism {

inline constexpr int kTraceVersion = 1;

Result<std::string> format_trace_header(const GraphHeader& header);
Result<GraphHeader> parse_trace_header(std::string_view text, const std::string& path);

}  // namespace prism
