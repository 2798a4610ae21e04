// The execution of a job in which every transfer takes a time of its own, whatever else is under way: no events, each
// node once, as soon as what it needs is known. The answer is Engine's to the nanosecond.
//
// A Sweep is made once for a job and may run many times; copies may run at once. One thread each; 16 bytes of scratch a
// node at most.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "replay/edits.hpp"
#include "replay/execution.hpp"
#include "replay/job.hpp"
#include "replay/service_times.hpp"

namespace prism::engine {

class Sweep {
 public:
  // Nothing where it depends on the order of time what meets what: receives from any source, collectives of a group or
  // messages to a peer from several lanes of a rank or not in the order of their numbers, a communication that several
  // nodes issue.
  static std::optional<Sweep> make(const Job& job);
  // False where it cannot go on: a deadlock, a worker whose next end decides what it takes up, a tree in which somebody
  // never takes part. Then Engine knows.
  bool run(const Durations& durations, const ServiceTimes& service, const std::vector<std::int64_t>& clock_starts);
  Execution take_execution(const Durations& durations) &&;

  // As after a run(), where the graph's own times are those of an execution (a calibrated trace).
  void load(const ServiceTimes& service, const std::vector<std::int64_t>& clock_starts);
  struct NodeOfRank {
    std::int32_t rank;
    std::uint32_t node;
  };
  // After a run() or load(): nodes have other durations now. Looks at them and at what depends on them, as far as an
  // end changes; the answer is that of a run(). Returns how many nodes and parts of communications it looked at;
  // nothing where it does not come to rest, or somebody never joins a collective. All durations together are below
  // 4e18 ns.
  std::optional<std::size_t> update(const Durations& durations, const std::vector<NodeOfRank>& changed);

  std::size_t scratch_bytes() const;  // what grows with the job, beside the Job itself
  std::int64_t end_ns(int rank, std::uint32_t node) const { return end_ns_[node_base_[rank] + node]; }
  std::int64_t start_ns(int rank, std::uint32_t node, const Durations& durations) const {
    const bool waits = static_cast<NodeKind>(job_.view(rank).node_kind[node]) == NodeKind::kWait;
    return waits ? lane_free_ns(rank, node) : end_ns(rank, node) - durations[rank][node];
  }

 private:
  enum class Kind : std::uint8_t { kCompute, kIssue, kWait, kEnd };
  struct Step {
    std::uint32_t node = kNone, first_source = 0, first_post = 0;
    std::uint16_t sources = 0, posts = 0;
    Kind kind = Kind::kEnd;
    bool hands_over = false;  // other lanes may wait for it
  };
  struct Program {                          // of a class
    std::vector<Step> steps;                // lane after lane, each with a kEnd
    std::vector<std::uint32_t> lane_first;  // [lanes] step
    std::vector<std::uint32_t> sources;     // nodes that must have ended
    std::vector<std::uint32_t> posts;       // communications that an issue starts
    std::vector<std::uint32_t> issue_of;    // [comms] node
  };
  struct Lane {
    std::int64_t free_ns = 0;
    std::uint32_t step = 0;
    std::uint32_t waits_for = kNone;  // node of the whole job
  };
  struct Queue {  // of a group's collectives on one rank
    std::uint32_t head = kNone, tail = kNone;
    std::int64_t idle_from[2];  // by worker; kUnset while it is at work and the end is not known
    std::uint32_t at_work[2] = {kNone, kNone};
  };
  static constexpr std::int64_t kUnset = INT64_MIN;
  // In end_ns_, of a transfer that has been posted: not an end yet.
  static std::int64_t posted(std::int64_t at) { return -1 - at; }

  explicit Sweep(const Job& job) : job_(job) {}
  bool make_programs();
  bool make_partners();
  void run_lane(std::uint32_t lane, const Durations& durations);
  void post(std::uint32_t entry, std::int64_t at);
  void take_up(Queue& queue);
  void start(const Collective& collective);
  void finish(std::uint32_t entry, std::int64_t start);
  void ended(std::uint32_t entry);
  void wake(int rank, std::size_t node);
  Queue& queue_of(std::uint32_t entry);
  // When the node's lane had come to it.
  std::int64_t lane_free_ns(int rank, std::uint32_t node) const;
  friend class SweepUpdate;

  const Job& job_;
  std::vector<Program> programs_;
  std::vector<std::size_t> node_base_;  // [world size]
  std::vector<std::uint32_t> node_of_;  // [entries] transfer, of the whole job
  std::vector<std::uint32_t> partner_;  // [entries] of messages
  std::vector<std::int32_t> lane_rank_;
  // Of a run:
  const ServiceTimes* service_ = nullptr;
  std::vector<std::int64_t> end_ns_;             // [nodes]
  std::vector<std::int64_t> transfer_start_ns_;  // [entries]; until then of a collective: taken up
  std::vector<Lane> lanes_;
  std::vector<Queue> queues_;
  std::vector<std::uint32_t> next_in_queue_;  // [entries] while any waits
  std::vector<std::uint32_t> missing_;        // [collectives] members that have not been taken up
  std::vector<std::uint32_t> ready_;          // lanes, the last one first
  std::vector<std::uint32_t> ended_;          // entries
  std::vector<std::int64_t> clock_starts_;
};

}  // namespace prism::engine
