// Operations: issuing, completing, waiting.
#include <fmt/format.h>

#include <system_error>

#include "backend/client/session.hpp"
#include "backend/client/thread_state.hpp"

namespace prism {
namespace {

constexpr std::size_t kMostPoolThreads = 64;
// The session whose callback this thread runs.
thread_local const void* pool_of_session = nullptr;

}  // namespace

bool RankClient::Impl::in_callback() const { return pool_of_session == this; }

Result<GroupHandle> RankClient::Impl::join_group(const std::string& key, std::span<const std::int32_t> members) {
  Lock lock(mutex_);
  PRISM_RETURN_IF_ERROR(enter(lock));
  const GroupHandle handle = ++last_group_;
  send(lock, wire::JoinGroup{handle, key, {members.begin(), members.end()}});
  return handle;
}

void RankClient::Impl::leave_group(GroupHandle group) {
  Lock lock(mutex_);
  if (!inert_ && !error_) send(lock, wire::LeaveGroup{group});
}

Result<WorkId> RankClient::Impl::issue(const Operation& operation, Completion done) {
  Lock lock(mutex_);
  PRISM_RETURN_IF_ERROR(enter(lock));
  const WorkId id = ++last_work_;
  PRISM_RETURN_IF_ERROR(staging_->take(id, operation.inputs));
  Work& work = works_[id];
  work.done = std::move(done);
  work.output_bytes = operation.output_bytes;
  work.nested = in_callback();
  send(lock, wire::Issue{id, clock_ ? clock_->issues() : -1, operation});
  return id;
}

Result<WorkId> RankClient::Impl::complete_at_once(Completion done) {
  Lock lock(mutex_);
  PRISM_RETURN_IF_ERROR(enter(lock));
  const WorkId id = ++last_work_;
  Work& work = works_[id];
  work.done = std::move(done);
  work.nested = in_callback();
  wire::Completion completion;
  completion.work = id;
  deliver(lock, std::move(completion));
  return id;
}

void RankClient::Impl::deliver(Lock& lock, wire::Completion completion) {
  const auto found = works_.find(completion.work);
  if (found == works_.end() || found->second.delivered) return;
  Work& work = found->second;
  work.delivered = true;
  if (!completion.error) {
    bool expected = completion.regions.size() == (completion.unchanged ? 0 : work.output_bytes.size());
    for (std::size_t i = 0; expected && i < completion.regions.size(); ++i)
      expected = completion.regions[i].bytes == work.output_bytes[i] && memory_->contains(completion.regions[i]);
    if (!expected)
      completion.error = Error{ErrorCode::kInternal,
                               fmt::format("operation {} has {} results that do not fit the {} "
                                           "expected ones",
                                           completion.work, completion.regions.size(), work.output_bytes.size())};
  }
  if (callbacks_asleep_ > 0 && !work.nested && !error_) return park(lock, std::move(completion));
  callbacks_.push_back(std::move(completion));
  start_pool_thread_if_needed(lock);
}

// While a callback waits for operations that it has issued itself, the others' turn has not come: callbacks that issue
// (PowerSGD with several buckets) then do so in one order on every rank, as the order within a group must be.
void RankClient::Impl::park(Lock&, wire::Completion completion) {
  parked_.emplace(completion.work, std::move(completion));
  parked_since_ns_ = now_ns();
}

void RankClient::Impl::callback_falls_asleep(Lock& lock) {
  --callbacks_running_;
  ++callbacks_asleep_;
  for (auto& completion : std::exchange(callbacks_, {})) {
    const auto work = works_.find(completion.work);
    if (error_ || (work != works_.end() && work->second.nested))
      callbacks_.push_back(std::move(completion));
    else
      park(lock, std::move(completion));
  }
  if (!callbacks_.empty()) start_pool_thread_if_needed(lock);
}

void RankClient::Impl::callback_wakes(Lock&) {
  ++callbacks_running_;
  --callbacks_asleep_;
}

// Their turn has come, or somebody waits for them although a callback sleeps.
void RankClient::Impl::unpark(Lock& lock) {
  if (parked_.empty()) return;
  for (auto& parked : std::exchange(parked_, {})) callbacks_.push_back(std::move(parked.second));
  start_pool_thread_if_needed(lock);
}

void RankClient::Impl::start_pool_thread_if_needed(Lock& lock) {
  if (pool_idle_ > 0)
    callback_queued_.notify_one();
  else if (callbacks_running_ == 0)
    grow_pool(lock);
}

void RankClient::Impl::grow_pool(Lock& lock) {
  if (pool_.size() >= kMostPoolThreads || stop_pool_) return;
  try {
    pool_.push_back(start_thread([this] { run_callbacks(); }));
  } catch (const std::system_error& refused) {
    fail(lock, {ErrorCode::kIo, fmt::format("no thread for callbacks could be started: {}", refused.what())});
  }
}

void RankClient::Impl::run_callbacks() {
  pool_of_session = this;
  Lock lock(mutex_);
  pool_ids_.insert(this_thread());
  while (true) {
    ++pool_idle_;
    // One at a time: in the order of completion. More only where one sleeps, see watch().
    callback_queued_.wait(lock, [this] { return stop_pool_ || (!callbacks_.empty() && may_start_callback()); });
    --pool_idle_;
    if (callbacks_.empty()) return;
    wire::Completion completion = std::move(callbacks_.front());
    callbacks_.pop_front();
    extra_callback_ = false;
    ++callbacks_running_;
    callback_started_ns_ = now_ns();
    auto done = std::move(works_[completion.work].done);
    lock.unlock();
    if (done) {
      const Outcome outcome{completion.error ? Result<void>(*completion.error) : Result<void>(), completion.regions,
                            completion.source, completion.due_ns, completion.unchanged};
      done(outcome);
      done = nullptr;  // not under our lock: what it holds may need other locks to go (Python's, for a tensor)
    }
    lock.lock();
    --callbacks_running_;
    if (!completion.regions.empty()) read_.push_back(completion.work);
    complete(lock, completion.work);
    if (callbacks_asleep_ == 0) unpark(lock);
    if (!callbacks_.empty()) callback_queued_.notify_one();
    give_back_if_all_wait(lock);
    fall_asleep_outside(lock);
  }
}

bool RankClient::Impl::may_start_callback() const { return callbacks_running_ == 0 || extra_callback_ || stop_pool_; }

// The callback has returned, or the store has answered.
void RankClient::Impl::complete(Lock&, WorkId id) {
  const auto found = works_.find(id);
  if (found == works_.end()) return;
  for (Waiter* waiter : found->second.waiters)
    if (--waiter->missing == 0) waiter->wake.notify_all();
  if (!found->second.from_store) works_.erase(found);
  callback_returned_.notify_all();
}

Result<void> RankClient::Impl::wait(std::span<const WorkId> works, Deadline deadline) {
  Lock lock(mutex_);
  if (inert_) return enter(lock);
  activity_here(lock) = Activity::kRuns;
  return wait_for(lock, {works.begin(), works.end()}, deadline);
}

Result<void> RankClient::Impl::wait_for(Lock& lock, std::vector<WorkId> works, Deadline deadline) {
  Waiter waiter{{}, 0, deadline, {}};
  for (const WorkId id : works) {
    const auto found = works_.find(id);
    if (found == works_.end() ||
        (found->second.from_store && found->second.reply && found->second.reply->status != wire::StoreStatus::kPending))
      continue;
    found->second.waiters.push_back(&waiter);
    waiter.works.push_back(id);
    ++waiter.missing;
  }
  if (error_ && waiter.missing > 0) {
    leave_wait(waiter);
    return *error_;
  }
  if (waiter.missing == 0) return error_ ? Result<void>() : need_slot(lock);
  const auto place = waiters_.insert(waiters_.end(), &waiter);
  Activity& activity = activity_here(lock);
  activity = Activity::kWaits;
  if (in_callback()) callback_falls_asleep(lock);
  give_back_if_all_wait(lock);
  // Without a slot time is counted by the coordinator, which does not count the waiting for a turn, and wakes us with
  // a grant when it is over.
  bool timed_out = false;
  while (!error_ && waiter.missing > 0 && !timed_out) {
    const bool held = slot_ == Slot::kHeld;
    if (held && deadline.at() != Clock::time_point::max())
      waiter.wake.wait_until(lock, deadline.at());
    else
      waiter.wake.wait(lock);
    timed_out = slot_ == Slot::kHeld && deadline.passed();
  }
  activity_here(lock) = Activity::kRuns;
  if (in_callback()) callback_wakes(lock);
  waiters_.erase(place);
  const bool complete = waiter.missing == 0;
  leave_wait(waiter);
  if (complete && !error_) static_cast<void>(need_slot(lock));
  if (clock_) clock_->wake();
  if (error_ && !complete) return *error_;
  if (!complete)
    return Error{ErrorCode::kTimeout,
                 fmt::format("{} of {} operations are not complete at the deadline", waiter.missing, works.size())};
  return error_ ? Result<void>() : need_slot(lock);
}

void RankClient::Impl::leave_wait(Waiter& waiter) {
  for (const WorkId id : waiter.works)
    if (const auto found = works_.find(id); found != works_.end()) std::erase(found->second.waiters, &waiter);
}

bool RankClient::Impl::poll(WorkId id) {
  Lock lock(mutex_);
  const auto complete = [&] { return works_.count(id) == 0; };
  if (!enter(lock) || complete()) return complete();
  // Its callback runs right now: the answer is a moment away.
  const auto about_to_complete = [&] {
    const auto found = works_.find(id);
    return found != works_.end() && found->second.delivered && callbacks_running_ > 0 && !in_callback();
  };
  const auto wait_a_moment = [&] {
    const Deadline moment = Deadline::after(std::chrono::milliseconds(1));
    while (about_to_complete() && !moment.passed()) callback_returned_.wait_until(lock, moment.at());
  };
  if (!about_to_complete()) yield(lock, false);
  wait_a_moment();
  return complete();
}

}  // namespace prism
