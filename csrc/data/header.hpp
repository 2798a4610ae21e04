// The index's JSON header, __metadata__.prismdata. Private.
#pragma once
#include <string>
#include <string_view>

#include "data/index.hpp"

namespace prism {

Result<std::string> format_data_header(const DataHeader& header);
Result<DataHeader> parse_data_header(std::string_view text, const std::string& path);

}  // namespace prism
