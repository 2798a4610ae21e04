#include "backend/coordinator/process_state.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace prism {

bool is_stopped(int pid) {
  if (pid <= 0) return false;
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  // PID (NAME) STATE ...; the name may hold anything, so the last parenthesis counts.
  const auto close = text.rfind(')');
  return close != std::string::npos && close + 2 < text.size() && text[close + 2] == 'T';
}

std::uint64_t available_memory_bytes() {
  std::uint64_t available =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::ifstream meminfo("/proc/meminfo");
  for (std::string word; meminfo >> word;)
    if (std::uint64_t kib = 0; word == "MemAvailable:" && meminfo >> kib) {
      available = kib << 10;
      break;
    }
  std::ifstream limit_file("/sys/fs/cgroup/memory.max"), used_file("/sys/fs/cgroup/memory.current");
  if (std::uint64_t limit = 0, used = 0; limit_file >> limit && used_file >> used)
    available = std::min(available, limit > used ? limit - used : 0);
  return available;
}

std::string ranges_text(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (end - i > 1) text += fmt::format("-{}", ranks[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace prism
