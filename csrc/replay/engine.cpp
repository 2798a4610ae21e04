#include "replay/engine.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace prism::engine {

Engine::Engine(const Job& job, const Durations& durations, const ServiceTimes& service, Carrier& carrier)
    : Engine(job, durations, service, carrier, Options()) {}

Engine::Engine(const Job& job, const Durations& durations, const ServiceTimes& service, Carrier& carrier,
               Options options)
    : job_(job),
      durations_(durations),
      service_(service),
      carrier_(carrier),
      options_(options),
      rounds_(options.loop ? options.loop->rounds() : 1),
      in_flight_(job, options.loop),
      duration_ns_(job.ranks.size()),
      lanes_(job.lanes),
      is_outside_(job.ranks.size()) {
  carrier.attach(in_flight_);
  for (std::size_t op = 0; op < rules_.size(); ++op) rules_[op] = job.model.rule(static_cast<Op>(op));
  if (!options.timelines) return;
  timelines_.resize(job.ranks.size());
  transfer_start_ns_.assign(job.entries, kUnset);
}

Result<void> Engine::run(const std::vector<std::vector<int>>& parts) {
  const auto starts = clock_starts(job_);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) PRISM_RETURN_IF_ERROR(carrier_.start_over());
    for (const int rank : parts[i]) start_lanes(rank, starts[rank]);
    PRISM_RETURN_IF_ERROR(go_on(INT64_MAX));
    overdue_ = overdue_ || carrier_.overdue();
  }
  return finished();
}

void Engine::begin(const std::vector<int>& ranks, const std::vector<int>& outside) {
  for (const int rank : outside) {
    is_outside_[rank] = true;
    const auto& comms = in_flight_.program(rank).comms;
    outside_.push_back({rank, {std::vector<bool>(comms.size() - 1), std::vector<std::uint32_t>(comms.size() - 1)}});
    if (options_.timelines) prepare_timeline(rank);
  }
  const auto starts = clock_starts(job_);
  for (const int rank : ranks)
    if (!is_outside_[rank]) start_lanes(rank, starts[rank]);
}

Result<void> Engine::finished() const {
  for (std::size_t rank = 0; rank < job_.ranks.size(); ++rank) {
    if (job_.ranks[rank].cls < 0) continue;
    const auto& program = in_flight_.program(static_cast<int>(rank));
    for (std::uint32_t l = 0; l < program.lanes.size(); ++l) {
      const auto step = lanes_[job_.ranks[rank].lane_base + l].step;
      if (step == kNone || program.steps[step].kind == StepKind::kEnd) continue;
      return overdue_ || carrier_.overdue() ? Error{ErrorCode::kInvalidInput,
                                                    "transfers take longer than the 106 days that the clock of a "
                                                    "network shows"}
                                            : explain_deadlock();
    }
  }
  return {};
}

Result<void> Engine::arrived(int rank, std::uint32_t number, std::int64_t at_ns) {
  const auto wrong = [](std::string text) { return Error{ErrorCode::kInvalidInput, std::move(text)}; };
  if (rank < 0 || static_cast<std::size_t>(rank) >= is_outside_.size() || !is_outside_[rank])
    return wrong(fmt::format("rank {} is not one from outside", rank));
  const auto& program = in_flight_.program(rank);
  const auto comms = program.comms.size() - 1;
  auto& own =
      std::find_if(outside_.begin(), outside_.end(), [&](const auto& one) { return one.first == rank; })->second;
  std::uint32_t comm = number, round = 0;
  if (number >= comms && options_.loop) std::tie(comm, round) = options_.loop->place(job_.ranks[rank].cls, number);
  if (comm >= comms)
    return wrong(fmt::format("rank {}: communication {}; accepted: 0 to {}", rank, number,
                             static_cast<std::int64_t>(comms) - 1));
  if (round >= rounds_)
    return wrong(fmt::format("rank {}: communication {} is of round {} of the period; accepted: 0 to {}", rank, number,
                             round, rounds_ - 1));
  const auto& plan = program.comms[comm];
  if (plan.transfer == kNone) return wrong(fmt::format("rank {}: communication {} has no transfer", rank, number));
  if (plan.region == Period::kAfter && rounds_ == Loop::kEndless)
    return wrong(
        fmt::format("rank {}: communication {} is after the last iteration of a job without end", rank, number));
  if (round == 0 ? own.recorded[comm] : round <= own.rounds[comm])
    return wrong(fmt::format("rank {}: communication {} is issued twice", rank, number));
  own.recorded[comm] = true;
  own.rounds[comm] = round;
  enqueue(rank, comm, round, at_ns);
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
    for (const auto& [part, at_ns] : ended_) {
      const auto& own = in_flight_[part];
      events_.push({at_ns, order_of(own), own.rank, part});
    }
    ended_.clear();
    if (!released_.empty()) until_ns = std::min(until_ns, released_.back().at_ns + 1);
    PRISM_RETURN_IF_ERROR(carrier_.advance(std::min(events_.next(), until_ns), ended_));
    if (!ended_.empty()) continue;
    if (events_.empty() || events_.next() >= until_ns) return {};
    const Event event = events_.pop([this](const Event& soon) { prefetch(soon); });
    ++event_count_;
    if (event.order < kIssued)
      transfer_ended(event.index, event.at);
    else if (event.order < kGoesOn)
      issued(event.rank, event.index - job_.ranks[event.rank].lane_base, event.at);
    else
      resumed_.push_back(event.index - job_.ranks[event.rank].lane_base);
    resume_lanes(event.rank);
  }
}

void Engine::prefetch(const Event& event) const {
  __builtin_prefetch(&job_.ranks[event.rank]);
  if (event.order < kIssued)
    __builtin_prefetch(&in_flight_[event.index]);
  else
    __builtin_prefetch(&lanes_[event.index]);
}

std::uint64_t Engine::order_of(const Part& part) const {
  if (!options_.loop) return part.comm;
  const auto& program = in_flight_.program(part.rank);
  const auto& comm = program.comms[part.comm];
  const std::uint64_t rounds = comm.region == Period::kAfter ? static_cast<std::uint64_t>(rounds_ - 1) : part.round;
  return std::uint64_t{comm.lane} << 46 | (comm.ordinal + rounds * program.lanes[comm.lane].comms_per_round);
}

void Engine::prepare_timeline(int rank) {
  const std::size_t nodes = job_.plan(rank).next_on_lane.size();
  timelines_[rank].start_ns.assign(nodes, kUnset);
  timelines_[rank].duration_ns.assign(nodes, 0);
}

// A lane starts where the record has its first node.
void Engine::start_lanes(int rank, std::int64_t clock_start) {
  if (options_.timelines) prepare_timeline(rank);
  duration_ns_[rank] = durations_[rank].data();
  const ClassPlan& plan = job_.plan(rank);
  const auto& program = in_flight_.program(rank);
  for (std::uint32_t l = 0; l < program.lanes.size(); ++l) {
    const auto node = plan.lane_first[l];
    Lane& lane = lanes_[job_.ranks[rank].lane_base + l];
    lane.step = program.lanes[l].first;
    if (node != kNone && plan.in[node].empty()) lane.free_ns = job_.timing(rank).start_ns[node] - clock_start;
    resumed_.push_back(l);
  }
  resume_lanes(rank);
}

void Engine::resume_lanes(int rank) {
  while (!resumed_.empty()) {
    std::uint32_t lane = resumed_.back();
    resumed_.pop_back();
    advance(rank, lane);
  }
}

// Executes the lane's steps until it has to wait for an event.
void Engine::advance(int rank, std::uint32_t index) {
  const auto& steps = in_flight_.program(rank).steps;
  const auto of_all = job_.ranks[rank].lane_base + index;
  Lane& lane = lanes_[of_all];
  for (;;) {
    const Step& step = steps[lane.step];
    if (step.kind == StepKind::kEnd || !has_its_sources(rank, lane, step)) return;
    const auto ready = std::max(lane.free_ns, lane.ready_ns);
    if (step.kind == StepKind::kIssue)
      return events_.push({ready + duration(rank, lane, step), kIssued + index, rank, of_all});
    const auto round = lane.round;
    if (step.kind == StepKind::kWait)
      end_step(rank, index, step, lane.free_ns, ready + service_.wake_ups(rank, step.place));
    else
      end_step(rank, index, step, ready, ready + duration(rank, lane, step));
    // A lane that never waits would not come to an end.
    if (lane.round > round) return events_.push({lane.free_ns, kGoesOn + index, rank, of_all});
  }
}

bool Engine::has_its_sources(int rank, Lane& lane, const Step& step) {
  if (lane.missing == kReady) return true;
  lane.ready_ns = INT64_MIN;
  lane.missing = lane.round == 0 ? step.sources : step.sources_again;
  if (lane.missing == 0 || step.at_once) return lane.missing == 0;
  if (const auto* join = joins_.find({rank, lane.step, lane.round})) {
    lane.missing -= join->count;
    lane.ready_ns = join->ready_ns;
    joins_.erase(join);
  }
  return lane.missing == 0;
}

std::int64_t Engine::duration(int rank, const Lane& lane, const Step& step) const {
  if (lane.round == 0) return duration_ns_[rank][step.node];
  return options_.loop->duration(job_.ranks[rank].cls, lane.repetition, step, durations_[rank]);
}

void Engine::end_step(int rank, std::uint32_t index, const Step& step, std::int64_t start_ns, std::int64_t end_ns) {
  const auto& program = in_flight_.program(rank);
  Lane& lane = lanes_[job_.ranks[rank].lane_base + index];
  const auto round = lane.round;
  if (options_.timelines && round == 0) {
    timelines_[rank].start_ns[step.node] = start_ns;
    timelines_[rank].duration_ns[step.node] = end_ns - start_ns;
  }
  if (options_.observer) options_.observer->ran(rank, step.node, round, start_ns, end_ns);
  lane.free_ns = end_ns;
  lane.missing = 0;
  if (step.ends_round && lane.round + 1 < rounds_) {
    lane.step = program.lanes[index].period_first;
    ++lane.round;
  } else {
    ++lane.step;
    if (step.ends_round) lane.round = 0;
  }
  if (lane.round > 0 && program.steps[lane.step].begins_iteration)
    lane.repetition = options_.loop->repetition(job_.ranks[rank].cls, rank, lane.round, program.steps[lane.step]);
  source_ended(rank, program.targets_of(step), round, end_ns);
}

// Tells the lanes that are blocked on it; for others that is kept until they get there.
void Engine::source_ended(int rank, std::span<const Target> targets, std::uint32_t round, std::int64_t at_ns) {
  for (const Target& target : targets) {
    auto of_round = round;
    if (target.when == Target::kNextRound && ++of_round >= rounds_) continue;
    if (target.when == Target::kAfterLast) {
      if (round + 1 < rounds_) continue;
      of_round = 0;
    }
    Lane& lane = lanes_[job_.ranks[rank].lane_base + target.lane];
    if (lane.step != target.step || lane.round != of_round || lane.missing == 0) {
      auto& join = joins_[{rank, target.step, of_round}];
      ++join.count;
      join.ready_ns = std::max(join.ready_ns, at_ns);
      continue;
    }
    lane.ready_ns = std::max(lane.ready_ns, at_ns);
    if (--lane.missing > 0) continue;
    lane.missing = kReady;
    resumed_.push_back(target.lane);
  }
}

void Engine::issued(int rank, std::uint32_t index, std::int64_t at_ns) {
  const auto& program = in_flight_.program(rank);
  const Lane& lane = lanes_[job_.ranks[rank].lane_base + index];
  const Step& step = program.steps[lane.step];
  const auto round = lane.round;
  end_step(rank, index, step, std::max(lane.free_ns, lane.ready_ns), at_ns);
  for (const auto comm : program.posts_of(step))
    if (is_first_issue(rank, comm, round)) enqueue(rank, comm, round, at_ns);
  resumed_.push_back(index);
}

// Later ones of the same communication do nothing.
bool Engine::is_first_issue(int rank, std::uint32_t comm, std::uint32_t round) {
  const auto issues = in_flight_.program(rank).comms[comm].issues;
  if (issues == 1) return true;
  auto& known = issues_[{rank, comm, round}];
  const bool first = known.count++ == 0;
  if (known.count == issues) issues_.erase(&known);
  return first;
}

Result<void> Engine::end_after(int iterations) {
  const auto wrong = [](std::string text) { return Error{ErrorCode::kInvalidInput, std::move(text)}; };
  if (!options_.loop) return wrong("the job ends with its record");
  PRISM_ASSIGN_OR_RETURN(const auto rounds, options_.loop->rounds_of(iterations));
  for (std::size_t rank = 0; rank < job_.ranks.size(); ++rank) {
    if (job_.ranks[rank].cls < 0) continue;
    const auto& program = in_flight_.program(static_cast<int>(rank));
    for (std::uint32_t l = 0; l < program.lanes.size(); ++l) {
      const Lane& lane = lanes_[job_.ranks[rank].lane_base + l];
      const auto& plan = program.lanes[l];
      if (lane.step == kNone || plan.period_first == plan.period_end) continue;
      if (lane.step >= plan.period_end || (lane.step >= plan.period_first && lane.round + 1 >= rounds))
        return wrong(fmt::format("the job cannot end after {} iterations: rank {} has begun a later one, or the last",
                                 iterations, rank));
    }
  }
  rounds_ = rounds;
  in_flight_.set_rounds(rounds);
  return {};
}

std::size_t Engine::bytes() const {
  std::size_t outside = 0;
  for (const auto& [rank, own] : outside_) outside += own.recorded.capacity() / 8 + own.rounds.capacity() * 4;
  return in_flight_.bytes() + lanes_.capacity() * sizeof(Lane) + joins_.bytes() + issues_.bytes() + events_.bytes() +
         is_outside_.capacity() / 8 + outside + resumed_.capacity() * sizeof(std::uint32_t) +
         ended_.capacity() * sizeof(Carrier::Ended) + released_.capacity() * sizeof(Released);
}

}  // namespace prism::engine
