// What a sweep knows before it runs: each lane's steps, and who meets whom.
#include <algorithm>
#include <map>

#include "replay/sweep.hpp"

namespace prism::engine {

std::optional<Sweep> Sweep::make(const Job& job) {
  Sweep sweep(job);
  if (job.model.workers > 2 || !sweep.make_programs() || !sweep.make_partners()) return std::nullopt;
  return sweep;
}

bool Sweep::make_programs() {
  for (std::size_t c = 0; c < job_.classes.size(); ++c) {
    const auto& view = job_.views[c];
    const auto& plan = job_.classes[c];
    auto& program = programs_.emplace_back();
    program.issue_of.assign(view.comm_op.size(), kNone);
    struct Latest {
      std::uint32_t lane, comm;
    };
    std::map<std::pair<std::int64_t, std::int64_t>, Latest> latest_of;  // by group, or direction and peer
    for (std::uint32_t lane = 0; lane < plan.lane_first.size(); ++lane) {
      program.lane_first.push_back(static_cast<std::uint32_t>(program.steps.size()));
      for (auto node = plan.lane_first[lane]; node != kNone; node = plan.next_on_lane[node]) {
        const auto kind = static_cast<NodeKind>(view.node_kind[node]);
        Step step{.node = node,
                  .first_source = static_cast<std::uint32_t>(program.sources.size()),
                  .first_post = static_cast<std::uint32_t>(program.posts.size()),
                  .sources = 0,
                  .posts = 0,
                  .kind = kind == NodeKind::kWait    ? Kind::kWait
                          : kind == NodeKind::kIssue ? Kind::kIssue
                                                     : Kind::kCompute};
        const auto sources = plan.in[node];
        if (sources.size() > UINT16_MAX || plan.out[node].size() > UINT16_MAX) return false;
        program.sources.insert(program.sources.end(), sources.begin(), sources.end());
        step.sources = static_cast<std::uint16_t>(sources.size());
        for (const auto target : plan.out[node]) {
          step.hands_over |= view.node_lane[target] != lane;
          if (static_cast<NodeKind>(view.node_kind[target]) != NodeKind::kTransfer) continue;
          if (kind != NodeKind::kIssue) return false;
          const auto comm = static_cast<std::uint32_t>(view.node_comm[target]);
          const auto op = static_cast<Op>(view.comm_op[comm]);
          if (program.issue_of[comm] != kNone || (op == Op::kRecv && view.comm_peer[comm] < 0)) return false;
          program.issue_of[comm] = node;
          const auto key = is_point_to_point(op)
                               ? std::pair<std::int64_t, std::int64_t>(op == Op::kSend ? -1 : -2, view.comm_peer[comm])
                               : std::pair<std::int64_t, std::int64_t>(view.comm_group[comm], 0);
          const auto [latest, is_first] = latest_of.try_emplace(key, lane, comm);
          if (latest->second.lane != lane || (!is_first && comm < latest->second.comm)) return false;
          latest->second.comm = comm;
          program.posts.push_back(comm);
          ++step.posts;
        }
        program.steps.push_back(step);
      }
      program.steps.emplace_back();
    }
  }
  const auto unissued = [](const Program& program) {
    return std::find(program.issue_of.begin(), program.issue_of.end(), kNone) != program.issue_of.end();
  };
  return std::none_of(programs_.begin(), programs_.end(), unissued);
}

// Messages of one source in one mailbox meet in the order of their lanes.
bool Sweep::make_partners() {
  node_base_.assign(job_.ranks.size() + 1, 0);
  for (std::size_t r = 0; r < job_.ranks.size(); ++r) {
    const bool recorded = job_.ranks[r].cls >= 0;
    node_base_[r + 1] = node_base_[r] + (recorded ? job_.plan(static_cast<int>(r)).next_on_lane.size() : 0);
  }
  if (node_base_.back() >= kNeverIssued) return false;
  node_of_.resize(job_.entries);
  partner_.assign(job_.entries, kNeverIssued);
  struct Source {
    std::int32_t rank;
    bool sends;  // of those that wait for their other half
    std::uint32_t head, tail;
  };
  std::vector<std::vector<Source>> waiting(job_.mailboxes);
  std::vector<std::uint32_t> next(job_.entries, kNone);
  for (std::size_t r = 0; r < job_.ranks.size(); ++r) {
    if (job_.ranks[r].cls < 0) continue;
    const int rank = static_cast<int>(r);
    const auto& plan = job_.plan(rank);
    lane_rank_.insert(lane_rank_.end(), plan.lane_first.size(), rank);
    const auto& view = job_.view(rank);
    for (std::uint32_t comm = 0; comm < view.comm_op.size(); ++comm) {
      const auto entry = job_.ranks[r].entry_base + comm;
      if (plan.transfer_of_comm[comm] == kNone) return false;
      node_of_[entry] = static_cast<std::uint32_t>(node_base_[r] + plan.transfer_of_comm[comm]);
      const auto op = static_cast<Op>(view.comm_op[comm]);
      if (!is_point_to_point(op)) continue;
      const int peer = job_.peer(entry);
      partner_[entry] = kNone;
      if (job_.ranks[peer].cls < 0) continue;
      const bool sends = op == Op::kSend;
      auto& sources = waiting[job_.meets[entry]];
      const int from = sends ? rank : peer;
      auto source = std::find_if(sources.begin(), sources.end(), [&](const Source& one) { return one.rank == from; });
      if (source == sources.end()) source = sources.insert(source, {from, sends, kNone, kNone});
      if (source->head == kNone || source->sends == sends) {
        (source->head == kNone ? source->head : next[source->tail]) = entry;
        source->tail = entry;
        source->sends = sends;
        continue;
      }
      const auto other = source->head;
      source->head = other == source->tail ? kNone : next[other];
      partner_[entry] = other;
      partner_[other] = entry;
    }
  }
  for (const auto& sources : waiting)
    for (const auto& source : sources)
      if (source.head != kNone) return false;  // somebody will wait for ever
  return true;
}

}  // namespace prism::engine
