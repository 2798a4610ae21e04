// Says in the program's terms why a replay cannot go on.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "replay/engine.hpp"

namespace prism::engine {
namespace {

constexpr std::size_t kShown = 16;  // ranks, and missing members of one operation

}  // namespace

class Deadlock {
 public:
  explicit Deadlock(const Engine& engine)
      : engine_(engine),
        in_flight_(engine.in_flight_),
        job_(engine.job_),
        rank_of_(engine.lanes_.size(), -1),
        first_stuck_(job_.ranks.size(), kNone) {
    in_flight_.for_each_part([&](std::uint32_t part) {
      const auto& own = in_flight_[part];
      if (!own.ended) part_of_[{own.rank, own.comm, own.round}] = part;
    });
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
  // What a step needs, in which round.
  struct Source {
    std::uint32_t node, round;
  };
  const ClassProgram& program_of(std::uint32_t lane) const { return in_flight_.program(rank_of_[lane]); }
  const Step& step_of(std::uint32_t lane) const { return program_of(lane).steps[engine_.lanes_[lane].step]; }
  bool is_stuck(std::uint32_t lane) const {
    return engine_.lanes_[lane].step != kNone && step_of(lane).kind != StepKind::kEnd;
  }
  std::uint32_t lane_of(int rank, std::uint32_t node) const {
    return job_.ranks[rank].lane_base + job_.view(rank).node_lane[node];
  }
  bool is_transfer(int rank, std::uint32_t node) const {
    return static_cast<NodeKind>(job_.view(rank).node_kind[node]) == NodeKind::kTransfer;
  }
  std::uint32_t comm_of(int rank, std::uint32_t node) const {
    return static_cast<std::uint32_t>(job_.view(rank).node_comm[node]);
  }
  // kNone: it has not been issued, or has ended.
  std::uint32_t part_of(int rank, const Source& source) const {
    const auto known = part_of_.find({rank, comm_of(rank, source.node), source.round});
    return known == part_of_.end() ? kNone : known->second;
  }

  std::vector<Source> sources(std::uint32_t lane) const {
    const int rank = rank_of_[lane];
    std::vector<Source> found;
    if (!engine_.options_.loop) {
      for (const auto node : job_.plan(rank).in[step_of(lane).node]) found.push_back({node, 0});
      return found;
    }
    const auto& program = in_flight_.program(rank);
    for (const auto& step : program.steps)
      if (step.kind != StepKind::kEnd) add_source(lane, step.node, step.repeated, program.targets_of(step), found);
    for (std::size_t c = 0; c + 1 < program.comms.size(); ++c) {
      const auto& comm = program.comms[c];
      add_source(lane, comm.transfer, comm.region == Period::kRepeated, program.targets_of(comm), found);
    }
    return found;
  }
  void add_source(std::uint32_t lane, std::uint32_t node, bool is_repeated, std::span<const Target> targets,
                  std::vector<Source>& found) const {
    const auto& at = engine_.lanes_[lane];
    for (const auto& target : targets) {
      if (target.step != at.step) continue;
      if (target.when == Target::kAfterLast) found.push_back({node, static_cast<std::uint32_t>(engine_.rounds_ - 1)});
      if (target.when == Target::kSameRound && (is_repeated || at.round == 0)) found.push_back({node, at.round});
      if (target.when == Target::kNextRound && at.round > 0) found.push_back({node, at.round - 1});
    }
  }

  bool has_been_run(int rank, const Source& source) const {
    const auto& lane = engine_.lanes_[lane_of(rank, source.node)];
    const auto& program = in_flight_.program(rank);
    const auto& plan = program.lanes[job_.view(rank).node_lane[source.node]];
    auto step = plan.first;
    while (program.steps[step].node != source.node) ++step;
    const bool repeated = step >= plan.period_first && step < plan.period_end;
    if (repeated && lane.step >= plan.period_first && lane.step < plan.period_end && lane.round != source.round)
      return lane.round > source.round;
    return lane.step != kNone && lane.step > step;
  }
  bool has_ended(int rank, const Source& source) const {
    if (!is_transfer(rank, source.node)) return has_been_run(rank, source);
    if (part_of(rank, source) != kNone) return false;
    const auto issues = job_.plan(rank).in[source.node];
    return std::any_of(issues.begin(), issues.end(), [&](auto issue) {
      return static_cast<NodeKind>(job_.view(rank).node_kind[issue]) == NodeKind::kIssue &&
             has_been_run(rank, {issue, source.round});
    });
  }

  // The lane that has to go on first; kNone where that cannot be said.
  std::uint32_t held_by(std::uint32_t lane) {
    const int rank = rank_of_[lane];
    for (const auto& source : sources(lane)) {
      if (has_ended(rank, source)) continue;
      if (!is_transfer(rank, source.node)) return lane_of(rank, source.node);
      const auto comm = comm_of(rank, source.node);
      const auto& plan = in_flight_.program(rank).comms[comm];
      if (!is_point_to_point(plan.op)) {
        return missing_of(in_flight_.group(rank, plan), in_flight_.seq(rank, comm, source.round));
      }
      return plan.peer < 0 ? kNone : first_stuck_[peer(rank, plan)];
    }
    return kNone;
  }
  int peer(int rank, const CommPlan& plan) const {
    return job_.graph->rank_of_peer_slot(rank, static_cast<std::uint32_t>(plan.peer));
  }

  // Members of the graph that have not been taken up for a collective.
  template <typename Visit>
  void for_each_missing(std::uint32_t group, std::int64_t seq, Visit&& visit) const {
    const auto index = in_flight_.find(group, seq);
    const auto members = job_.graph->group_members(group);
    for (std::uint32_t m = 0; m < members.size(); ++m)
      if (job_.ranks[members[m]].cls >= 0 &&
          (index == kNone || !is_entry(in_flight_.member(in_flight_.meeting(index), m))))
        visit(members[m]);
  }

  // The lane of the first member that has not joined.
  std::uint32_t missing_of(std::uint32_t group, std::int64_t seq) {
    const auto [known, is_new] = missing_.try_emplace({group, seq}, kNone);
    if (!is_new) return known->second;
    for_each_missing(group, seq, [&](int rank) {
      if (known->second != kNone) return;
      const auto place = in_flight_.place_of(group, seq, rank);
      const auto transfer = place ? in_flight_.program(rank).comms[place->comm].transfer : kNone;
      if (transfer != kNone) known->second = lane_of(rank, transfer);
    });
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
    for (const auto& source : sources(lane)) {
      if (has_ended(rank, source)) continue;
      text += separator;
      separator = ", ";
      text += is_transfer(rank, source.node) ? describe_communication(rank, source)
                                             : fmt::format("node {}, which never ends", source.node);
    }
    return text;
  }

  std::string describe_communication(int rank, const Source& source) const {
    const auto comm = comm_of(rank, source.node);
    const auto& plan = in_flight_.program(rank).comms[comm];
    const auto group = job_.graph->group_name(in_flight_.group(rank, plan));
    const auto number = in_flight_.seq(rank, comm, source.round);
    if (plan.op == Op::kSend)
      return fmt::format("send {} to rank {} (group '{}', tag {}): no receive", number, peer(rank, plan), group,
                         plan.tag);
    if (plan.op == Op::kRecv)
      return fmt::format("recv {} from {} (group '{}', tag {}): no send", number,
                         plan.peer < 0 ? "any rank" : fmt::format("rank {}", peer(rank, plan)), group, plan.tag);
    const auto part = part_of(rank, source);
    if (part == kNone || in_flight_[part].taken_up_ns == kUnset)
      return fmt::format("{} {} of group '{}', queued behind earlier collectives of the group", name(plan.op), number,
                         group);
    std::string who;
    std::size_t count = 0;
    for_each_missing(in_flight_.group(rank, plan), number, [&](int member) {
      if (count++ < kShown) who += fmt::format("{}{}", who.empty() ? "" : ", ", member);
    });
    if (count > kShown) who += fmt::format(" and {} more", count - kShown);
    return fmt::format("{} {} of group '{}': rank {} has not joined", name(plan.op), number, group, who);
  }

  const Engine& engine_;
  const InFlight& in_flight_;
  const Job& job_;
  std::vector<std::int32_t> rank_of_;                                        // [lanes]
  std::vector<std::uint32_t> first_stuck_;                                   // [world size] lane
  std::vector<std::uint32_t> stuck_;                                         // lanes
  std::map<std::pair<std::uint32_t, std::int64_t>, std::uint32_t> missing_;  // of collectives, as far as asked for
  std::map<std::tuple<std::int32_t, std::uint32_t, std::uint32_t>, std::uint32_t> part_of_;  // by rank, comm, round
};

Error Engine::explain_deadlock() const { return Deadlock(*this).explain(); }

}  // namespace prism::engine
