// This rank's side of its emulated clock (backend/protocol/rank_clock.hpp). Called under the session's lock.
#pragma once
#include <algorithm>
#include <cstdint>

#include "backend/protocol/rank_clock.hpp"
#include "core/deadline.hpp"

namespace prism {

class EmulatedClock {
 public:
  explicit EmulatedClock(RankClock& shared) : shared_(shared) {}

  void begin(std::int64_t at_ns) {
    shared_.write([&](auto& clock) { clock.phase = ClockPhase::kRuns, clock.clock_ns = at_ns - prism::now_ns(); });
  }
  std::int64_t now_ns() const { return value(shared_.own()); }

  // From stand() to go_on() this rank's work is ours. May be nested.
  void stand() {
    if (standing_++ == 0) stop(ClockPhase::kStands);
  }
  void go_on() {
    if (--standing_ == 0 && shared_.own().phase == ClockPhase::kStands) run();
  }
  void block() {
    if (shared_.own().phase == ClockPhase::kWakes)
      shared_.write([](auto& clock) { clock.phase = ClockPhase::kBlocked; });
    else
      stop(ClockPhase::kBlocked);
  }
  void wake() {
    const auto phase = shared_.own().phase;
    if (phase == ClockPhase::kBlocked || phase == ClockPhase::kWakes) run();
  }
  // An operation is about to be handed over; returns its time.
  std::int64_t issues() {
    std::int64_t at = 0;
    shared_.write([&](auto& clock) { at = value(clock), ++clock.issued; });
    return at;
  }
  // A completion has come that was due at `at_ns`.
  void saw(std::int64_t at_ns) {
    shared_.write([&](auto& clock) {
      ++clock.seen;
      if (clock.phase != ClockPhase::kBlocked && clock.phase != ClockPhase::kWakes) return;
      clock.phase = ClockPhase::kWakes;
      clock.clock_ns = std::max(clock.clock_ns, at_ns);
    });
  }

 private:
  static std::int64_t value(const RankClockReading& clock) {
    return clock.phase == ClockPhase::kRuns ? clock.clock_ns + prism::now_ns() : clock.clock_ns;
  }
  void stop(ClockPhase phase) {
    if (shared_.own().phase != ClockPhase::kRuns) return;
    shared_.write([&](auto& clock) { clock.clock_ns = value(clock), clock.phase = phase; });
  }
  void run() {
    shared_.write([&](auto& clock) { clock.clock_ns -= prism::now_ns(), clock.phase = ClockPhase::kRuns; });
  }
  RankClock& shared_;
  int standing_ = 0;
};

}  // namespace prism
