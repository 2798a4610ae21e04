// Bytes in use and their exact peak since the last step, counted from any thread without a lock.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

namespace prism::recorder {

class MemoryMeter {
 public:
  struct Step {
    std::int64_t bytes, peak;
  };
  void add(std::int64_t delta) noexcept {
    std::int64_t now = current_.fetch_add(delta, std::memory_order_relaxed) + delta;
    std::int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  // What happened since the last step, if anything is to be seen of it. A concurrent add() may be counted to this step
  // or the next, but no peak is lost: it raises peak_ after current_.
  std::optional<Step> step() noexcept {
    std::int64_t now = current_.load(std::memory_order_relaxed);
    std::int64_t last = last_.load(std::memory_order_relaxed);
    if (now == last && peak_.load(std::memory_order_relaxed) == last) return std::nullopt;
    std::int64_t peak = peak_.exchange(now, std::memory_order_relaxed);
    last_.store(now, std::memory_order_relaxed);
    now = std::max<std::int64_t>(now, 0);  // below zero: what was taken before the recording was given back
    return Step{now, std::max(peak, now)};
  }

 private:
  std::atomic<std::int64_t> current_{0}, peak_{0}, last_{0};
};

}  // namespace prism::recorder
