#include "backend/coordinator/quiet_watch.hpp"

#include <algorithm>

#include "core/deadline.hpp"

namespace prism {
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kFirstPause = 50 * kMs, kLongestPause = 1000 * kMs;
// How long the silence must last: all in our own waits; some asleep in futures and locks; some threads with a time
// limit of their own (a progress bar's monitor, or a worker that is about to wake).
constexpr std::int64_t kHooked = 40 * kMs, kUnhooked = 2000 * kMs, kTimed = 30'000 * kMs;

}  // namespace

QuietWatch::QuietWatch(boost::asio::io_context& io, int ranks, Actions actions)
    : timer_(io), actions_(std::move(actions)), last_(static_cast<std::size_t>(ranks)) {}

void QuietWatch::look(bool quiet, bool unhooked) {
  if (state_ == State::kStopped) return;
  unhooked_ = unhooked;
  if (!quiet) {
    if (state_ != State::kIdle) timer_.cancel();
    state_ = State::kIdle;
    quiet_since_ns_ = -1;
    return;
  }
  if (state_ == State::kIdle) {
    pause_ns_ = kFirstPause;
    ask();
  }
}

void QuietWatch::disturb() {
  quiet_since_ns_ = -1;
  if (state_ == State::kAsked || state_ == State::kPause) {
    state_ = State::kIdle;
    timer_.cancel();
  }
}

void QuietWatch::stop() {
  state_ = State::kStopped;
  timer_.cancel();
}

void QuietWatch::ask() {
  state_ = State::kAsked;
  ++probe_;
  answers_ = 0;
  least_ = wire::Quietness::kAsleep;
  computed_ = false;
  asked_before_ns_ = asked_ns_;
  asked_ns_ = now_ns();
  expected_ = actions_.ask(probe_);
}

bool QuietWatch::owes_answer(int rank) const {
  return state_ == State::kAsked && last_[static_cast<std::size_t>(rank)].probe != probe_;
}

void QuietWatch::reply(int rank, const wire::ProbeReply& reply) {
  Answer& last = last_[static_cast<std::size_t>(rank)];
  if (state_ != State::kAsked || reply.probe != probe_ || last.probe == probe_) return;
  // Ten percent of the time between two questions counts as computing; a few wake-ups do not.
  const std::int64_t span = asked_ns_ - asked_before_ns_;
  if (last.cpu_ns >= 0 && reply.cpu_ns - last.cpu_ns > span / 10 + 2 * kMs) computed_ = true;
  last = {probe_, reply.cpu_ns};
  least_ = std::min(least_, reply.quietness);
  if (++answers_ == expected_) round_complete();
}

void QuietWatch::round_complete() {
  const std::int64_t now = now_ns();
  if (least_ == wire::Quietness::kAwake || computed_) {
    quiet_since_ns_ = -1;
  } else {
    if (quiet_since_ns_ < 0) quiet_since_ns_ = asked_ns_;
    const std::int64_t needed = least_ == wire::Quietness::kTimed ? kTimed : unhooked_ ? kUnhooked : kHooked;
    if (now - quiet_since_ns_ >= needed && quiet_since_ns_ != asked_ns_) return actions_.deadlocked();
  }
  state_ = State::kPause;
  timer_.expires_after(std::chrono::nanoseconds(pause_ns_));
  timer_.async_wait([this](boost::system::error_code error) {
    if (!error && state_ == State::kPause) ask();
  });
  if (quiet_since_ns_ < 0) pause_ns_ = std::min(pause_ns_ * 2, kLongestPause);
}

}  // namespace prism
