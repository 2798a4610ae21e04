// What the system knows of processes and memory, and ranks as text.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace prism {

// Stopped by a signal (state T of /proc/PID/stat), not by a debugger (t). False where it cannot be known.
bool is_stopped(int pid);
// MemAvailable of /proc/meminfo, or the control group's limit where that is lower.
std::uint64_t available_memory_bytes();
// "0-3, 7"
std::string ranges_text(std::vector<int> ranks);

}  // namespace prism
