#include "replay/class_program.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "replay/job.hpp"

namespace prism::engine {
namespace {

class Compiler {
 public:
  Compiler(const ClassView& view, const ClassPlan& plan, const Period* period)
      : view_(view), plan_(plan), period_(period), step_of_(view.node_kind.size(), kNone) {}

  ClassProgram run() && {
    number_steps();
    make_comms();
    for (std::uint32_t step = 0; step < program_.steps.size(); ++step) fill(program_.steps[step]);
    for (const auto& lane : program_.lanes) look_ahead(lane);
    return std::move(program_);
  }

 private:
  NodeKind kind(std::uint32_t node) const { return static_cast<NodeKind>(view_.node_kind[node]); }
  Period::Region region(std::uint32_t node) const { return period_ ? period_->region[node] : Period::kBefore; }
  bool is_on_lane(std::uint32_t node) const { return kind(node) != NodeKind::kTransfer; }
  bool is_on_lane_of(std::uint32_t source, std::uint32_t target) const {
    return is_on_lane(source) && view_.node_lane[source] == view_.node_lane[target];
  }
  // In one round, and by the order of the lane alone.
  bool follows_anyway(std::uint32_t source, std::uint32_t target) const {
    return is_on_lane_of(source, target) && step_of_[source] < step_of_[target];
  }
  void number_steps() {
    for (const auto first : plan_.lane_first) {
      const auto begin = static_cast<std::uint32_t>(program_.steps.size());
      LanePlan lane{.first = begin, .period_first = begin, .period_end = begin};
      for (auto node = first; node != kNone; node = plan_.next_on_lane[node]) {
        const auto step = static_cast<std::uint32_t>(program_.steps.size());
        step_of_[node] = step;
        if (region(node) == Period::kBefore) lane.period_first = lane.period_end = step + 1;
        if (region(node) == Period::kRepeated) lane.period_end = step + 1;
        program_.steps.push_back({.node = node, .kind = step_kind(node)});
      }
      program_.steps.emplace_back();
      program_.lanes.push_back(lane);
    }
  }
  StepKind step_kind(std::uint32_t node) const {
    if (kind(node) == NodeKind::kIssue) return StepKind::kIssue;
    return kind(node) == NodeKind::kWait ? StepKind::kWait : StepKind::kCompute;
  }

  void make_comms() {
    std::map<std::tuple<std::uint32_t, Op, std::int32_t, std::int32_t>, std::uint32_t> per_round;
    std::vector<std::uint32_t> on_lane(program_.lanes.size(), 0);
    const auto stream = [&](std::uint32_t c) {
      const auto op = static_cast<Op>(view_.comm_op[c]);
      return is_point_to_point(op) ? std::tuple(view_.comm_group[c], op, view_.comm_peer[c], view_.comm_tag[c])
                                   : std::tuple(view_.comm_group[c], Op::kNone, 0, 0);
    };
    for (std::uint32_t c = 0; c < view_.comm_op.size(); ++c) {
      CommPlan comm{.seq = view_.comm_seq[c],
                    .input_bytes = view_.comm_input_bytes[c],
                    .output_bytes = view_.comm_output_bytes[c],
                    .transfer = plan_.transfer_of_comm[c],
                    .group = view_.comm_group[c],
                    .peer = view_.comm_peer[c],
                    .tag = view_.comm_tag[c],
                    .op = static_cast<Op>(view_.comm_op[c])};
      if (comm.transfer != kNone) {
        comm.lane = view_.node_lane[comm.transfer];
        comm.ordinal = on_lane[comm.lane]++;
        comm.region = region(comm.transfer);
        for (const auto source : plan_.in[comm.transfer]) comm.issues += kind(source) == NodeKind::kIssue;
        if (comm.region == Period::kRepeated) ++per_round[stream(c)], ++program_.lanes[comm.lane].comms_per_round;
      }
      comm.first_target = static_cast<std::uint32_t>(program_.targets.size());
      if (comm.transfer != kNone) add_targets(comm.transfer);
      program_.comms.push_back(comm);
    }
    program_.comms.push_back({.first_target = static_cast<std::uint32_t>(program_.targets.size())});
    for (std::uint32_t c = 0; period_ && c < view_.comm_op.size(); ++c)
      if (auto& comm = program_.comms[c]; comm.region != Period::kBefore)
        if (const auto known = per_round.find(stream(c)); known != per_round.end()) comm.seq_per_round = known->second;
  }

  void fill(Step& step) {
    step.first_target = static_cast<std::uint32_t>(program_.targets.size());
    step.first_post = static_cast<std::uint32_t>(program_.posts.size());
    if (step.kind == StepKind::kEnd) return;
    if (step.kind == StepKind::kWait) step.place = plan_.wait_number[step.node];
    add_targets(step.node);
    for (const auto target : plan_.out[step.node])
      if (step.kind == StepKind::kIssue && kind(target) == NodeKind::kTransfer)
        program_.posts.push_back(static_cast<std::uint32_t>(view_.node_comm[target]));
    step.repeated = region(step.node) == Period::kRepeated;
    for (auto e = plan_.in.first[step.node]; e < plan_.in.first[step.node + 1]; ++e) {
      const auto source = plan_.in.to[e];
      step.sources += !follows_anyway(source, step.node);
      if (!step.repeated) continue;
      step.sources_again += region(source) == Period::kRepeated
                                ? !follows_anyway(source, step.node)
                                : period_->carried[e] && !is_on_lane_of(source, step.node);
    }
    if (!step.repeated) return;
    if (step.kind != StepKind::kWait) step.place = period_->place[step.node];
    step.iteration = static_cast<std::uint16_t>(period_->iteration[step.node]);
  }

  void add_targets(std::uint32_t node) {
    const auto add = [&](std::uint32_t target, Target::When when) {
      program_.targets.push_back({step_of_[target], view_.node_lane[target], when});
    };
    const bool repeated = region(node) == Period::kRepeated;
    for (const auto target : plan_.out[node])
      if (is_on_lane(target) && !follows_anyway(node, target))
        add(target, repeated && region(target) == Period::kAfter ? Target::kAfterLast : Target::kSameRound);
    const auto before = repeated ? period_->before[node] : kNone;
    if (before == kNone) return;
    for (const auto target : plan_.out[before])
      if (is_on_lane(target) && region(target) == Period::kRepeated && !is_on_lane_of(before, target) &&
          is_carried(before, target))
        add(target, Target::kNextRound);
  }
  bool is_carried(std::uint32_t source, std::uint32_t target) const {
    for (auto e = plan_.in.first[target]; e < plan_.in.first[target + 1]; ++e)
      if (plan_.in.to[e] == source) return period_->carried[e];
    return false;
  }

  void look_ahead(const LanePlan& lane) {
    for (auto s = lane.first; program_.steps[s].kind != StepKind::kEnd; ++s) {
      auto& step = program_.steps[s];
      step.ends_round = step.repeated && s + 1 == lane.period_end;
      step.begins_iteration =
          step.repeated && (s == lane.period_first || step.iteration != program_.steps[s - 1].iteration);
      if (s == lane.first || s == lane.period_first) continue;
      const auto& previous = program_.steps[s - 1];
      const auto posts = program_.posts_of(previous);
      step.at_once = true;
      for (const auto source : plan_.in[step.node]) {
        const bool posted = kind(source) == NodeKind::kTransfer &&
                            std::find(posts.begin(), posts.end(), view_.node_comm[source]) != posts.end() &&
                            program_.comms[view_.node_comm[source]].issues == 1;
        step.at_once = step.at_once && (posted || follows_anyway(source, step.node));
      }
    }
  }

  const ClassView& view_;
  const ClassPlan& plan_;
  const Period* period_;
  std::vector<std::uint32_t> step_of_;  // [nodes]
  ClassProgram program_;
};

}  // namespace

ClassProgram compile(const ClassView& view, const ClassPlan& plan, const Period* period) {
  return Compiler(view, plan, period).run();
}

std::size_t ClassProgram::bytes() const {
  return steps.capacity() * sizeof(Step) + lanes.capacity() * sizeof(LanePlan) + targets.capacity() * sizeof(Target) +
         posts.capacity() * sizeof(std::uint32_t) + comms.capacity() * sizeof(CommPlan);
}

}  // namespace prism::engine
