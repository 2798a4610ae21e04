// A point on CLOCK_MONOTONIC until which something may wait. No wait in PrismLLM is without one.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>

namespace prism {

using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC on Linux

// Nanoseconds of CLOCK_MONOTONIC; the time base of everything that is recorded.
inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

class Deadline {
 public:
  static Deadline after(std::chrono::nanoseconds span) { return Deadline(saturating_add(Clock::now(), span)); }
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at() const { return at_; }
  bool passed() const { return Clock::now() >= at_; }
  std::chrono::nanoseconds left() const {
    return std::max(std::chrono::nanoseconds(0), std::chrono::nanoseconds(at_ - Clock::now()));
  }

 private:
  static Clock::time_point saturating_add(Clock::time_point start, std::chrono::nanoseconds span) {
    return span > Clock::time_point::max() - start ? Clock::time_point::max() : start + span;
  }
  Clock::time_point at_;
};

}  // namespace prism
