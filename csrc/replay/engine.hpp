// The event loop of replays and of emulation: a rank is a set of cursors, one per lane, into its class; lanes meet in
// communications.
//
// Events are handled in the order (time, rank, kind, index), so that two runs are equal to the nanosecond. Between two
// events of a lane its spans are executed at once. What the carrier does comes before the engine's later events and
// after those of the same time, so that all that starts at one moment starts together. One Engine per execution, on one
// thread.
//
// It keeps what is under way (InFlight), which ends somebody has yet to wait for, and the cursors; nothing else grows
// with the job's length unless timelines are kept.
#pragma once
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "replay/carrier.hpp"
#include "replay/edits.hpp"
#include "replay/execution.hpp"
#include "replay/in_flight.hpp"
#include "replay/job.hpp"
#include "replay/replay.hpp"
#include "replay/service_times.hpp"
#include "simulate/radix_heap.hpp"

namespace prism::engine {

// Told of what has been executed. `round`: of the period of a Loop, 0 in the record.
class Observer {
 public:
  virtual ~Observer() = default;
  // A node of a lane. It may run beyond the time to which the engine has advanced, up to where its lane has to wait.
  virtual void ran(int rank, std::uint32_t node, std::uint32_t round, std::int64_t start_ns, std::int64_t end_ns) = 0;
  // A part in a communication, from when it could start.
  virtual void transferred(int rank, std::uint32_t comm, std::uint32_t round, std::int64_t start_ns,
                           std::int64_t end_ns) = 0;
};

class Engine {
 public:
  struct Options {
    const Loop* loop = nullptr;  // the job goes on beyond its record
    bool timelines = true;       // keeps the times of all nodes of the record, for take_execution()
    Observer* observer = nullptr;
  };
  Engine(const Job& job, const Durations& durations, const ServiceTimes& service, Carrier& carrier);
  Engine(const Job& job, const Durations& durations, const ServiceTimes& service, Carrier& carrier, Options options);
  Engine(const Engine&) = delete;
  // `parts` have nothing to do with each other: one after the other.
  // kDeadlock if some lane cannot get to its end; the message says which, and who is missing.
  Result<void> run(const std::vector<std::vector<int>>& parts);

  // Step by step, with ranks whose communications somebody outside issues (emulation.md, section 5). Time goes on only
  // by advance().
  struct Released {
    std::int32_t rank;
    std::uint32_t comm;  // of the rank's class, or beyond: Loop::number()
    std::int64_t at_ns;
  };
  void begin(const std::vector<int>& ranks, const std::vector<int>& outside);
  // Time has gone to `at_ns`. Errors: kInvalidInput, where the rank is not one from outside, or has no such
  // communication, or issues it twice, or (beyond the record) after one of a later round.
  Result<void> arrived(int rank, std::uint32_t comm, std::int64_t at_ns);
  // Until just before `until_ns`, or the end of the first moment at which something ends for ranks from outside, which
  // is appended: they may issue more in the next.
  Result<void> advance(std::int64_t until_ns, std::vector<Released>& released);
  // kDeadlock where a lane has not got to its end.
  Result<void> finished() const;
  // Of a Loop without end, or a later one: the job ends with this iteration. kInvalidInput where some rank has begun
  // its last round, or it is no whole number of periods.
  Result<void> end_after(int iterations);

  Execution take_execution() && { return {std::move(timelines_), std::move(transfer_start_ns_)}; }
  // What the engine has allocated for what goes on, how many events it has handled.
  std::size_t bytes() const;
  std::uint64_t events() const { return event_count_; }

 private:
  struct Event {
    std::int64_t at;      // ns
    std::uint64_t order;  // ends of transfers as communications are numbered, then what lanes do
    std::int32_t rank;
    std::uint32_t index;  // part, or lane of all
    bool operator<(const Event& other) const {
      if (at != other.at) return at < other.at;
      if (rank != other.rank) return rank < other.rank;
      return order < other.order;
    }
  };
  static constexpr std::uint64_t kIssued = std::uint64_t{1} << 62, kGoesOn = std::uint64_t{1} << 63;  // in an order
  struct Lane {
    std::int64_t free_ns = 0;   // end of the last step
    std::int64_t ready_ns = 0;  // the latest end of what the step needs, so far
    std::uint32_t step = kNone;
    std::uint32_t round = 0;
    std::uint32_t missing = 0;     // ends that it waits for; kReady: it has waited
    std::uint32_t repetition = 0;  // whose durations it takes: Loop::repetition()
  };
  static constexpr std::uint32_t kReady = kNone;
  // Ends that a step needs, as far as they have been before its lane has got there.
  struct JoinKey {
    std::int32_t rank;
    std::uint32_t step, round;
    bool operator==(const JoinKey&) const = default;
    std::uint64_t hash() const {
      return mixed((std::uint64_t{static_cast<std::uint32_t>(rank)} << 32 | step) + 0x9e3779b97f4a7c15ull * round);
    }
    static JoinKey none() { return {-1, kNone, kNone}; }
  };
  struct Join {
    std::uint32_t count = 0;
    std::int64_t ready_ns = INT64_MIN;
  };
  // Of a rank from outside: what it has issued.
  struct Outside {
    std::vector<bool> recorded;         // [comms]
    std::vector<std::uint32_t> rounds;  // [comms of the period] the latest
  };

  void start_lanes(int rank, std::int64_t clock_start);
  void prepare_timeline(int rank);
  Result<void> go_on(std::int64_t until_ns);
  void advance(int rank, std::uint32_t lane);
  bool has_its_sources(int rank, Lane& lane, const Step& step);
  std::int64_t duration(int rank, const Lane& lane, const Step& step) const;
  void prefetch(const Event& event) const;
  void end_step(int rank, std::uint32_t lane, const Step& step, std::int64_t start_ns, std::int64_t end_ns);
  void go_to_next(int rank, Lane& lane, const LanePlan& plan, const Step& step);
  void source_ended(int rank, std::span<const Target> targets, std::uint32_t round, std::int64_t at_ns);
  void resume_lanes(int rank);
  void issued(int rank, std::uint32_t lane, std::int64_t at_ns);
  bool is_first_issue(int rank, std::uint32_t comm, std::uint32_t round);
  void enqueue(int rank, std::uint32_t comm, std::uint32_t round, std::int64_t at_ns);
  void taken_up(std::uint32_t part, std::int64_t at_ns);
  void post_message(std::uint32_t part, std::int64_t at_ns);
  void join_tree(const Meeting& meeting, std::uint32_t member, std::int64_t at_ns);
  void start_transfer(std::uint32_t part, std::int64_t at_ns);
  void start_message(std::uint32_t send, std::uint32_t receive, std::int64_t at_ns);
  void transfer_ended(std::uint32_t part, std::int64_t at_ns);
  void can_start(std::uint32_t part, std::int64_t at_ns);
  std::uint64_t order_of(const Part& part) const;

  Error explain_deadlock() const;
  friend class Deadlock;

  const Job& job_;
  const Durations& durations_;
  const ServiceTimes& service_;
  Carrier& carrier_;
  const Options options_;
  std::int64_t rounds_ = 1;
  std::array<StartRule, static_cast<std::size_t>(Op::kCount)> rules_;
  InFlight in_flight_;
  std::vector<const std::int64_t*> duration_ns_;  // [world size], [nodes]
  std::vector<Carrier::Ended> ended_;             // not yet in events_
  std::vector<Lane> lanes_;
  FlatMap<JoinKey, Join> joins_;
  FlatMap<JoinKey, Join> issues_;  // of communications that several nodes issue; step: the communication
  std::vector<bool> is_outside_;   // [world size]
  std::vector<std::pair<std::int32_t, Outside>> outside_;
  std::vector<Released> released_;
  bool overdue_ = false;
  std::vector<std::uint32_t> resumed_;  // lanes of the current rank to advance
  simulate::RadixHeap<Event> events_;
  std::uint64_t event_count_ = 0;
  std::vector<ReplayReport::Timeline> timelines_;  // of the execution, where they are kept
  std::vector<std::int64_t> transfer_start_ns_;
};

}  // namespace prism::engine
