// Coordinator::Impl: the event loop that owns all state. Methods whose names end in _from_loop are what messages and
// timers call; everything here runs on the loop's thread, but for run()'s set-up and abort().
// A turn of the loop: handle what has come, then end_turn_from_loop(): hand out slots, look for deadlock, write once
// per rank.
#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <deque>
#include <map>
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
#include "backend/coordinator/data_recorder.hpp"
#include "backend/coordinator/matcher.hpp"
#include "backend/coordinator/process_watch.hpp"
#include "backend/coordinator/quiet_watch.hpp"
#include "backend/coordinator/scheduler.hpp"
#include "backend/coordinator/selection.hpp"
#include "backend/coordinator/store.hpp"
#include "backend/coordinator/timeouts.hpp"
#include "backend/coordinator/virtual_values.hpp"
#include "backend/emulator/emulator.hpp"
#include "backend/protocol/link.hpp"
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
  // What somebody reads.
  struct Readable {
    Impl& loop;
    // What of it has been sent to other hosts: (host, offset, bytes) -> number of the block there.
    std::map<std::tuple<int, std::uint64_t, std::uint64_t>, std::uint64_t> sent;
    explicit Readable(Impl& loop) : loop(loop) {}
    Readable(const Readable&) = delete;  // a copy would free it under its readers
    virtual ~Readable();
  };
  // A completed operation's inputs, as long as somebody reads them; then their owners are told.
  struct Inputs : Readable {
    std::vector<std::pair<int, WorkId>> owners;
    explicit Inputs(Impl& loop) : Readable(loop) {}
    Inputs(Impl& loop, const Exchange& exchange);
    ~Inputs() override;
  };
  // The same of an operation with virtual members: what they put in, too.
  struct Block;
  struct MixedInputs : Inputs {
    using Inputs::Inputs;
    std::vector<std::shared_ptr<Block>> blocks;
  };
  // A block of the coordinator's window, as long as somebody reads it.
  struct Block : Readable {
    const Region region;
    Block(Impl& loop, Region region) : Readable(loop), region(region) {}
    ~Block() override { loop.results_->free(region.offset); }
  };
  using Held = std::shared_ptr<Readable>;  // by whoever reads it
  struct Reduction {
    std::shared_ptr<Block> block, parts_block;
    std::vector<Region> results, parts;
    std::vector<ReducePiece> pieces;          // of results that are not empty
    std::vector<std::uint32_t> part_indices;  // results whose virtual part is recorded, one for each of `parts`
    std::vector<std::uint8_t> virtual_members;
    DType part_dtype = DType::kNone;
    std::vector<std::shared_ptr<const MappedFile>> files;  // of what virtual members put in
  };
  struct Rank {
    int host = 0;
    std::shared_ptr<Connection> connection;            // of a rank of this host
    wire::Buffer out;                                  // to one of another host
    std::unique_ptr<WindowAllocator> window;           // of one of another host, for what it sends:
    std::unordered_map<WorkId, std::uint64_t> copies;  // a block for each operation
    std::shared_ptr<ProcessWatch> process;
    bool joined = false, finished = false;
    std::uint64_t grants = 0;
    WorkId last_work = 0;
    std::unordered_map<WorkId, std::shared_ptr<const Pending>> outstanding;
    std::unordered_map<WorkId, Held> unread;
    std::unordered_set<WorkId> awaited;  // while blocked: those of the awaited operations that are outstanding
    bool impatient = false;              // blocked with a time limit of its own that is short
    std::uint64_t patience = 0;          // its handle in timeouts_
    bool polls_store = false;            // its last poll looked for a change of the store
    wire::Buffer held;                   // completions for when it next gives its slot back, or gets one
    std::vector<WorkId> freed;           // inputs that it may use again
    bool dirty = false;                  // has something to send
    int stopped_checks = 0;
    bool stopped = false;  // by a signal, as the relay of another host says
    bool died = false;
    bool admitting = false;  // has a slot, but its device state is not there yet
  };
  struct Link {
    std::shared_ptr<Connection> connection;  // to the relay of this host; null for our own
    std::vector<int> ranks;
    std::vector<std::uint64_t> ended;  // blocks; told after what names them
    std::uint32_t waiting_told = 0;
    int coming_for = -1;  // the rank whose inputs come
    WorkId work = 0;
    Region coming;  // what is still to come of them
  };
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  // loop.cpp: life of a run
  Result<void> listen();
  template <typename Acceptor, typename Made>
  void accept(Acceptor& acceptor, Made made);
  void accept_ranks();
  void wait_for_more_ranks();
  void closed_from_loop(Connection& connection, const Error& why);
  void died_from_loop(int rank, const std::string& why);
  void fail_from_loop(Error error);
  void end_if_drained_from_loop();
  wire::Buffer* out(int rank);  // null: it cannot be told anything
  template <typename Message>
  void send(int rank, const Message& message);

  // hosts.cpp: ranks of other hosts, behind their relays
  Result<void> listen_for_hosts();
  Link& link(int host) { return links_[static_cast<std::size_t>(host)]; }
  const Host& host(int index) const { return hosts_[static_cast<std::size_t>(index)]; }
  std::string host_text(int host) const;
  void link_frame_from_loop(Connection& connection, const wire::Frame& frame);
  Result<void> handle_link(Connection& connection, const wire::Frame& frame);
  Result<void> link_hello(Connection& connection, const wire::LinkHello& message);
  Result<int> rank_of(int host, std::uint32_t rank) const;
  Result<void> on_link(int host, const wire::RankJoined& message);
  Result<void> on_link(int host, const wire::RankInputs& message);
  Result<void> on_link(int host, const wire::BlockBytes& message);
  Result<void> on_link(int host, const wire::RankChanged& message);
  Result<void> on_link(int host, const wire::RankFrames& message);
  void link_closed_from_loop(int host, const std::string& why);
  Result<void> take_copy(int rank, WorkId work, std::vector<Region>& inputs);
  void drop_copy(int rank, WorkId work);
  void end_block(int host, std::uint64_t block);
  std::vector<Region> placed(int host, const Held& held, std::vector<Region> regions);
  void flush_links();
  bool links_are_busy() const;
  void watch_links_from_loop();

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
  void refuse(Connection& connection, const Error& error);
  void frame_from_loop(Connection& connection, const wire::Frame& frame);
  void rank_frame_from_loop(int rank, const wire::Frame& frame);
  Result<void> handle(int rank, const wire::Frame& frame);
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
  Result<void> serve_from_loop(const std::shared_ptr<Exchange>& exchange);
  Result<void> start_reduction(const std::shared_ptr<Exchange>& exchange, std::shared_ptr<Inputs> inputs);
  Result<std::shared_ptr<Reduction>> prepare_reduction(const Exchange& exchange);
  Result<std::shared_ptr<Block>> new_block(std::span<const std::uint64_t> bytes, std::vector<Region>& regions);

  // loop_recording.cpp: their tensors are kept
  Result<void> start_recording(std::uint64_t memory_budget);
  Result<void> prepare_parts(const Exchange& exchange, Reduction& reduction);
  void record_from_loop(const Exchange& exchange, const std::shared_ptr<Inputs>& inputs, const Reduction* reduction);
  void recorded_from_loop(const Result<void>& written);
  Result<void> finish_recording();
  void deliver_from_loop(const std::shared_ptr<Exchange>& exchange, std::span<const Region> results, const Held& held);
  void fail_exchange_from_loop(const std::shared_ptr<Exchange>& exchange, const Error& error);
  void deliver_to(const Arrival& arrival, wire::Completion completion);
  void answered_from_loop(int rank, WorkId work);
  template <typename Message>
  void send_or_hold(int rank, WorkId work, const Message& message);
  void start_timeout(const std::shared_ptr<Exchange>& exchange, std::chrono::nanoseconds own);

  // loop_emulation.cpp: operations with virtual members, delivered when they are due
  Result<void> start_emulation();
  Result<void> emulate_from_loop(int rank, WorkId work, std::int64_t emulated_ns,
                                 const std::shared_ptr<Exchange>& exchange);
  Result<void> complete_emulated(const std::shared_ptr<Exchange>& exchange);
  Result<void> fill_virtual(Exchange& exchange);
  Result<void> add_virtual(const Exchange& exchange, std::size_t result, ReducePiece& piece, Reduction& reduction);
  std::optional<RecordedData::Tensor> value_of(const Exchange& exchange, std::int32_t member, std::uint32_t index,
                                               DType dtype, std::uint64_t bytes) const;
  void check_values(const Exchange& exchange, const Arrival& arrival, std::uint32_t comm);
  void reduced_emulated(const std::shared_ptr<Exchange>& exchange, const std::shared_ptr<Reduction>& reduction);
  bool is_ready(const Exchange& exchange, std::size_t index) const;
  void deliver_due(const std::shared_ptr<Exchange>& exchange);
  void due_from_loop(const std::vector<Emulation::Released>& due);

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
  const std::vector<Host> hosts_;
  boost::asio::local::stream_protocol::acceptor acceptor_{io_};
  boost::asio::ip::tcp::acceptor link_acceptor_{io_};
  boost::asio::steady_timer join_timer_{io_}, holders_timer_{io_}, stopped_timer_{io_}, pause_timer_{io_},
      drain_timer_{io_}, links_timer_{io_}, accept_timer_{io_};
  std::unique_ptr<SharedMemory> memory_;
  std::unique_ptr<WindowAllocator> results_;
  std::optional<Selection> selection_;  // where tensors are recorded, as recorder_
  std::unique_ptr<DataRecorder> recorder_;
  std::deque<std::shared_ptr<Exchange>> postponed_;  // complete, but the disk is behind
  Scheduler scheduler_;
  Matcher matcher_;
  Store store_;
  Timeouts timeouts_{io_};
  QuietWatch quiet_watch_;
  std::optional<Residency> residency_;                   // where devices are swapped
  std::vector<std::unique_ptr<Admissions>> admissions_;  // by device
  std::vector<Rank> ranks_;
  std::vector<Link> links_;                                    // by host
  std::unordered_set<std::shared_ptr<Connection>> strangers_;  // have not said who they are
  std::vector<int> dirty_;
  std::set<int> store_pollers_;
  std::set<int> holding_;               // ranks for which completions are held
  int expected_ = options_.world_size;  // ranks that join
  int joined_ = 0, finished_ = 0, impatient_ = 0, reducing_ = 0;
  std::shared_ptr<ProcessWatch> more_ranks_;
  bool turn_end_posted_ = false;
  std::int64_t pause_armed_ns_ = -1;
  std::uint64_t store_changes_seen_ = 0, last_block_ = 0;
  std::optional<Error> first_error_;
  bool stopping_ = false;

  // Emulation.
  std::unique_ptr<Emulator> emulator_;
  VirtualValues values_;
  struct Place {
    std::shared_ptr<Exchange> exchange;
    std::size_t index;
  };
  std::map<std::pair<int, std::uint32_t>, Place> due_places_;              // by (rank, communication): not delivered
  std::map<std::pair<std::string, std::string>, std::uint64_t> invented_;  // operations by (op, group)
  std::uint64_t checked_ = 0, different_ = 0;  // operations of real ranks, by what they put in
  std::string first_different_;
  std::uint64_t known_ = 0;  // with all values known

  // statistics
  std::uint64_t messages_ = 0, operations_ = 0, switches_lower_bound_ = 0;
  std::uint64_t device_swaps_ = 0, device_swapped_bytes_ = 0;
  std::int64_t device_swap_ns_ = 0;
  std::int64_t started_ns_ = 0, ended_ns_ = 0;
};

}  // namespace prism
