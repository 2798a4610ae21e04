#include "backend/coordinator/timeouts.hpp"

#include <limits>

#include "core/deadline.hpp"

namespace prism {

std::int64_t Timeouts::elapsed() const { return passed_ns_ + (passes_ ? now_ns() - since_ns_ : 0); }

std::uint64_t Timeouts::add(std::int64_t span_ns, std::function<void()> then) {
  const std::int64_t now = elapsed();
  const std::int64_t due = span_ns > std::numeric_limits<std::int64_t>::max() - now
                               ? std::numeric_limits<std::int64_t>::max()
                               : now + span_ns;
  entries_.emplace(Key{due, ++handles_}, std::move(then));
  due_.emplace(handles_, due);
  arm();
  return handles_;
}

void Timeouts::cancel(std::uint64_t handle) {
  const auto entry = due_.find(handle);
  if (entry == due_.end()) return;
  entries_.erase({entry->second, handle});
  due_.erase(entry);
}

void Timeouts::let_time_pass(bool passes) {
  if (passes == passes_) return;
  passed_ns_ = elapsed();
  since_ns_ = now_ns();
  passes_ = passes;
  arm();
}

void Timeouts::stop() {
  stopped_ = true;
  entries_.clear();
  due_.clear();
  timer_.cancel();
}

// Only an earlier limit sets the timer anew; it may fire early, and looks again then.
void Timeouts::arm() {
  if (!passes_ || stopped_ || entries_.empty()) return;
  const std::int64_t left = std::max<std::int64_t>(entries_.begin()->first.first - elapsed(), 0);
  constexpr std::int64_t kLongest = 3'600'000'000'000;
  const std::int64_t at = now_ns() + std::min(left, kLongest);
  if (armed_ns_ >= 0 && armed_ns_ <= at) return;
  armed_ns_ = at;
  timer_.expires_at(Clock::time_point(std::chrono::nanoseconds(at)));
  timer_.async_wait([this](boost::system::error_code error) {
    if (!error) fire();
  });
}

void Timeouts::fire() {
  armed_ns_ = -1;
  while (passes_ && !entries_.empty() && entries_.begin()->first.first <= elapsed()) {
    const auto then = std::move(entries_.begin()->second);
    due_.erase(entries_.begin()->first.second);
    entries_.erase(entries_.begin());
    then();
  }
  arm();
}

}  // namespace prism
