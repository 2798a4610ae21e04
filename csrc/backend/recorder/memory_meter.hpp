// Bytes in use and their exact peaks, up to a limit, counted from any thread without a lock.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "backend/recorder/memory_in_use.hpp"

namespace prism::recorder {

class MemoryMeter {
 public:
  explicit MemoryMeter(std::int64_t limit = kNoMemoryLimit) : limit_(limit) {}

  struct Step {
    std::int64_t bytes, peak;
  };
  // Of tensors, below zero what is given back. False, and nothing is counted, where it does not fit.
  bool add(std::int64_t delta) noexcept {
    std::int64_t now = tensors_.load(std::memory_order_relaxed);
    do {
      if (delta > 0 && delta > room(now)) return false;
    } while (!tensors_.compare_exchange_weak(now, now + delta, std::memory_order_relaxed));
    if (delta <= 0) return true;
    raise(peak_, now + delta);
    raise(tensors_peak_, now + delta);
    raise(peak_of_both_, now + delta + communicators_.load(std::memory_order_relaxed));
    return true;
  }
  // The same of communicators.
  bool hold(std::int64_t delta) noexcept {
    std::int64_t tensors = tensors_.load(std::memory_order_relaxed);
    if (delta > 0 && delta > room(tensors)) return false;
    const std::int64_t communicators = communicators_.fetch_add(delta, std::memory_order_relaxed) + delta;
    raise(communicators_peak_, communicators);
    raise(peak_of_both_, tensors + communicators);
    return true;
  }
  void set_limit(std::int64_t limit) noexcept { limit_.store(limit, std::memory_order_relaxed); }

  MemoryInUse in_use() const noexcept {
    const auto of = [](const std::atomic<std::int64_t>& value) { return value.load(std::memory_order_relaxed); };
    return {of(tensors_),      of(tensors_peak_), of(communicators_), of(communicators_peak_),
            of(peak_of_both_), of(limit_)};
  }

  // What happened to tensors since the last step, if anything is to be seen of it. A concurrent add() may be counted to
  // this step or the next, but no peak is lost: it raises peak_ after tensors_.
  std::optional<Step> step() noexcept {
    std::int64_t now = tensors_.load(std::memory_order_relaxed);
    std::int64_t last = last_.load(std::memory_order_relaxed);
    if (now == last && peak_.load(std::memory_order_relaxed) == last) return std::nullopt;
    std::int64_t peak = peak_.exchange(now, std::memory_order_relaxed);
    last_.store(now, std::memory_order_relaxed);
    now = std::max<std::int64_t>(now, 0);  // below zero: what was taken before the recording was given back
    return Step{now, std::max(peak, now)};
  }

 private:
  static void raise(std::atomic<std::int64_t>& peak, std::int64_t now) noexcept {
    std::int64_t known = peak.load(std::memory_order_relaxed);
    while (now > known && !peak.compare_exchange_weak(known, now, std::memory_order_relaxed)) {
    }
  }
  std::int64_t room(std::int64_t tensors) const noexcept {
    const std::int64_t limit = limit_.load(std::memory_order_relaxed);
    return limit == kNoMemoryLimit ? limit : limit - tensors - communicators_.load(std::memory_order_relaxed);
  }

  std::atomic<std::int64_t> limit_;
  std::atomic<std::int64_t> tensors_{0}, tensors_peak_{0}, communicators_{0}, communicators_peak_{0}, peak_of_both_{0};
  std::atomic<std::int64_t> peak_{0}, last_{0};  // peak_: since the last step
};

}  // namespace prism::recorder
