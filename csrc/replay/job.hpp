// A graph prepared for execution: adjacency per class, and for each rank's communications who they meet.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph.hpp"
#include "replay/class_program.hpp"
#include "replay/progress_model.hpp"
#include "replay/provenance.hpp"

namespace prism::engine {

inline constexpr std::uint32_t kNone = 0xffffffffu;
// In place of an entry: the member's rank is not in the graph and is taken to come in time, or it never issues this.
inline constexpr std::uint32_t kNotRecorded = kNone, kNeverIssued = kNone - 1;
inline bool is_entry(std::uint32_t entry) { return entry < kNeverIssued; }

// Compressed adjacency: targets of i are to[first[i]..first[i + 1]).
struct Adjacency {
  std::vector<std::uint32_t> first, to;
  std::span<const std::uint32_t> operator[](std::size_t i) const {
    return {to.data() + first[i], to.data() + first[i + 1]};
  }
};

inline std::int64_t end_ns(const TimingView& timing, std::uint32_t node) {
  return timing.start_ns[node] + timing.duration_ns[node];
}

struct ClassPlan {
  Adjacency in, out;                            // edges by node
  std::vector<std::uint32_t> next_on_lane;      // [nodes], transfers left out
  std::vector<std::uint32_t> before_on_lane;    // [nodes]
  std::vector<std::uint32_t> lane_first;        // [lanes]
  std::vector<std::uint32_t> transfer_of_comm;  // [comms]: node, or kNone
  std::vector<std::uint32_t> wait_number;       // [nodes] of waits: among the class's
  Adjacency collectives;                        // of each group slot by number: communications
  std::uint32_t queues = 0;                     // group slots: one queue of collectives each
  bool any_source = false;                      // receives
};

// An entry is one rank's part in one communication: entry_base of the rank + index of the communication.
struct RankPlan {
  int cls = -1;
  std::uint32_t entry_base = 0, lane_base = 0, queue_base = 0;
};

struct Collective {
  std::uint32_t group = 0;
  std::uint32_t member_base = 0;  // of Job::member_entry
  std::uint32_t size = 0;         // members
  std::uint32_t recorded = 0;     // members whose rank is in the graph
  std::int32_t root = 0;          // group rank
  Op op = Op::kNone;
};

struct Job {
  const ExecutionGraph* graph = nullptr;
  ProgressModel model;
  std::vector<ClassPlan> classes;
  std::vector<ClassProgram> programs;      // [classes]
  std::vector<RankPlan> ranks;             // [world size]
  std::vector<std::uint32_t> group_of;     // [queues]
  std::vector<std::uint32_t> own_member;   // [queues] group rank
  std::vector<std::uint32_t> in_graph_of;  // [groups] members whose rank is in the graph
  std::uint32_t entries = 0, lanes = 0, queues = 0, mailboxes = 0;

  // What is as large as the communications of all ranks. Engine does without, see forget_entries().
  std::vector<std::uint32_t> meets;         // [entries]: index of the collective, or of the mailbox of a message
  std::vector<std::int32_t> entry_rank;     // [entries]
  std::vector<std::uint32_t> entry_member;  // [entries]: own group rank, in collectives
  std::vector<Collective> collectives;
  std::vector<std::uint32_t> member_entry;  // entries of a collective by group rank
  std::uint32_t unmet = 0;                  // collectives with ranks that are not in the graph

  std::vector<ClassView> views;     // [classes]
  std::vector<TimingView> timings;  // [world size]
  Provenance provenance;
  // [world size] Of slices, what `timings` looks at: from the rank's first node on, waits and transfers 0.
  std::vector<std::vector<std::int64_t>> slice_start_ns, slice_duration_ns;

  const ClassView& view(int rank) const { return views[ranks[rank].cls]; }
  TimingView timing(int rank) const { return timings[rank]; }
  const ClassPlan& plan(int rank) const { return classes[ranks[rank].cls]; }
  std::uint32_t comm_of(std::uint32_t entry) const { return entry - ranks[entry_rank[entry]].entry_base; }
  Op op(std::uint32_t entry) const { return static_cast<Op>(view(entry_rank[entry]).comm_op[comm_of(entry)]); }
  std::uint32_t transfer_node(std::uint32_t entry) const {
    return plan(entry_rank[entry]).transfer_of_comm[comm_of(entry)];
  }
  // The entry of a member, counted from the root.
  std::uint32_t entry_at(const Collective& c, std::uint32_t from_root) const {
    return member_entry[c.member_base + (from_root + static_cast<std::uint32_t>(c.root)) % c.size];
  }
  // Rank of a message's peer; -1 for any source.
  int peer(std::uint32_t entry) const {
    int rank = entry_rank[entry];
    std::int32_t slot = view(rank).comm_peer[comm_of(entry)];
    return slot < 0 ? -1 : graph->rank_of_peer_slot(rank, static_cast<std::uint32_t>(slot));
  }
};

// The graph outlives the job.
Result<Job> prepare(const ExecutionGraph& graph);
// Frees the columns that are as large as the communications of all ranks: for an engine that runs for long.
void forget_entries(Job& job);

}  // namespace prism::engine
