// The emulated clock of one real rank, as others read it: at the beginning of the rank's window of the shared memory,
// written by the rank alone. Its emulated time goes on with host time while the rank runs, stands while it issues (what
// that costs here is not what it costs there), and is that of the release when it wakes, however late it does.
//
// Reading is exact: whoever takes the time first and then reads that the rank runs knows that the rank has issued
// nothing before that time but what is counted in `issued`.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>

namespace prism {

enum class ClockPhase : std::uint32_t {
  kAbsent,   // has not begun
  kRuns,     // clock_ns is emulated time minus CLOCK_MONOTONIC
  kStands,   // issues something, at clock_ns
  kBlocked,  // all its threads wait, since clock_ns
  kWakes,    // a completion has come to it then: it is about to run again at clock_ns, or to fall asleep again
};

struct RankClockReading {
  ClockPhase phase = ClockPhase::kAbsent;
  std::int64_t clock_ns = 0;
  std::uint64_t issued = 0;  // operations
  std::uint64_t seen = 0;    // completions with a time
};

// Shared between processes; zero is its initial state.
class RankClock {
 public:
  // By the one writer. While `change` runs, nobody gets a reading.
  template <typename Change>
  void write(Change&& change) {
    const auto version = version_.load(std::memory_order_relaxed);
    // A full barrier: a time that `change` takes is later than any reading before.
    version_.exchange(version + 1, std::memory_order_seq_cst);
    RankClockReading values = fields();
    change(values);
    phase_.store(static_cast<std::uint32_t>(values.phase), std::memory_order_relaxed);
    clock_ns_.store(values.clock_ns, std::memory_order_relaxed);
    issued_.store(values.issued, std::memory_order_relaxed);
    seen_.store(values.seen, std::memory_order_relaxed);
    version_.store(version + 2, std::memory_order_release);
  }
  RankClockReading own() const { return fields(); }  // for the writer
  // nullopt: it changes just now.
  std::optional<RankClockReading> read() const {
    const auto before = version_.load(std::memory_order_acquire);
    const RankClockReading values = fields();
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 != 0 || version_.load(std::memory_order_relaxed) != before) return std::nullopt;
    return values;
  }

 private:
  RankClockReading fields() const {
    return {static_cast<ClockPhase>(phase_.load(std::memory_order_relaxed)), clock_ns_.load(std::memory_order_relaxed),
            issued_.load(std::memory_order_relaxed), seen_.load(std::memory_order_relaxed)};
  }
  std::atomic<std::uint64_t> version_;
  std::atomic<std::int64_t> clock_ns_;
  std::atomic<std::uint64_t> issued_, seen_;
  std::atomic<std::uint32_t> phase_;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace prism
