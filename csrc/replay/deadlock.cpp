// Says in the program's terms why a replay cannot go on.
#include <fmt/format.h>

#include <string>

#include "replay/engine.hpp"

namespace prism::engine {
namespace {

constexpr int kShown = 16;  // ranks, and missing members of one operation

std::string who_is_missing(const Job& job, const Collective& collective, const std::vector<std::int64_t>& taken_up_ns) {
  std::string missing;
  int count = 0;
  auto members = job.graph->group_members(collective.group);
  for (std::uint32_t m = 0; m < collective.size; ++m) {
    std::uint32_t entry = job.member_entry[collective.member_base + m];
    if (is_entry(entry) ? taken_up_ns[entry] != INT64_MIN : entry == kNotRecorded) continue;
    if (count++ < kShown) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", members[m]);
  }
  if (count > kShown) missing += fmt::format(" and {} more", count - kShown);
  return missing;
}

}  // namespace

Error Engine::explain_deadlock() const {
  const ExecutionGraph& graph = *job_.graph;
  std::string text = "replay cannot go on:";
  int stuck = 0;
  for (int rank = 0; rank < graph.world_size(); ++rank) {
    const RankPlan& plan = job_.ranks[rank];
    if (plan.cls < 0) continue;
    const ClassView& view = job_.view(rank);
    for (std::size_t l = 0; l < view.lane_name.size(); ++l) {
      const Lane& lane = lanes_[plan.lane_base + l];
      if (lane.node == kNone || ++stuck > kShown) continue;
      text += fmt::format("\n  rank {} ({})", rank, graph.string(view.lane_name[l]));
      const char* separator = " waits for ";
      for (std::uint32_t source : job_.plan(rank).in[lane.node]) {
        if (end_of(rank, source) != kUnset) continue;
        text += separator;
        separator = ", ";
        if (static_cast<NodeKind>(view.node_kind[source]) != NodeKind::kTransfer) {
          text += fmt::format("node {}, which never ends", source);
          continue;
        }
        auto c = static_cast<std::uint32_t>(view.node_comm[source]);
        std::uint32_t entry = plan.entry_base + c;
        auto op = static_cast<Op>(view.comm_op[c]);
        auto group = graph.group_name(graph.group_of_slot(rank, view.comm_group[c]));
        if (op == Op::kSend)
          text += fmt::format("send {} to rank {} (group '{}', tag {}): no receive", view.comm_seq[c], job_.peer(entry),
                              group, view.comm_tag[c]);
        else if (op == Op::kRecv)
          text += fmt::format("recv {} from {} (group '{}', tag {}): no send", view.comm_seq[c],
                              job_.peer(entry) < 0 ? "any rank" : fmt::format("rank {}", job_.peer(entry)), group,
                              view.comm_tag[c]);
        else if (taken_up_ns_[entry] == kUnset)
          text += fmt::format("{} {} of group '{}', queued behind earlier collectives of the group", name(op),
                              view.comm_seq[c], group);
        else
          text += fmt::format("{} {} of group '{}': rank {} has not joined", name(op), view.comm_seq[c], group,
                              who_is_missing(job_, job_.collectives[job_.meets[entry]], taken_up_ns_));
      }
    }
  }
  if (stuck > kShown) text += fmt::format("\n  and {} more", stuck - kShown);
  return {ErrorCode::kDeadlock, text};
}

}  // namespace prism::engine
