// RankClient::Impl. One mutex guards the protocol's state; a reader thread receives, watches whether the process
// computes, and never runs callbacks; callbacks run on pool threads, one at a time unless they block.
#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backend/client/emulated_clock.hpp"
#include "backend/client/rank_client.hpp"
#include "backend/client/staging.hpp"
#include "backend/protocol/messages.hpp"
#include "backend/protocol/shared_memory.hpp"
#include "backend/protocol/socket.hpp"

namespace prism {

struct RankClient::Impl {
  using Lock = std::unique_lock<std::mutex>;
  explicit Impl(const Options& options) : options_(options) {}
  ~Impl();
  // session.cpp
  Result<void> connect();
  void finish(const std::string& error_text);
  // works.cpp
  Result<GroupHandle> join_group(const std::string& key, std::span<const std::int32_t> members);
  void leave_group(GroupHandle group);
  Result<WorkId> issue(const Operation& operation, Completion done);
  Result<WorkId> complete_at_once(Completion done);
  Result<void> wait(std::span<const WorkId> works, Deadline deadline);
  bool poll(WorkId work);
  // slot.cpp
  void lend_slot();
  void without_slot(const std::function<void()>& blocking);
  void sleep_outside();
  void wake_outside();
  std::int64_t off_slot_ns();
  std::int64_t waiting_ns();
  std::atomic<bool> uses_device_{false};
  std::int64_t emulated_now_ns();
  template <typename Use>
  void with_clock(Use&& use) {
    Lock lock(mutex_);
    use(*clock_);
  }
  // store.cpp: sends the request; with `deadline`, waits for what is not there yet
  Result<wire::StoreReply> ask_store(wire::StoreRequest request, std::optional<Deadline> deadline = {});
  Result<void> tell_store(wire::StoreRequest request);
  void yield_store_poll();

  std::unique_ptr<SharedMemory> memory_;
  std::unique_ptr<Staging> staging_;
  std::optional<EmulatedClock> clock_;  // of an emulation, from connect() on; under mutex_
  const Options options_;
  std::atomic<bool> inert_{false};  // in a forked child: this session is its parent's

 private:
  friend struct ForkGuard;

  // A thread that sleeps in wait() or in a store call.
  struct Waiter {
    std::vector<WorkId> works;
    std::size_t missing = 0;
    Deadline deadline;
    std::condition_variable wake;
  };
  struct Work {
    Completion done;
    std::vector<std::uint64_t> output_bytes;
    bool from_store = false;
    std::optional<wire::StoreReply> reply;
    std::vector<Waiter*> waiters;
    bool delivered = false;  // its callback is queued or runs
    bool nested = false;     // issued by a callback
  };
  enum class Slot { kNone, kHeld, kBlocked, kLent, kYielded };
  enum class Activity { kRuns, kWaits, kOutside };

  // session.cpp; a Lock argument says that mutex_ is held
  void read_loop();
  int poll_timeout_ms(Lock& lock);
  bool receive(wire::Buffer& buffer);
  void handle(Lock& lock, const wire::Frame& frame);
  template <typename Message>
  void send(Lock& lock, const Message& message);
  void fail(Lock& lock, Error error);
  Result<void> enter(Lock& lock);  // of each public call: still alive, thread known, slot held

  // works.cpp
  void deliver(Lock& lock, wire::Completion completion);
  void complete(Lock& lock, WorkId work);
  void run_callbacks();
  bool may_start_callback() const;
  void park(Lock& lock, wire::Completion completion);
  void unpark(Lock& lock);
  void callback_falls_asleep(Lock& lock);
  void callback_wakes(Lock& lock);
  bool in_callback() const;  // whether this thread runs one
  void leave_wait(Waiter& waiter);
  void start_pool_thread_if_needed(Lock& lock);
  void grow_pool(Lock& lock);
  Result<void> wait_for(Lock& lock, std::vector<WorkId> works, Deadline deadline);

  // slot.cpp
  void granted(Lock& lock, std::uint64_t number);
  void give_back(Lock& lock, wire::Release release, Slot to);
  void give_back_if_all_wait(Lock& lock);
  void fall_asleep_outside(Lock& lock);
  bool others_run(Lock& lock, bool but_this);
  bool somebody_wakes(Lock& lock) const;
  void request_slot(Lock& lock);
  Result<void> need_slot(Lock& lock);
  void yield(Lock& lock, bool polls_store);
  void watch(Lock& lock);
  void swap(Lock& lock, bool done);
  bool somebody_is_stuck(Lock& lock) const;
  bool any_thread_runnable(Lock& lock) const;
  std::int64_t cpu_ns(Lock& lock);
  wire::Quietness quietness(Lock& lock);
  Activity& activity_here(Lock& lock);

  mutable std::mutex mutex_;
  UniqueFd socket_;
  std::optional<Error> error_;  // the run's first error, or that the session is over
  bool finished_ = false;
  wire::Buffer out_;
  wire::Buffer early_bytes_;  // what came behind the welcome
  std::vector<WorkId> read_;  // outcomes to acknowledge with the next message

  WorkId last_work_ = 0;
  GroupHandle last_group_ = 0;
  std::unordered_map<WorkId, Work> works_;  // not complete
  std::vector<wire::Completion> early_;     // came while this rank had no slot
  std::list<Waiter*> waiters_;
  int replies_awaited_ = 0, seekers_ = 0;  // threads that wait for the store's answer; for a slot

  Slot slot_ = Slot::kNone;
  bool requested_ = false;
  std::uint64_t grant_ = 0;
  std::condition_variable slot_granted_;
  std::int64_t off_slot_since_ns_ = 0, off_slot_ns_ = 0, lent_ns_ = 0;
  bool swaps_devices_ = false;  // this run's coordinator does
  enum class Device { kHere, kLeaving, kAway } device_ = Device::kHere;
  std::unordered_map<pid_t, std::uint64_t> sleeps_;  // of this process's threads, when it had left the device
  std::unordered_map<pid_t, Activity> threads_;      // of the program, those that have called; Activity now
  std::int64_t lend_after_ns_ = 0, watched_ns_ = 0, watched_cpu_ns_ = 0, watch_interval_ns_ = 0;

  std::deque<wire::Completion> callbacks_;     // to be run
  std::map<WorkId, wire::Completion> parked_;  // to be run when no callback sleeps, see park()
  std::int64_t parked_since_ns_ = 0;
  std::condition_variable callback_queued_, callback_returned_;
  bool extra_callback_ = false;  // one more may start although one runs
  std::vector<std::thread> pool_;
  std::unordered_set<pid_t> pool_ids_;
  pid_t reader_id_ = 0;
  int callbacks_running_ = 0;  // neither queued nor asleep in a call of ours
  int callbacks_asleep_ = 0;
  int pool_idle_ = 0;
  std::int64_t callback_started_ns_ = 0;
  bool stop_pool_ = false;
  std::thread reader_;
};

template <typename Message>
void RankClient::Impl::send(Lock&, const Message& message) {
  if (socket_.get() < 0) return;
  out_.clear();
  if (!read_.empty()) wire::append_frame(out_, wire::ReadDone{std::exchange(read_, {})});
  wire::append_frame(out_, message);
  send_all(socket_.get(), out_);  // an end that is gone is noticed by the reader
}

}  // namespace prism
