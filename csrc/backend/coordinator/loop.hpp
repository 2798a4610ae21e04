// Coordinator::Impl: the event loop that owns all state. Methods whose names end in _from_loop are what messages and
// timers call; everything here runs on the loop's thread, but for run()'s set-up and abort().
// A turn of the loop: handle what has come, then end_turn_from_loop(): hand out slots, look for deadlock, write once
// per rank.
#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backend/coordinator/admissions.hpp"
#include "backend/coordinator/connection.hpp"
#include "backend/coordinator/coordinator.hpp"
#include "backend/coordinator/matcher.hpp"
#include "backend/coordinator/quiet_watch.hpp"
#include "backend/coordinator/scheduler.hpp"
#include "backend/coordinator/store.hpp"
#include "backend/coordinator/timeouts.hpp"
#include "backend/protocol/window_allocator.hpp"
#include "core/deadline.hpp"

namespace prism {

struct Coordinator::Impl {
  Impl(Options options, std::shared_ptr<Executor> executor);
  ~Impl();
  Result<void> run();
  void abort(Error error);
  std::string statistics_json() const;

 private:
  // Data of a completed operation that somebody still reads. When the last reader lets go, the owners of the inputs
  // and the result's memory are told.
  struct Transfer {
    Impl& loop;
    std::vector<std::pair<int, WorkId>> owners;
    std::optional<std::uint64_t> result;  // block of the coordinator's window
    explicit Transfer(Impl& loop, std::optional<std::uint64_t> result = {}) : loop(loop), result(result) {}
    Transfer(const Transfer&) = delete;  // a copy would free the result under its readers
    ~Transfer();
  };
  struct Rank {
    std::shared_ptr<Connection> connection;
    std::optional<boost::asio::posix::stream_descriptor> process;  // pidfd
    bool joined = false, finished = false;
    std::uint64_t grants = 0;
    WorkId last_work = 0;
    std::unordered_map<WorkId, std::shared_ptr<const Pending>> outstanding;
    std::unordered_map<WorkId, std::shared_ptr<Transfer>> unread;
    std::unordered_set<WorkId> awaited;  // while blocked: those of the awaited operations that are outstanding
    bool impatient = false;              // blocked with a time limit of its own that is short
    std::uint64_t patience = 0;          // its handle in timeouts_
    bool polls_store = false;            // its last poll looked for a change of the store
    wire::Buffer held;                   // completions for when it next gives its slot back, or gets one
    std::vector<WorkId> freed;           // inputs that it may use again
    bool dirty = false;                  // has something to send
    int stopped_checks = 0;
    bool died = false;
    bool admitting = false;  // has a slot, but its device state is not there yet
  };
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  // loop.cpp: life of a run
  Result<void> listen();
  void accept();
  void closed_from_loop(Connection& connection, const Error& why);
  void died_from_loop(int rank, const std::string& why);
  void fail_from_loop(Error error);
  void end_if_drained_from_loop();
  template <typename Message>
  void send(int rank, const Message& message);

  // loop_turn.cpp: slots
  void mark_dirty(int rank);
  void need_turn_end();
  void end_turn_from_loop();
  void every(std::chrono::nanoseconds period, boost::asio::steady_timer& timer, void (Impl::*then)());
  void grant(int rank);
  void send_grant(int rank);
  void flush_held(int rank);
  void forget_block(int rank);
  void store_changed_from_loop();
  void watch_holders_from_loop();
  void watch_stopped_from_loop();

  // loop_messages.cpp: what ranks say
  void frame_from_loop(Connection& connection, const wire::Frame& frame);
  Result<void> handle(Connection& connection, const wire::Frame& frame);
  Result<void> hello(Connection& connection, const wire::Hello& message);
  Result<void> on(int rank, wire::JoinGroup message);
  Result<void> on(int rank, wire::LeaveGroup message);
  Result<void> on(int rank, wire::Issue message);
  Result<void> on(int rank, wire::ReadDone message);
  Result<void> on(int rank, wire::Release message);
  Result<void> on(int rank, wire::RequestSlot message);
  Result<void> on(int rank, wire::ProbeReply message);
  Result<void> on(int rank, wire::StoreRequest message);
  Result<void> on(int rank, wire::StoreCancel message);
  Result<void> on(int rank, wire::Finish message);
  template <typename Message>
  Result<void> read(int rank, const wire::Frame& frame);
  bool answers(int rank, const wire::Release& message) const;

  // loop_data.cpp: operations that are complete
  Result<void> complete_from_loop(const std::shared_ptr<Exchange>& exchange);
  Result<void> start_reduction(const std::shared_ptr<Exchange>& exchange);
  void deliver_from_loop(const std::shared_ptr<Exchange>& exchange, std::span<const Region> results,
                         const std::shared_ptr<Transfer>& transfer);
  void fail_exchange_from_loop(const std::shared_ptr<Exchange>& exchange, const Error& error);
  void deliver_to(const Arrival& arrival, wire::Completion completion);
  void answered_from_loop(int rank, WorkId work);
  template <typename Message>
  void send_or_hold(int rank, WorkId work, const Message& message);
  void start_timeout(const std::shared_ptr<Exchange>& exchange, std::chrono::nanoseconds own);

  // loop_swap.cpp: device state, before a grant is sent
  Result<void> check_devices() const;
  void start_swapping();
  void stop_swapping();
  void admit_from_loop(int device);
  void swap_done_from_loop(int device, Residency::Step step, const SwapThread::Outcome& outcome);
  void admit_waiting_from_loop();
  void look_for_room_from_loop(int device);
  bool process_ended(int rank);
  bool is_swapping() const;

  // report.cpp
  bool quiet() const;
  Error deadlock_report() const;
  std::string waiting_report() const;

  const Options options_;
  const std::shared_ptr<Executor> executor_;
  boost::asio::io_context io_{1};
  boost::asio::thread_pool executor_thread_{1};
  boost::asio::local::stream_protocol::acceptor acceptor_{io_};
  boost::asio::steady_timer join_timer_{io_}, holders_timer_{io_}, stopped_timer_{io_}, pause_timer_{io_},
      drain_timer_{io_};
  std::unique_ptr<SharedMemory> memory_;
  std::unique_ptr<WindowAllocator> results_;
  Scheduler scheduler_;
  Matcher matcher_;
  Store store_;
  Timeouts timeouts_{io_};
  QuietWatch quiet_watch_;
  std::optional<Residency> residency_;                   // where devices are swapped
  std::vector<std::unique_ptr<Admissions>> admissions_;  // by device
  std::vector<Rank> ranks_;
  std::unordered_set<std::shared_ptr<Connection>> strangers_;  // have not said who they are
  std::vector<int> dirty_;
  std::set<int> store_pollers_;
  std::set<int> holding_;  // ranks for which completions are held
  int joined_ = 0, finished_ = 0, impatient_ = 0, reducing_ = 0;
  bool turn_end_posted_ = false;
  std::int64_t pause_armed_ns_ = -1;
  std::uint64_t store_changes_seen_ = 0;
  std::optional<Error> first_error_;
  bool stopping_ = false;

  // statistics
  std::uint64_t messages_ = 0, operations_ = 0, switches_lower_bound_ = 0;
  std::uint64_t device_swaps_ = 0, device_swapped_bytes_ = 0;
  std::int64_t device_swap_ns_ = 0;
  std::int64_t started_ns_ = 0, ended_ns_ = 0;
};

}  // namespace prism
