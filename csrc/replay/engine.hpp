// The event loop of a replay: every rank is a set of cursors, one per lane, into its class; lanes meet in transfers.
//
// Events are handled in the order (time, rank, kind, index), so that two runs are equal to the nanosecond. Between two
// events of a lane its spans are executed at once. What the carrier does comes before the engine's later events and
// after those of the same time, so that all that starts at one moment starts together. One Engine per replay, on one
// thread.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "replay/carrier.hpp"
#include "replay/edits.hpp"
#include "replay/execution.hpp"
#include "replay/job.hpp"
#include "replay/mailbox.hpp"
#include "replay/replay.hpp"
#include "replay/service_times.hpp"
#include "simulate/radix_heap.hpp"

namespace prism::engine {

class Engine {
 public:
  Engine(const Job& job, const Durations& durations, const ServiceTimes& service, Carrier& carrier);
  // `parts` have nothing to do with each other: one after the other.
  // kDeadlock if some lane cannot get to its end; the message says which, and who is missing.
  Result<void> run(const std::vector<std::vector<int>>& parts);

  // Step by step, with ranks whose communications somebody outside issues (emulation.md, section 5). Time goes on only
  // by advance(); what arrives is not before the time to which it has gone.
  struct Released {
    std::int32_t rank;
    std::uint32_t comm;  // of the rank's class
    std::int64_t at_ns;
  };
  void begin(const std::vector<int>& ranks, const std::vector<int>& outside);
  // Errors: kInvalidInput, where the rank is not one from outside, or has no such communication, or issues it twice.
  Result<void> arrived(int rank, std::uint32_t comm, std::int64_t at_ns);
  // Until just before `until_ns`, or the end of the first moment at which something ends for ranks from outside, which
  // is appended: they may issue more in the next.
  Result<void> advance(std::int64_t until_ns, std::vector<Released>& released);
  // kDeadlock where a lane has not got to its end.
  Result<void> finished() const;

  Execution take_execution() && { return {std::move(timelines), std::move(transfer_start_ns)}; }

 private:
  static constexpr std::int64_t kUnset = INT64_MIN;
  enum class Kind : std::uint8_t { kTransferEnd, kIssued };
  struct Event {
    std::int64_t at;  // ns
    std::int32_t rank;
    Kind kind;
    std::uint32_t index;  // entry, or lane of the rank
    bool operator<(const Event& other) const {
      if (at != other.at) return at < other.at;
      if (rank != other.rank) return rank < other.rank;
      if (kind != other.kind) return kind < other.kind;
      return index < other.index;
    }
  };
  struct Lane {
    std::int64_t free_ns = 0;      // end of the last node
    std::uint32_t node = kNone;    // the next one
    std::uint32_t blocked_on = 0;  // sources of that node which have not ended
  };
  // Collectives of one group on one rank that no worker has taken up yet, linked through next_in_queue_.
  struct Queue {
    std::uint32_t head = kNone, tail = kNone;
    int idle_workers = 0;
  };

  void prepare_lanes(int rank);
  void start_lanes(int rank, std::int64_t clock_start);
  Result<void> go_on(std::int64_t until_ns);
  void advance(int rank, std::uint32_t lane);
  void end_node(int rank, std::uint32_t lane, std::uint32_t node, std::int64_t at_ns);
  void source_ended(int rank, std::uint32_t node);  // tells the lanes that are blocked on it
  void resume_lanes(int rank);
  void issued(int rank, std::uint32_t lane, std::int64_t at_ns);
  void enqueue(std::uint32_t entry, std::int64_t at_ns);
  void taken_up(std::uint32_t entry, std::int64_t at_ns);
  void post_message(std::uint32_t entry, std::int64_t at_ns);
  void join_tree(const Collective& collective, std::uint32_t member, std::int64_t at_ns);
  void start_transfer(std::uint32_t entry, std::int64_t at_ns);
  void start_message(std::uint32_t send, std::uint32_t receive, std::int64_t at_ns);
  void transfer_ended(std::uint32_t entry, std::int64_t at_ns);

  std::int64_t end_of(int rank, std::uint32_t node) const;
  bool has_come(std::uint32_t entry) const {
    return is_entry(entry) ? taken_up_ns_[entry] != kUnset : entry == kNotRecorded;
  }
  Queue& queue_of(std::uint32_t entry);
  Error explain_deadlock() const;
  friend class Deadlock;

  std::vector<ReplayReport::Timeline> timelines;  // of the execution
  std::vector<std::int64_t> transfer_start_ns;
  const Job& job_;
  const Durations& durations_;
  const ServiceTimes& service_;
  Carrier& carrier_;
  std::vector<Carrier::Ended> ended_;         // not yet in events_
  std::vector<std::int64_t> taken_up_ns_;     // [entries]
  std::vector<std::uint32_t> next_in_queue_;  // [entries]
  std::vector<std::uint32_t> still_missing_;  // [collectives]: recorded members that have not come
  std::vector<Lane> lanes_;
  std::vector<Queue> queues_;
  std::vector<Mailbox> mailboxes_;
  std::vector<bool> outside_;  // [world size]
  std::vector<Released> released_;
  std::vector<std::int64_t> clock_starts_;
  bool overdue_ = false;
  std::vector<std::uint32_t> resumed_;  // lanes of the current rank to advance
  simulate::RadixHeap<Event> events_;
};

}  // namespace prism::engine
