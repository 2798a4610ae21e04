// Time inside the simulator: integer picoseconds, so that sums of a million steps are exact. 2^63 ps are 106 days.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

namespace prism::simulate {

using Picoseconds = std::int64_t;
inline constexpr Picoseconds kNever = std::numeric_limits<Picoseconds>::max();
inline constexpr double kPicosecondsPerSecond = 1e12;

// To the nearest picosecond; kNever where the rate is zero or the time does not fit.
inline Picoseconds transfer_time(double bytes, double bytes_per_second) {
  const double time = bytes / bytes_per_second * kPicosecondsPerSecond;
  return time < 9e18 ? std::llround(time) : kNever;
}

inline Picoseconds later(Picoseconds at, Picoseconds by) { return by > kNever - at ? kNever : at + by; }

}  // namespace prism::simulate
