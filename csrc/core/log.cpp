#include "core/log.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace prism {
namespace {

LogLevel level_from_environment() {
  const char* text = std::getenv("PRISM_LOG");
  const std::string_view value = text ? text : "warn";
  if (value == "error") return LogLevel::kError;
  if (value == "info") return LogLevel::kInfo;
  if (value == "debug") return LogLevel::kDebug;
  return LogLevel::kWarn;
}

}  // namespace

bool log_enabled(LogLevel level) {
  static const LogLevel limit = level_from_environment();
  return level <= limit;
}

void log_line(LogLevel level, std::string_view text) {
  static constexpr std::string_view kNames[] = {"error", "warning", "info", "debug"};
  const auto line = fmt::format("prism {} [{}]: {}\n", kNames[static_cast<int>(level)], getpid(), text);
  // A diagnostic that cannot be written has nowhere to be reported.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace prism
