// Says in the program's terms why a replay cannot go on.
#include <fmt/format.h>

#include <string>
#include <unordered_map>

#include "replay/engine.hpp"

namespace prism::engine {
namespace {

constexpr std::size_t kShown = 16;  // ranks, and missing members of one operation

std::string who_is_missing(const Job& job, const Collective& collective, const std::vector<std::int64_t>& taken_up_ns) {
  std::string missing;
  std::size_t count = 0;
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

class Deadlock {
 public:
  explicit Deadlock(const Engine& engine)
      : engine_(engine), job_(engine.job_), rank_of_(engine.lanes_.size(), -1), first_stuck_(job_.ranks.size(), kNone) {
    for (int rank = 0; rank < static_cast<int>(job_.ranks.size()); ++rank) {
      if (job_.ranks[rank].cls < 0) continue;
      for (std::uint32_t l = 0; l < job_.view(rank).lane_name.size(); ++l) {
        const auto lane = job_.ranks[rank].lane_base + l;
        rank_of_[lane] = rank;
        if (!is_stuck(lane)) continue;
        stuck_.push_back(lane);
        if (first_stuck_[rank] == kNone) first_stuck_[rank] = lane;
      }
    }
  }

  // Those who wait for each other in turn come first, each behind the one that waits for it.
  Error explain() {
    auto order = circle();
    std::vector<bool> listed(rank_of_.size());
    for (const auto lane : order) listed[lane] = true;
    for (const auto lane : stuck_)
      if (!listed[lane]) order.push_back(lane);
    std::string text = "replay cannot go on:";
    for (std::size_t i = 0; i < order.size() && i < kShown; ++i) text += "\n  " + describe(order[i]);
    if (order.size() > kShown) text += fmt::format("\n  and {} more", order.size() - kShown);
    return {ErrorCode::kDeadlock, text};
  }

 private:
  bool is_stuck(std::uint32_t lane) const { return engine_.lanes_[lane].node != kNone; }
  bool has_ended(int rank, std::uint32_t node) const { return engine_.end_of(rank, node) != Engine::kUnset; }
  std::uint32_t lane_of(int rank, std::uint32_t node) const {
    return job_.ranks[rank].lane_base + job_.view(rank).node_lane[node];
  }
  std::uint32_t entry_of(int rank, std::uint32_t transfer) const {
    return job_.ranks[rank].entry_base + static_cast<std::uint32_t>(job_.view(rank).node_comm[transfer]);
  }
  bool is_transfer(int rank, std::uint32_t node) const {
    return static_cast<NodeKind>(job_.view(rank).node_kind[node]) == NodeKind::kTransfer;
  }

  // The lane that has to go on first; kNone where that cannot be said.
  std::uint32_t held_by(std::uint32_t lane) {
    const int rank = rank_of_[lane];
    for (const auto source : job_.plan(rank).in[engine_.lanes_[lane].node]) {
      if (has_ended(rank, source)) continue;
      if (!is_transfer(rank, source)) return lane_of(rank, source);
      const auto entry = entry_of(rank, source);
      if (!is_point_to_point(job_.op(entry))) return missing_of(job_.meets[entry]);
      const int peer = job_.peer(entry);
      return peer < 0 ? kNone : first_stuck_[peer];
    }
    return kNone;
  }

  // The lane of the first member that has not joined.
  std::uint32_t missing_of(std::uint32_t index) {
    const auto [known, is_new] = missing_.try_emplace(index, kNone);
    const auto& collective = job_.collectives[index];
    for (std::uint32_t m = 0; is_new && m < collective.size; ++m) {
      const auto member = job_.member_entry[collective.member_base + m];
      if (!is_entry(member) || engine_.taken_up_ns_[member] != Engine::kUnset) continue;
      known->second = lane_of(job_.entry_rank[member], job_.transfer_node(member));
      break;
    }
    return known->second;
  }

  std::vector<std::uint32_t> circle() {
    std::vector<std::uint32_t> come_from(rank_of_.size(), kNone), found;
    for (const auto start : stuck_) {
      auto lane = start;
      while (lane != kNone && is_stuck(lane) && come_from[lane] == kNone) {
        come_from[lane] = start;
        lane = held_by(lane);
      }
      if (lane == kNone || come_from[lane] != start) continue;
      for (auto next = lane; found.empty() || next != lane; next = held_by(next)) found.push_back(next);
      break;
    }
    return found;
  }

  std::string describe(std::uint32_t lane) const {
    const int rank = rank_of_[lane];
    const ClassView& view = job_.view(rank);
    auto text =
        fmt::format("rank {} ({})", rank, job_.graph->string(view.lane_name[lane - job_.ranks[rank].lane_base]));
    const char* separator = " waits for ";
    for (const auto source : job_.plan(rank).in[engine_.lanes_[lane].node]) {
      if (has_ended(rank, source)) continue;
      text += separator;
      separator = ", ";
      text += is_transfer(rank, source) ? describe_communication(rank, entry_of(rank, source))
                                        : fmt::format("node {}, which never ends", source);
    }
    return text;
  }

  std::string describe_communication(int rank, std::uint32_t entry) const {
    const ClassView& view = job_.view(rank);
    const auto c = job_.comm_of(entry);
    const auto op = job_.op(entry);
    const auto group = job_.graph->group_name(job_.graph->group_of_slot(rank, view.comm_group[c]));
    if (op == Op::kSend)
      return fmt::format("send {} to rank {} (group '{}', tag {}): no receive", view.comm_seq[c], job_.peer(entry),
                         group, view.comm_tag[c]);
    if (op == Op::kRecv)
      return fmt::format("recv {} from {} (group '{}', tag {}): no send", view.comm_seq[c],
                         job_.peer(entry) < 0 ? "any rank" : fmt::format("rank {}", job_.peer(entry)), group,
                         view.comm_tag[c]);
    if (engine_.taken_up_ns_[entry] == Engine::kUnset)
      return fmt::format("{} {} of group '{}', queued behind earlier collectives of the group", name(op),
                         view.comm_seq[c], group);
    return fmt::format("{} {} of group '{}': rank {} has not joined", name(op), view.comm_seq[c], group,
                       who_is_missing(job_, job_.collectives[job_.meets[entry]], engine_.taken_up_ns_));
  }

  const Engine& engine_;
  const Job& job_;
  std::vector<std::int32_t> rank_of_;                         // [lanes]
  std::vector<std::uint32_t> first_stuck_;                    // [world size] lane
  std::vector<std::uint32_t> stuck_;                          // lanes
  std::unordered_map<std::uint32_t, std::uint32_t> missing_;  // of collectives, as far as asked for
};

Error Engine::explain_deadlock() const { return Deadlock(*this).explain(); }

}  // namespace prism::engine
