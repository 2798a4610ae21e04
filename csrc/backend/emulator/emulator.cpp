#include "backend/emulator/emulator.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/deadline.hpp"

namespace prism {
namespace {

constexpr std::int64_t kForever = INT64_MAX;
// While some rank runs its clock does, without a word from it.
constexpr std::chrono::microseconds kLookAgain{50};
// Sleeping ends late by about so much, which is spun instead.
constexpr std::int64_t kSpin = 60'000;  // ns
// All wait, nothing is due, and it stays so: a rank may just be waking up by itself (a time limit).
constexpr std::chrono::milliseconds kLookForSilence{5};
constexpr int kTurnsOfSilence = 20;

}  // namespace

Emulator::Emulator(std::shared_ptr<Emulation> emulation, std::function<const RankClock&(int rank)> clock_of,
                   Handlers handlers)
    : emulation_(std::move(emulation)), handlers_(std::move(handlers)) {
  for (const int rank : emulation_->sandbox()) ranks_[rank].clock = &clock_of(rank);
}

Emulator::~Emulator() { stop(); }

void Emulator::start() {
  start_ns_ = now_ns();
  thread_ = std::thread([this] { loop(); });
}

void Emulator::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  woken_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Emulator::issued(int rank, std::uint32_t comm, std::int64_t at_ns) {
  const std::lock_guard lock(mutex_);
  inbox_.push_back({rank, false, comm, at_ns});
  woken_.notify_all();
}

void Emulator::finished(int rank) {
  const std::lock_guard lock(mutex_);
  inbox_.push_back({rank, true, 0, 0});
  woken_.notify_all();
}

// Nothing that it issues later, and has not been handled, is before bound_ns.
void Emulator::look(Rank& rank) const {
  if (rank.over) {
    rank.bound_ns = kForever;
    return;
  }
  const std::int64_t now = now_ns();  // before the reading
  const auto clock = rank.clock->read();
  if (rank.bound_ns == kForever) rank.bound_ns = emulation_->now_ns();
  if (!clock || clock->issued != rank.handled) return;
  switch (clock->phase) {
    case ClockPhase::kAbsent:
      return;
    case ClockPhase::kRuns:
      rank.bound_ns = std::max(rank.bound_ns, clock->clock_ns + now);
      return;
    case ClockPhase::kStands:
    case ClockPhase::kWakes:
      rank.bound_ns = std::max(rank.bound_ns, clock->clock_ns);
      return;
    case ClockPhase::kBlocked:
      // It wakes by what is on its way to it, at the earliest when it fell asleep; else by what is yet to be decided.
      rank.bound_ns = clock->seen == rank.released ? kForever : std::max(rank.bound_ns, clock->clock_ns);
      return;
  }
}

Result<void> Emulator::turn(std::vector<Message> inbox) {
  for (const auto& message : inbox) {
    Rank& rank = ranks_.at(message.rank);
    if (message.finished) {
      rank.over = true;
      continue;
    }
    ++rank.handled;
    if (message.comm == kNoCommunication) continue;
    PRISM_RETURN_IF_ERROR(emulation_->arrived(message.rank, message.comm, message.at_ns));
  }
  while (true) {
    std::int64_t horizon = kForever;
    bool any = false;
    for (auto& [number, rank] : ranks_) {
      look(rank);
      horizon = std::min(horizon, rank.bound_ns);
      any = any || !rank.over;
    }
    idle_ = horizon == kForever;
    settled_ = false;
    if (!any) return {};
    std::vector<Emulation::Released> released;
    PRISM_RETURN_IF_ERROR(emulation_->advance(horizon, released));
    for (const auto& one : released) {
      ++ranks_.at(one.rank).released;
      due_.push({one.at_ns, one});
    }
    if (released.empty()) break;
  }
  settled_ = idle_ && due_.empty();
  return {};
}

void Emulator::release_due() {
  std::vector<Emulation::Released> now;
  const std::int64_t at = now_ns();
  while (!due_.empty() && start_ns_ + due_.top().at_ns <= at) {
    lag_ns_.push_back(at - start_ns_ - due_.top().at_ns);
    now.push_back(due_.top().what);
    due_.pop();
  }
  if (!now.empty()) handlers_.release(std::move(now));
}

// Until something comes, or is due, or the clocks of ranks that run have gone on.
void Emulator::sleep() {
  std::unique_lock lock(mutex_);
  if (stop_ || !inbox_.empty()) return;
  auto until = Clock::now() + kLookForSilence;
  if (!due_.empty())
    until = std::min(until, Clock::time_point(std::chrono::nanoseconds(start_ns_ + due_.top().at_ns - kSpin)));
  if (!idle_) until = std::min(until, Clock::now() + kLookAgain);
  woken_.wait_until(lock, until);
  if (stop_ || !inbox_.empty() || due_.empty()) return;
  lock.unlock();
  while (idle_ && now_ns() < start_ns_ + due_.top().at_ns && start_ns_ + due_.top().at_ns - now_ns() <= kSpin) {
  }
}

void Emulator::loop() {
  prctl(PR_SET_TIMERSLACK, 1UL);  // of this thread
  int silent = 0;
  while (true) {
    std::vector<Message> inbox;
    {
      const std::lock_guard lock(mutex_);
      if (stop_) break;
      inbox.swap(inbox_);
    }
    if (!inbox.empty()) silent = 0;
    if (auto turned = turn(std::move(inbox)); !turned) {
      handlers_.fail(turned.error());
      break;
    }
    silent = settled_ ? silent + 1 : 0;
    if (silent > kTurnsOfSilence) {
      handlers_.fail(emulation_->explain_deadlock());
      break;
    }
    release_due();
    sleep();
  }
  end_ns_ = now_ns();
}

std::string Emulator::statistics_json() const {
  auto lag = lag_ns_;
  std::sort(lag.begin(), lag.end());
  const auto at = [&](double q) {
    return lag.empty()
               ? 0.0
               : static_cast<double>(lag[static_cast<std::size_t>(q * static_cast<double>(lag.size() - 1))]) * 1e-9;
  };
  nlohmann::ordered_json json;
  json["releases"] = lag.size();
  json["lag_s"] = {{"p50", at(0.5)}, {"p99", at(0.99)}, {"max", at(1.0)}};
  json["late_issue_s"] = static_cast<double>(emulation_->late_ns()) * 1e-9;
  json["emulated_s"] = static_cast<double>(emulation_->now_ns()) * 1e-9;
  json["wall_s"] = static_cast<double>(end_ns_ - start_ns_) * 1e-9;
  json["differences"] = emulation_->differences();
  const auto groups = emulation_->groups();
  json["groups"] = {{"total", groups.total}, {"instantiated", groups.with_sandbox}, {"mixed", groups.mixed}};
  return json.dump();
}

}  // namespace prism
