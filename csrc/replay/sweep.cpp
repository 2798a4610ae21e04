#include "replay/sweep.hpp"

#include <algorithm>

namespace prism::engine {

Sweep::Queue& Sweep::queue_of(std::uint32_t entry) {
  const int rank = job_.entry_rank[entry];
  return queues_[job_.ranks[rank].queue_base + job_.view(rank).comm_group[job_.comm_of(entry)]];
}

bool Sweep::run(const Durations& durations, const ServiceTimes& service, const std::vector<std::int64_t>& starts) {
  service_ = &service;
  clock_starts_ = starts;
  end_ns_.assign(node_base_.back(), kUnset);
  transfer_start_ns_.assign(job_.entries, kUnset);
  lanes_.assign(job_.lanes, {});
  Queue queue;
  queue.idle_from[0] = 0;
  queue.idle_from[1] = job_.model.workers > 1 ? 0 : INT64_MAX;
  queues_.assign(job_.queues, queue);
  next_in_queue_.clear();
  missing_.clear();
  for (const auto& collective : job_.collectives) missing_.push_back(collective.recorded);
  ready_.clear();
  for (int rank = static_cast<int>(job_.ranks.size()) - 1; rank >= 0; --rank) {
    if (job_.ranks[rank].cls < 0) continue;
    const auto& plan = job_.plan(rank);
    for (auto l = static_cast<std::uint32_t>(plan.lane_first.size()); l-- > 0;) {
      const auto index = job_.ranks[rank].lane_base + l;
      const auto node = plan.lane_first[l];
      lanes_[index].step = programs_[job_.ranks[rank].cls].lane_first[l];
      if (node != kNone && plan.in[node].empty())
        lanes_[index].free_ns = job_.timing(rank).start_ns[node] - starts[rank];
      ready_.push_back(index);
    }
  }
  for (;;) {
    if (!ended_.empty()) {
      const auto entry = ended_.back();
      ended_.pop_back();
      ended(entry);
    } else if (!ready_.empty()) {
      const auto lane = ready_.back();
      ready_.pop_back();
      if (lanes_[lane].waits_for == kNone) run_lane(lane, durations);
    } else {
      break;
    }
  }
  for (std::size_t c = 0; c < missing_.size(); ++c)  // parts of a star or a tree end without those that never come
    if (missing_[c] > 0 && job_.model.rule(job_.collectives[c].op) != StartRule::kLastMember) return false;
  return std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.waits_for == kNone; });
}

// Executes the lane's nodes up to one that needs what is not known yet.
void Sweep::run_lane(std::uint32_t index, const Durations& durations) {
  const int rank = lane_rank_[index];
  const auto& program = programs_[job_.ranks[rank].cls];
  const auto entry_base = job_.ranks[rank].entry_base;
  const auto node_base = node_base_[rank];
  auto* const end_ns = end_ns_.data() + node_base;
  const auto* const duration_ns = durations[rank].data();
  const bool timed = job_.graph->timed();
  Lane& lane = lanes_[index];
  auto free_ns = lane.free_ns;
  const Step* step = program.steps.data() + lane.step;
  for (; step->kind != Kind::kEnd; ++step) {
    auto ready_ns = free_ns;
    for (std::uint32_t s = 0; s < step->sources; ++s) {
      const auto source = program.sources[step->first_source + s];
      if (end_ns[source] >= 0) {
        ready_ns = std::max(ready_ns, end_ns[source]);
        continue;
      }
      lane.free_ns = free_ns;
      lane.step = static_cast<std::uint32_t>(step - program.steps.data());
      lane.waits_for = static_cast<std::uint32_t>(node_base + source);
      return;
    }
    if (step->kind == Kind::kWait)
      ready_ns += timed ? service_->wake_ups(rank, job_.plan(rank).wait_number[step->node]) : 0;
    else
      ready_ns += duration_ns[step->node];
    free_ns = end_ns[step->node] = ready_ns;
    if (step->hands_over) wake(rank, node_base + step->node);
    for (std::uint32_t p = 0; p < step->posts; ++p) post(entry_base + program.posts[step->first_post + p], free_ns);
  }
  lane.free_ns = free_ns;
  lane.step = static_cast<std::uint32_t>(step - program.steps.data());
}

void Sweep::post(std::uint32_t entry, std::int64_t at) {
  const auto node = node_of_[entry];
  const auto partner = partner_[entry];
  if (partner != kNeverIssued) {
    end_ns_[node] = posted(at);
    if (partner == kNone) return finish(entry, at);  // its rank is not in the graph
    const auto other = end_ns_[node_of_[partner]];
    if (other == kUnset) return;
    at = std::max(at, posted(other));
    finish(entry, at);
    return finish(partner, at);
  }
  end_ns_[node] = posted(at);
  auto& queue = queue_of(entry);
  if (queue.head != kNone) {
    if (next_in_queue_.empty()) next_in_queue_.assign(job_.entries, kNone);
    next_in_queue_[queue.tail] = entry;
  } else {
    queue.head = entry;
  }
  queue.tail = entry;
  take_up(queue);
}

void Sweep::take_up(Queue& queue) {
  while (queue.head != kNone) {
    const auto entry = queue.head;
    const auto at = posted(end_ns_[node_of_[entry]]);
    const auto& idle = queue.idle_from;
    int worker = idle[0] != kUnset && idle[0] <= at ? 0 : 1;
    if (worker == 1 && (idle[1] == kUnset || idle[1] > at)) {  // the one that is free first
      if (idle[0] == kUnset || idle[1] == kUnset) return;
      worker = idle[0] <= idle[1] ? 0 : 1;
    }
    queue.head = entry == queue.tail ? kNone : next_in_queue_[entry];
    const auto taken_up = std::max(at, idle[worker]);
    queue.idle_from[worker] = kUnset;
    queue.at_work[worker] = entry;
    transfer_start_ns_[entry] = taken_up;
    const auto meets = job_.meets[entry];
    if (--missing_[meets] == 0) start(job_.collectives[meets]);
  }
}

// All its members have been taken up.
void Sweep::start(const Collective& collective) {
  const auto come = [&](std::uint32_t entry) { return is_entry(entry) ? transfer_start_ns_[entry] : kUnset; };
  const auto rule = job_.model.rule(collective.op);
  const auto* const members = job_.member_entry.data() + collective.member_base;
  std::int64_t last = kUnset;
  for (std::uint32_t m = 0; m < collective.size; ++m) last = std::max(last, come(members[m]));
  if (rule == StartRule::kLastMember) {
    for (std::uint32_t m = 0; m < collective.size; ++m)
      if (is_entry(members[m])) finish(members[m], last);
    return;
  }
  std::vector<std::int64_t> taken(collective.size);  // counted from the root
  for (std::uint32_t v = 0; v < collective.size; ++v) taken[v] = come(job_.entry_at(collective, v));
  const auto starts = start_times(rule, taken);
  for (std::uint32_t v = 0; v < collective.size; ++v)
    if (const auto entry = job_.entry_at(collective, v); is_entry(entry)) finish(entry, starts[v]);
}

void Sweep::finish(std::uint32_t entry, std::int64_t start) {
  transfer_start_ns_[entry] = start;
  end_ns_[node_of_[entry]] = start + service_->duration_ns[entry];
  ended_.push_back(entry);
}

void Sweep::wake(int r, std::size_t node) {
  const auto& rank = job_.ranks[r];
  const auto lanes = programs_[rank.cls].lane_first.size();
  for (auto l = rank.lane_base; l < rank.lane_base + lanes; ++l) {
    if (lanes_[l].waits_for != node) continue;
    lanes_[l].waits_for = kNone;
    ready_.push_back(l);
  }
}

void Sweep::ended(std::uint32_t entry) {
  const auto node = node_of_[entry];
  wake(job_.entry_rank[entry], node);
  if (partner_[entry] != kNeverIssued) return;
  auto& queue = queue_of(entry);
  const int worker = queue.at_work[0] == entry ? 0 : 1;
  queue.idle_from[worker] = end_ns_[node];
  queue.at_work[worker] = kNone;
  take_up(queue);
}

std::int64_t Sweep::lane_free_ns(int rank, std::uint32_t node) const {
  const auto before = job_.plan(rank).before_on_lane[node];
  if (before != kNone) return end_ns(rank, before);
  return job_.plan(rank).in[node].empty() ? job_.timing(rank).start_ns[node] - clock_starts_[rank] : 0;
}

std::size_t Sweep::scratch_bytes() const {
  const auto bytes = [](const auto& column) { return column.capacity() * sizeof(column[0]); };
  return bytes(node_base_) + bytes(node_of_) + bytes(partner_) + bytes(lane_rank_) + bytes(end_ns_) +
         bytes(transfer_start_ns_) + bytes(lanes_) + bytes(queues_) + bytes(next_in_queue_) + bytes(missing_) +
         bytes(ready_) + bytes(ended_) + bytes(clock_starts_);
}

Execution Sweep::take_execution(const Durations& durations) && {
  Execution execution;
  execution.transfer_start_ns = std::move(transfer_start_ns_);
  execution.timelines.resize(job_.ranks.size());
  for (int rank = 0; rank < static_cast<int>(job_.ranks.size()); ++rank) {
    if (job_.ranks[rank].cls < 0) continue;
    const auto& view = job_.view(rank);
    const auto& plan = job_.plan(rank);
    const auto& program = programs_[job_.ranks[rank].cls];
    const auto* const end_ns = end_ns_.data() + node_base_[rank];
    const auto nodes = plan.next_on_lane.size();
    auto& [start_ns, duration_ns] = execution.timelines[rank];
    start_ns.resize(nodes);
    duration_ns.resize(nodes);
    const auto own = durations[rank];
    for (const auto first : plan.lane_first) {
      std::int64_t free_ns = 0;
      if (first != kNone && plan.in[first].empty()) free_ns = job_.timing(rank).start_ns[first] - clock_starts_[rank];
      for (auto node = first; node != kNone; node = plan.next_on_lane[node]) {
        const bool waits = static_cast<NodeKind>(view.node_kind[node]) == NodeKind::kWait;
        start_ns[node] = waits ? free_ns : end_ns[node] - own[node];
        free_ns = end_ns[node];
      }
    }
    for (std::uint32_t comm = 0; comm < program.issue_of.size(); ++comm)
      if (program.issue_of[comm] != kNone) start_ns[plan.transfer_of_comm[comm]] = end_ns[program.issue_of[comm]];
    for (std::size_t node = 0; node < nodes; ++node) duration_ns[node] = end_ns[node] - start_ns[node];
    for (std::uint32_t comm = 0; comm < program.issue_of.size(); ++comm) {
      const auto transfer = plan.transfer_of_comm[comm];
      if (end_ns[transfer] >= 0) continue;
      duration_ns[transfer] = -1;  // nobody waits for what somebody does not join
      execution.transfer_start_ns[job_.ranks[rank].entry_base + comm] = kUnset;
    }
  }
  return execution;
}

}  // namespace prism::engine
