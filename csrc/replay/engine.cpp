#include "replay/engine.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace prism::engine {

Engine::Engine(const Job& job, const Durations& durations, const ServiceTimes& service, Carrier& carrier)
    : timelines(job.ranks.size()),
      transfer_start_ns(job.entries, kUnset),
      job_(job),
      durations_(durations),
      service_(service),
      carrier_(carrier),
      taken_up_ns_(job.entries, kUnset),
      next_in_queue_(job.entries, kNone),
      lanes_(job.lanes),
      queues_(job.queues, Queue{.idle_workers = job.model.workers}),
      mailboxes_(job.mailboxes),
      outside_(job.ranks.size()),
      clock_starts_(clock_starts(job)) {
  for (const Collective& collective : job.collectives) still_missing_.push_back(collective.recorded);
}

Result<void> Engine::run(const std::vector<std::vector<int>>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) PRISM_RETURN_IF_ERROR(carrier_.start_over());
    begin(parts[i], {});
    PRISM_RETURN_IF_ERROR(go_on(INT64_MAX));
    overdue_ = overdue_ || carrier_.overdue();
  }
  return finished();
}

void Engine::begin(const std::vector<int>& ranks, const std::vector<int>& outside) {
  for (const int rank : outside) {
    outside_[rank] = true;
    prepare_lanes(rank);
  }
  for (const int rank : ranks)
    if (!outside_[rank]) start_lanes(rank, clock_starts_[rank]);
}

Result<void> Engine::finished() const {
  for (const Lane& lane : lanes_)
    if (lane.node != kNone)
      return overdue_ || carrier_.overdue() ? Error{ErrorCode::kInvalidInput,
                                                    "transfers take longer than the 106 days that the clock of a "
                                                    "network shows"}
                                            : explain_deadlock();
  return {};
}

Result<void> Engine::arrived(int rank, std::uint32_t comm, std::int64_t at_ns) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= outside_.size() || !outside_[rank])
    return Error{ErrorCode::kInvalidInput, fmt::format("rank {} is not one from outside", rank)};
  const auto comms = job_.view(rank).comm_op.size();
  if (comm >= comms)
    return Error{ErrorCode::kInvalidInput, fmt::format("rank {}: communication {}; accepted: 0 to {}", rank, comm,
                                                       static_cast<std::int64_t>(comms) - 1)};
  const auto entry = job_.ranks[rank].entry_base + comm;
  if (timelines[rank].start_ns[job_.transfer_node(entry)] != kUnset)
    return Error{ErrorCode::kInvalidInput, fmt::format("rank {}: communication {} is issued twice", rank, comm)};
  enqueue(entry, at_ns);
  return {};
}

Result<void> Engine::advance(std::int64_t until_ns, std::vector<Released>& released) {
  const auto result = go_on(until_ns);
  released.insert(released.end(), released_.begin(), released_.end());
  released_.clear();
  return result;
}

Result<void> Engine::go_on(std::int64_t until_ns) {
  for (;;) {
    for (const auto& [entry, at_ns] : ended_) events_.push({at_ns, job_.entry_rank[entry], Kind::kTransferEnd, entry});
    ended_.clear();
    if (!released_.empty()) until_ns = std::min(until_ns, released_.back().at_ns + 1);
    PRISM_RETURN_IF_ERROR(carrier_.advance(std::min(events_.next(), until_ns), ended_));
    if (!ended_.empty()) continue;
    if (events_.empty() || events_.next() >= until_ns) return {};
    const Event event = events_.pop();
    if (event.kind == Kind::kIssued)
      issued(event.rank, event.index, event.at);
    else
      transfer_ended(event.index, event.at);
    resume_lanes(event.rank);
  }
}

void Engine::prepare_lanes(int rank) {
  const std::size_t nodes = job_.plan(rank).next_on_lane.size();
  timelines[rank].start_ns.assign(nodes, kUnset);
  timelines[rank].duration_ns.assign(nodes, 0);
}

// A lane starts where the record has its first node.
void Engine::start_lanes(int rank, std::int64_t clock_start) {
  prepare_lanes(rank);
  const ClassPlan& plan = job_.plan(rank);
  for (std::uint32_t l = 0; l < plan.lane_first.size(); ++l) {
    std::uint32_t node = plan.lane_first[l];
    Lane& lane = lanes_[job_.ranks[rank].lane_base + l];
    lane.node = node;
    if (node != kNone && plan.in[node].empty()) lane.free_ns = job_.timing(rank).start_ns[node] - clock_start;
    resumed_.push_back(l);
  }
  resume_lanes(rank);
}

std::int64_t Engine::end_of(int rank, std::uint32_t node) const {
  const auto& timeline = timelines[rank];
  return timeline.start_ns[node] == kUnset || timeline.duration_ns[node] < 0
             ? kUnset
             : timeline.start_ns[node] + timeline.duration_ns[node];
}

void Engine::resume_lanes(int rank) {
  while (!resumed_.empty()) {
    std::uint32_t lane = resumed_.back();
    resumed_.pop_back();
    advance(rank, lane);
  }
}

// Executes the lane's nodes until it has to wait for an event.
void Engine::advance(int rank, std::uint32_t index) {
  const ClassView& view = job_.view(rank);
  const ClassPlan& plan = job_.plan(rank);
  auto durations = durations_[rank];
  auto& timeline = timelines[rank];
  Lane& lane = lanes_[job_.ranks[rank].lane_base + index];
  while (lane.node != kNone) {
    std::uint32_t node = lane.node;
    std::int64_t ready = lane.free_ns;
    lane.blocked_on = 0;
    for (std::uint32_t source : plan.in[node]) {
      std::int64_t end = end_of(rank, source);
      if (end == kUnset) ++lane.blocked_on;
      ready = std::max(ready, end);
    }
    if (lane.blocked_on > 0) return;
    auto kind = static_cast<NodeKind>(view.node_kind[node]);
    if (kind == NodeKind::kWait) {
      timeline.start_ns[node] = lane.free_ns;
      end_node(rank, index, node, ready + wake_up_ns(job_, service_, rank, node));
    } else if (kind == NodeKind::kCompute) {
      timeline.start_ns[node] = ready;
      end_node(rank, index, node, ready + durations[node]);
    } else {
      timeline.start_ns[node] = ready;
      timeline.duration_ns[node] = -1;  // in progress
      events_.push({ready + durations[node], rank, Kind::kIssued, index});
      return;
    }
  }
}

void Engine::end_node(int rank, std::uint32_t index, std::uint32_t node, std::int64_t at_ns) {
  auto& timeline = timelines[rank];
  timeline.duration_ns[node] = at_ns - timeline.start_ns[node];
  Lane& lane = lanes_[job_.ranks[rank].lane_base + index];
  lane.free_ns = at_ns;
  lane.node = job_.plan(rank).next_on_lane[node];
  source_ended(rank, node);
}

void Engine::source_ended(int rank, std::uint32_t node) {
  const ClassView& view = job_.view(rank);
  for (std::uint32_t target : job_.plan(rank).out[node]) {
    std::uint16_t index = view.node_lane[target];
    Lane& lane = lanes_[job_.ranks[rank].lane_base + index];
    if (lane.node == target && lane.blocked_on > 0 && --lane.blocked_on == 0) resumed_.push_back(index);
  }
}

void Engine::issued(int rank, std::uint32_t index, std::int64_t at_ns) {
  const RankPlan& plan = job_.ranks[rank];
  const ClassView& view = job_.view(rank);
  std::uint32_t node = lanes_[plan.lane_base + index].node;
  end_node(rank, index, node, at_ns);
  for (std::uint32_t target : job_.plan(rank).out[node])
    if (static_cast<NodeKind>(view.node_kind[target]) == NodeKind::kTransfer)
      enqueue(plan.entry_base + static_cast<std::uint32_t>(view.node_comm[target]), at_ns);
  resumed_.push_back(index);
}

}  // namespace prism::engine
