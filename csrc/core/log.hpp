// Diagnostics to standard error, off below the level of PRISM_LOG (error, warn, info, debug; default warn).
#pragma once
#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace prism {

enum class LogLevel { kError, kWarn, kInfo, kDebug };

bool log_enabled(LogLevel level);
// One write(2) per line, so that lines of many processes do not mix.
void log_line(LogLevel level, std::string_view text);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace prism
