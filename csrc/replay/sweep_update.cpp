// What follows from other durations of some nodes, without the rest.
//
// Ends are the longest paths of a graph without cycle, so that any order in which those that may have changed are
// computed again comes to the same answer; the order of the old times looks at most of them once.
#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_set>

#include "replay/sweep.hpp"

namespace prism::engine {

void Sweep::load(const ServiceTimes& service, const std::vector<std::int64_t>& starts) {
  service_ = &service;
  clock_starts_ = starts;
  end_ns_.assign(node_base_.back(), kUnset);
  transfer_start_ns_.assign(job_.entries, kUnset);
  for (int rank = 0; rank < static_cast<int>(job_.ranks.size()); ++rank) {
    if (job_.ranks[rank].cls < 0) continue;
    const auto timing = job_.timing(rank);
    for (std::uint32_t node = 0; node < timing.start_ns.size(); ++node)
      end_ns_[node_base_[rank] + node] = engine::end_ns(timing, node) - starts[rank];
  }
  for (std::uint32_t entry = 0; entry < job_.entries; ++entry)
    transfer_start_ns_[entry] = end_ns_[node_of_[entry]] - service.duration_ns[entry];
}

class SweepUpdate {
 public:
  SweepUpdate(Sweep& sweep, const Durations& durations)
      : sweep_(sweep), job_(sweep.job_), durations_(durations), neighbours_(job_.classes.size()) {
    for (std::size_t c = 0; c < job_.classes.size(); ++c) {
      const auto& view = job_.views[c];
      auto& [before, after] = neighbours_[c];
      before.assign(view.comm_op.size(), kNone);
      after = before;
      std::vector<std::uint32_t> last(job_.classes[c].queues, kNone);
      for (std::uint32_t comm = 0; comm < view.comm_op.size(); ++comm) {
        if (is_point_to_point(static_cast<Op>(view.comm_op[comm]))) continue;
        auto& previous = last[view.comm_group[comm]];
        before[comm] = previous;
        if (previous != kNone) after[previous] = comm;
        previous = comm;
      }
    }
    idle_.resize(job_.entries);
    for (std::uint32_t entry = 0; entry < job_.entries; ++entry)
      if (in_queue(entry)) idle_[entry] = idle_before(entry);
  }

  std::optional<std::size_t> run(const std::vector<Sweep::NodeOfRank>& changed) {
    for (const auto& [rank, node] : changed) push_node(rank, node);
    // A file may hold what never comes to rest.
    const auto enough = 16 * (sweep_.end_ns_.size() + job_.entries);
    std::size_t visited = 0;
    while (!queue_.empty()) {
      const Cell cell = queue_.top();
      if (visited > enough || cell.at > kLatest) return std::nullopt;
      queue_.pop();
      queued_.erase(cell.id);
      if (cell.rank >= 0) {
        ++visited;
        node(cell.rank, static_cast<std::uint32_t>(cell.id - sweep_.node_base_[cell.rank]));
      } else {
        visited += communication(cell.entry);
      }
    }
    return visited;
  }

 private:
  static constexpr std::int64_t kLatest = 4'000'000'000'000'000'000;  // ns; all durations together are less
  // At one moment: what issues, then what is issued, then what waits for it.
  enum class Turn : std::uint8_t { kIssue, kCommunication, kWait };
  // A node, or (rank -1) all parts of a communication.
  struct Cell {
    std::int64_t at;
    std::uint64_t id;
    std::int32_t rank;
    std::uint32_t entry;
    Turn turn;
    // The earliest comes out of the queue first.
    bool operator<(const Cell& other) const {
      return std::tie(at, turn, id) > std::tie(other.at, other.turn, other.id);
    }
  };
  // When the workers of a queue are free, before the entry is taken up; the first one first.
  struct Idle {
    std::int64_t first = 0, second = 0;
    bool operator==(const Idle&) const = default;
  };
  struct Neighbours {
    std::vector<std::uint32_t> before, after;  // [comms] of the same queue
  };

  bool in_queue(std::uint32_t entry) const { return sweep_.partner_[entry] == kNeverIssued; }
  std::int64_t& end(std::uint32_t entry) { return sweep_.end_ns_[sweep_.node_of_[entry]]; }
  std::uint32_t entry_base(std::uint32_t entry) const { return job_.ranks[job_.entry_rank[entry]].entry_base; }
  const Neighbours& neighbours(std::uint32_t entry) const {
    return neighbours_[job_.ranks[job_.entry_rank[entry]].cls];
  }
  std::int64_t issued(std::uint32_t entry) const {
    const int rank = job_.entry_rank[entry];
    return sweep_.end_ns(rank, sweep_.programs_[job_.ranks[rank].cls].issue_of[job_.comm_of(entry)]);
  }
  Idle idle_before(std::uint32_t entry) {
    const auto before = neighbours(entry).before[job_.comm_of(entry)];
    if (before == kNone) return {0, job_.model.workers > 1 ? 0 : INT64_MAX};
    const auto previous = entry_base(entry) + before;
    return {std::min(idle_[previous].second, end(previous)), std::max(idle_[previous].second, end(previous))};
  }

  void push(Cell cell) {
    if (queued_.insert(cell.id).second) queue_.push(cell);
  }
  void push_node(int rank, std::uint32_t node) {
    const auto id = sweep_.node_base_[rank] + node;
    const bool waits = static_cast<NodeKind>(job_.view(rank).node_kind[node]) == NodeKind::kWait;
    push({sweep_.end_ns_[id], id, rank, kNone, waits ? Turn::kWait : Turn::kIssue});
  }
  void push_communication(std::uint32_t entry) {
    // One number for all its parts: a collective's behind the nodes, a message's that of its first end's transfer.
    if (in_queue(entry)) {
      const auto id = sweep_.node_base_.back() + job_.meets[entry];
      return push({sweep_.transfer_start_ns_[entry], id, -1, entry, Turn::kCommunication});
    }
    const auto first = std::min(entry, sweep_.partner_[entry]);  // kNone is larger
    push({sweep_.transfer_start_ns_[first], sweep_.node_of_[first], -1, first, Turn::kCommunication});
  }
  void push_targets(int rank, std::uint32_t node) {
    const auto& view = job_.view(rank);
    for (const auto target : job_.plan(rank).out[node]) {
      if (static_cast<NodeKind>(view.node_kind[target]) == NodeKind::kTransfer)
        push_communication(job_.ranks[rank].entry_base + static_cast<std::uint32_t>(view.node_comm[target]));
      else
        push_node(rank, target);
    }
  }

  void node(int rank, std::uint32_t node) {
    auto ready = sweep_.lane_free_ns(rank, node);
    for (const auto source : job_.plan(rank).in[node]) ready = std::max(ready, sweep_.end_ns(rank, source));
    const bool waits = static_cast<NodeKind>(job_.view(rank).node_kind[node]) == NodeKind::kWait;
    if (waits)
      ready += sweep_.service_->wake_ups(rank, job_.plan(rank).wait_number[node]);
    else
      ready += durations_[rank][node];
    auto& end = sweep_.end_ns_[sweep_.node_base_[rank] + node];
    if (end == ready) return;
    end = ready;
    const auto next = job_.plan(rank).next_on_lane[node];
    if (next != kNone) push_node(rank, next);
    push_targets(rank, node);
  }

  void set_end(std::uint32_t entry, std::int64_t start) {
    sweep_.transfer_start_ns_[entry] = start;
    const auto at = start + sweep_.service_->duration_ns[entry];
    if (end(entry) == at) return;
    end(entry) = at;
    push_targets(job_.entry_rank[entry], job_.transfer_node(entry));
  }

  // Returns the number of its parts.
  std::size_t communication(std::uint32_t entry) {
    if (!in_queue(entry)) {
      const auto partner = sweep_.partner_[entry];
      const auto start = partner == kNone ? issued(entry) : std::max(issued(entry), issued(partner));
      set_end(entry, start);
      if (partner != kNone) set_end(partner, start);
      return partner == kNone ? 1 : 2;
    }
    const auto& collective = job_.collectives[job_.meets[entry]];
    std::vector<std::int64_t> taken_up(collective.size, Sweep::kUnset);  // counted from the root
    for (std::uint32_t v = 0; v < collective.size; ++v)
      if (const auto member = job_.entry_at(collective, v); is_entry(member))
        taken_up[v] = std::max(issued(member), idle_before(member).first);
    const auto starts = start_times(job_.model.rule(collective.op), taken_up);
    for (std::uint32_t v = 0; v < collective.size; ++v) {
      const auto member = job_.entry_at(collective, v);
      if (!is_entry(member)) continue;
      const auto idle = idle_before(member);
      const bool other_idle = idle_[member] != idle, other_end = end(member) != starts[v] + service(member);
      idle_[member] = idle;
      set_end(member, starts[v]);
      const auto after = neighbours(member).after[job_.comm_of(member)];
      if ((other_idle || other_end) && after != kNone) push_communication(entry_base(member) + after);
    }
    return collective.recorded;
  }
  std::int64_t service(std::uint32_t entry) const { return sweep_.service_->duration_ns[entry]; }

  Sweep& sweep_;
  const Job& job_;
  const Durations& durations_;
  std::vector<Neighbours> neighbours_;  // [classes]
  std::vector<Idle> idle_;              // [entries]
  std::priority_queue<Cell> queue_;
  std::unordered_set<std::uint64_t> queued_;
};

std::optional<std::size_t> Sweep::update(const Durations& durations, const std::vector<NodeOfRank>& changed) {
  const auto& members = job_.member_entry;
  if (std::find(members.begin(), members.end(), kNeverIssued) != members.end()) return std::nullopt;
  return SweepUpdate(*this, durations).run(changed);
}

}  // namespace prism::engine
