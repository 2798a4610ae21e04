// Time inside the simulator: integer picoseconds, so that sums of a million steps are exact.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace prism::simulate {

using Picoseconds = std::int64_t;
inline constexpr Picoseconds kNever = std::numeric_limits<Picoseconds>::max();
inline constexpr double kPicosecondsPerSecond = 1e12;
// The last moment that the clock shows, the same as prism-ns3's; what would be later never is.
inline constexpr Picoseconds kLatest = 9'000'000'000'000'000'000;

// For errors: "the 104 days that the clock of a network shows".
inline std::string clock_range() {
  constexpr Picoseconds kDay = 86'400'000'000'000'000;
  return "the " + std::to_string(kLatest / kDay) + " days that the clock of a network shows";
}

// To the nearest picosecond; kNever where the rate is zero or the time does not fit.
inline Picoseconds transfer_time(double bytes, double bytes_per_second) {
  const double time = bytes / bytes_per_second * kPicosecondsPerSecond;
  return time <= static_cast<double>(kLatest) ? std::llround(time) : kNever;
}

inline Picoseconds later(Picoseconds at, Picoseconds by) { return by > kLatest - at ? kNever : at + by; }

}  // namespace prism::simulate
