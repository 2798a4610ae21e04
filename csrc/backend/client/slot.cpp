// The slot: when this rank gives it back, and when it wants it again.
#include "backend/client/session.hpp"
#include "backend/client/thread_state.hpp"

namespace prism {
namespace {

constexpr std::int64_t kParkedForLong = 1'000'000'000;  // ns
constexpr std::int64_t kIdlePart = 10;                  // using less than one part in ten of the processor is idling

}  // namespace

RankClient::Impl::Activity& RankClient::Impl::activity_here(Lock&) {
  const pid_t here = this_thread();                               // not cached: a forked child's differs
  static thread_local Activity of_pool_thread = Activity::kRuns;  // callbacks are counted, not listed
  return pool_ids_.count(here) != 0 ? of_pool_thread : threads_[here];
}

void RankClient::Impl::granted(Lock& lock, std::uint64_t number) {
  grant_ = number;
  const std::int64_t off_slot = now_ns() - off_slot_since_ns_;
  off_slot_ns_ += off_slot;
  if (slot_ == Slot::kLent) lent_ns_ += off_slot;
  slot_ = Slot::kHeld;
  device_ = Device::kHere;
  requested_ = false;
  watched_ns_ = 0;
  for (auto& completion : std::exchange(early_, {})) deliver(lock, std::move(completion));
  slot_granted_.notify_all();
  for (Waiter* waiter : waiters_)
    if (waiter->deadline.passed()) waiter->wake.notify_all();
  give_back_if_all_wait(lock);
}

void RankClient::Impl::give_back(Lock& lock, wire::Release release, Slot to) {
  release.grant = grant_;
  release.uses_device = uses_device_;
  if (slot_ == Slot::kHeld) off_slot_since_ns_ = now_ns();
  slot_ = to;
  requested_ = false;
  watched_ns_ = 0;
  watch_interval_ns_ = 0;
  send(lock, release);
}

// Whether a thread of the program (`but_this`: other than the caller) computes, as far as one can see from outside.
bool RankClient::Impl::others_run(Lock& lock, bool but_this) {
  const bool callback_here = but_this && in_callback();
  const pid_t except = but_this && !callback_here ? this_thread() : 0;
  if (callbacks_running_ > (callback_here ? 1 : 0) || !callbacks_.empty() || somebody_wakes(lock)) return true;
  for (auto thread = threads_.begin(); thread != threads_.end();) {
    if (thread->first == except || thread->second != Activity::kRuns) {
      ++thread;
      continue;
    }
    const ThreadState state = thread_state(thread->first);
    if (state != ThreadState::kGone && state != ThreadState::kForever) return true;
    thread = state == ThreadState::kGone ? threads_.erase(thread) : std::next(thread);
  }
  return false;
}

void RankClient::Impl::give_back_if_all_wait(Lock& lock) {
  if (slot_ != Slot::kHeld || waiters_.empty() || error_) return;
  if (others_run(lock, false)) return;
  wire::Release release;
  release.kind = wire::ReleaseKind::kBlock;
  Deadline earliest(Clock::time_point::max());
  for (const Waiter* waiter : waiters_) {
    if (waiter->deadline.passed()) return;  // is waking up
    if (waiter->deadline.at() < earliest.at()) earliest = waiter->deadline;
    for (const WorkId work : waiter->works)
      if (const auto found = works_.find(work); found != works_.end() && !found->second.delivered)
        release.works.push_back(work);
  }
  if (earliest.at() != Clock::time_point::max())
    release.patience_ns = std::max<std::int64_t>(earliest.left().count(), 1);
  std::sort(release.works.begin(), release.works.end());
  release.works.erase(std::unique(release.works.begin(), release.works.end()), release.works.end());
  // Who waits for a key of the store waits for something that takes host time.
  const bool for_store = std::any_of(release.works.begin(), release.works.end(), [&](WorkId work) {
    const auto found = works_.find(work);
    return found != works_.end() && found->second.from_store;
  });
  if (clock_ && !for_store) clock_->block();
  give_back(lock, std::move(release), Slot::kBlocked);
}

void RankClient::Impl::request_slot(Lock& lock) {
  if (slot_ == Slot::kHeld || requested_ || error_) return;
  requested_ = true;
  send(lock, wire::RequestSlot{grant_});
}

Result<void> RankClient::Impl::need_slot(Lock& lock) {
  ++seekers_;
  while (slot_ != Slot::kHeld && !error_) {
    request_slot(lock);
    slot_granted_.wait(lock);
  }
  --seekers_;
  if (error_) return *error_;
  return {};
}

// A thread that the slot is for has been woken and is on its way: the slot is in use, though nobody computes yet.
bool RankClient::Impl::somebody_wakes(Lock&) const {
  return seekers_ > 0 || replies_awaited_ > 0 || (callbacks_running_ == 0 && !callbacks_.empty()) ||
         std::any_of(waiters_.begin(), waiters_.end(), [](const Waiter* waiter) { return waiter->missing == 0; });
}

void RankClient::Impl::lend_slot() {
  Lock lock(mutex_);
  if (inert_ || error_ || slot_ != Slot::kHeld) return;
  activity_here(lock) = Activity::kRuns;
  if (others_run(lock, true)) return;
  if (clock_) clock_->block();
  wire::Release release;
  release.kind = wire::ReleaseKind::kLend;
  give_back(lock, std::move(release), Slot::kLent);
}

void RankClient::Impl::without_slot(const std::function<void()>& blocking) {
  if (inert_) return blocking();
  sleep_outside();
  blocking();
  wake_outside();
}

void RankClient::Impl::sleep_outside() {
  lend_slot();
  Lock lock(mutex_);
  activity_here(lock) = Activity::kOutside;
  if (in_callback()) callback_falls_asleep(lock);
}

void RankClient::Impl::wake_outside() {
  Lock lock(mutex_);
  if (in_callback()) callback_wakes(lock);
  activity_here(lock) = Activity::kRuns;
  if (!error_) static_cast<void>(need_slot(lock));
  if (clock_) clock_->wake();
}

// A callback has returned, and the threads that sleep in futures sleep on: so does the emulated clock.
void RankClient::Impl::fall_asleep_outside(Lock& lock) {
  if (!clock_ || slot_ != Slot::kHeld || error_ || others_run(lock, false)) return;
  bool any = false;
  for (const auto& [thread, activity] : threads_) {
    if (activity != Activity::kOutside) continue;
    if (thread_state(thread) != ThreadState::kForever) return;
    any = true;
  }
  if (!any) return;
  clock_->block();
  wire::Release release;
  release.kind = wire::ReleaseKind::kLend;
  give_back(lock, std::move(release), Slot::kLent);
}

void RankClient::Impl::yield(Lock& lock, bool polls_store) {
  if (error_ || slot_ != Slot::kHeld || others_run(lock, true)) return;
  wire::Release release;
  release.kind = wire::ReleaseKind::kYield;
  release.polls_store = polls_store;
  give_back(lock, std::move(release), Slot::kYielded);
  requested_ = true;  // comes back by itself
  static_cast<void>(need_slot(lock));
}

std::int64_t RankClient::Impl::emulated_now_ns() {
  if (!clock_) return now_ns() - off_slot_ns();
  Lock lock(mutex_);
  return clock_->now_ns();
}

std::int64_t RankClient::Impl::off_slot_ns() {
  Lock lock(mutex_);
  return off_slot_ns_ + (slot_ == Slot::kHeld || error_ ? 0 : now_ns() - off_slot_since_ns_);
}

std::int64_t RankClient::Impl::waiting_ns() {
  Lock lock(mutex_);
  const bool waits = slot_ != Slot::kHeld && slot_ != Slot::kLent && !error_;
  return off_slot_ns_ - lent_ns_ + (waits ? now_ns() - off_slot_since_ns_ : 0);
}

// On a machine with more to do than processors a thread may wait for one a long time: that is not idling.
bool RankClient::Impl::any_thread_runnable(Lock&) const {
  const auto runs = [](pid_t thread) { return thread_state(thread) == ThreadState::kRunning; };
  return std::any_of(threads_.begin(), threads_.end(), [&](const auto& thread) { return runs(thread.first); }) ||
         std::any_of(pool_ids_.begin(), pool_ids_.end(), runs);
}

std::int64_t RankClient::Impl::cpu_ns(Lock&) {
  if (options_.alone_in_process) return cpu_time_of_this_process();
  std::int64_t total = 0;
  for (const auto& thread : threads_) total += cpu_time_of(thread.first);
  for (const pid_t thread : pool_ids_) total += cpu_time_of(thread);
  return total;
}

// How long the reader may sleep before watch() is due; a rank that waits in our calls needs no watching.
int RankClient::Impl::poll_timeout_ms(Lock&) {
  std::int64_t interval = -1;
  if (slot_ == Slot::kHeld) {
    constexpr int kUnhurried = 10;
    interval = memory_->control().ranks_waiting.load(std::memory_order_relaxed) > 0 ? lend_after_ns_
                                                                                    : kUnhurried * lend_after_ns_;
  } else if (slot_ == Slot::kLent) {
    // Many sleepers must not keep the machine busy by looking whether they sleep.
    const std::int64_t longest = lend_after_ns_ * std::clamp(options_.world_size / 16, 4, 32);
    interval = watch_interval_ns_ = std::clamp(watch_interval_ns_ * 2, lend_after_ns_, longest);
  }
  if (!callbacks_.empty()) interval = lend_after_ns_;
  if (!parked_.empty() && (interval < 0 || interval > kParkedForLong)) interval = kParkedForLong;
  return interval < 0 ? -1 : static_cast<int>((interval + 999'999) / 1'000'000);
}

void RankClient::Impl::watch(Lock& lock) {
  // A callback that sleeps in something of its own, while others are queued behind it.
  if (!callbacks_.empty() && now_ns() - callback_started_ns_ > kParkedForLong) {
    extra_callback_ = true;
    if (pool_idle_ > 0)
      callback_queued_.notify_one();
    else
      grow_pool(lock);
  }
  if (!parked_.empty() && now_ns() - parked_since_ns_ > kParkedForLong) unpark(lock);

  if (slot_ != Slot::kHeld && slot_ != Slot::kLent) return;
  if (device_ == Device::kLeaving) return;  // the driver computes here, and not the program
  if (device_ == Device::kAway && somebody_is_stuck(lock)) request_slot(lock);
  const std::int64_t now = now_ns(), cpu = cpu_ns(lock);
  const std::int64_t span = now - watched_ns_;
  if (watched_ns_ != 0 && span < lend_after_ns_) return;
  const bool idle = watched_ns_ != 0 && (cpu - watched_cpu_ns_) * kIdlePart < span && !any_thread_runnable(lock);
  const bool first = watched_ns_ == 0;
  const bool deadline_passed =
      std::any_of(waiters_.begin(), waiters_.end(), [](const Waiter* waiter) { return waiter->deadline.passed(); });
  watched_ns_ = now;
  watched_cpu_ns_ = cpu;
  if (first) return;
  if (slot_ == Slot::kHeld && idle && !somebody_wakes(lock)) {
    if (clock_) clock_->wake();  // it sleeps in what is not ours: a device, a file
    wire::Release release;
    release.kind = wire::ReleaseKind::kLend;
    give_back(lock, std::move(release), Slot::kLent);
    watched_ns_ = now;
    watched_cpu_ns_ = cpu;
  } else if (slot_ == Slot::kLent && (!idle || deadline_passed)) {
    request_slot(lock);
  }
}

void RankClient::Impl::swap(Lock&, bool done) {
  if (slot_ == Slot::kHeld) return;  // crossed with a grant
  device_ = done ? Device::kAway : Device::kLeaving;
  watched_ns_ = 0;  // what the driver used up is not the program's
  sleeps_.clear();
  if (done && slot_ == Slot::kLent)
    for (const pid_t thread : threads_of_this_process()) sleeps_[thread] = sleeps_of(thread);
}

// Whether a thread that slept in something else (a timed sleep, a file) has woken and sleeps again, now for good: it
// has called the driver, which holds its callers until the device is back.
bool RankClient::Impl::somebody_is_stuck(Lock&) const {
  for (const pid_t thread : threads_of_this_process()) {
    if (thread == reader_id_ || pool_ids_.count(thread) != 0) continue;
    if (const auto known = threads_.find(thread); known != threads_.end() && known->second == Activity::kWaits)
      continue;
    const auto before = sleeps_.find(thread);
    if (before != sleeps_.end() && before->second == sleeps_of(thread)) continue;
    const ThreadState state = thread_state(thread);
    if (state == ThreadState::kForever || state == ThreadState::kOther) return true;
  }
  return false;
}

// Whether this process could do anything by itself; asked when the whole job is silent.
wire::Quietness RankClient::Impl::quietness(Lock&) {
  using wire::Quietness;
  if (slot_ == Slot::kHeld || requested_ || callbacks_running_ > 0 || !callbacks_.empty() || !early_.empty())
    return Quietness::kAwake;
  for (const auto& [thread, activity] : threads_) {
    if (activity == Activity::kWaits) continue;
    const ThreadState state = thread_state(thread);
    if (state != ThreadState::kForever && state != ThreadState::kGone) return Quietness::kAwake;
  }
  Quietness quietness = Quietness::kAsleep;
  if (!options_.alone_in_process) return quietness;
  for (const pid_t thread : threads_of_this_process()) {
    if (thread == reader_id_ || pool_ids_.count(thread) != 0 || threads_.count(thread) != 0) continue;
    const ThreadState state = thread_state(thread);
    if (state == ThreadState::kRunning) return Quietness::kAwake;
    if (state == ThreadState::kTimed || state == ThreadState::kOther) quietness = Quietness::kTimed;
  }
  return quietness;
}

}  // namespace prism
