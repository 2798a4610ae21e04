#include "simulate/collectives.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace prism::simulate {
namespace {

bool needs_both_ends(Manner manner) { return manner == Manner::kBothEnds || manner == Manner::kLaterFirst; }

}  // namespace

std::uint32_t Collectives::begin(std::unique_ptr<Schedule> schedule, std::vector<std::int32_t> endpoints,
                                 Manner manner) {
  std::uint32_t number = static_cast<std::uint32_t>(runs_.size());
  if (free_runs_.empty()) {
    runs_.emplace_back();
  } else {
    number = free_runs_.back();
    free_runs_.pop_back();
  }
  auto& run = runs_[number];
  run.left = schedule->members();
  run.members.assign(static_cast<std::size_t>(run.left), {});
  run.schedule = std::move(schedule);
  run.endpoints = std::move(endpoints);
  run.manner = manner;
  return number;
}

Result<void> Collectives::enter(std::uint32_t number, int member, Picoseconds at, std::vector<Done>& done) {
  runs_[number].members[member].came = at;
  PRISM_RETURN_IF_ERROR(go_on(number, member, at, done));
  auto& held = runs_[number].held;
  if (held.empty()) return {};
  const bool later_first = runs_[number].manner == Manner::kLaterFirst;
  const int size = static_cast<int>(runs_[number].members.size());
  const auto here = std::stable_partition(held.begin(), held.end(), [&](const Held& one) { return one.to != member; });
  const std::vector<Held> ready(here, held.end());
  held.erase(here, held.end());
  for (const auto& one : ready) {
    if (later_first && 2 * ((one.to - one.from + size) % size) >= size) {
      runs_[number].behind.push_back(one);
      continue;
    }
    const auto both = std::max(at, one.at);
    PRISM_RETURN_IF_ERROR(send({number, one.from, one.to, one.step}, one.bytes, both));
  }
  return {};
}

Result<void> Collectives::delivered(const Delivery& delivery, std::vector<Done>& done) {
  const auto index = static_cast<std::uint32_t>(delivery.id & ~kMark);
  const auto message = in_flight_[index];
  free_messages_.push_back(index);
  auto& run = runs_[message.run];
  auto& sender = run.members[message.from];
  const bool in_steps = run.manner == Manner::kInSteps, both_ends = needs_both_ends(run.manner);
  const auto lane = static_cast<std::size_t>(message.step % run.schedule->lanes());
  bool sender_ends = in_steps && --sender.outstanding[lane] == 0;
  if (both_ends) sender_ends = --sender.posted == 0 && sender.step == run.schedule->steps();
  auto& receiver = run.members[message.to];
  bool receiver_ends = false;
  if (receiver.step >= message.step)
    receiver_ends = --receiver.outstanding[lane] == 0;
  else
    ++run.early[static_cast<std::uint64_t>(message.to) << 32 | static_cast<std::uint32_t>(message.step)];
  if (sender_ends && in_steps) PRISM_RETURN_IF_ERROR(go_on(message.run, message.from, delivery.at, done));
  if (sender_ends && both_ends) end(message.run, message.from, delivery.at, done);
  auto& behind = run.behind;
  const auto opposite = std::find_if(behind.begin(), behind.end(),
                                     [&](const Held& one) { return one.from == message.to && one.to == message.from; });
  if (opposite != behind.end()) {
    const Held one = *opposite;
    behind.erase(opposite);
    PRISM_RETURN_IF_ERROR(send({message.run, one.from, one.to, one.step}, one.bytes, delivery.at));
  }
  if (receiver_ends) PRISM_RETURN_IF_ERROR(go_on(message.run, message.to, delivery.at, done));
  return {};
}

// Through its next steps, up to one that takes time.
Result<void> Collectives::go_on(std::uint32_t number, int member, Picoseconds at, std::vector<Done>& done) {
  for (;;) {
    auto& run = runs_[number];
    auto& state = run.members[member];
    const int next = state.step + 1, steps = run.schedule->steps(), lanes = run.schedule->lanes();
    if (state.outstanding[static_cast<std::size_t>(next % lanes)] > 0) return {};
    if (next >= steps) {
      if (state.outstanding != std::array<int, 2>{}) return {};
      state.step = steps;
      if (state.posted == 0) end(number, member, at, done);
      return {};
    }
    state.step = next;
    PRISM_RETURN_IF_ERROR(begin_step(number, member, at));
  }
}

void Collectives::end(std::uint32_t number, int member, Picoseconds at, std::vector<Done>& done) {
  done.push_back({number, member, at});
  auto& run = runs_[number];
  if (--run.left > 0) return;
  run.schedule.reset();
  run.early.clear();
  free_runs_.push_back(number);
}

Result<void> Collectives::begin_step(std::uint32_t number, int member, Picoseconds at) {
  auto& run = runs_[number];
  auto& state = run.members[member];
  sends_.clear();
  auto& outstanding = state.outstanding[static_cast<std::size_t>(state.step % run.schedule->lanes())];
  outstanding = run.schedule->part(member, state.step, sends_);
  if (run.manner == Manner::kInSteps) outstanding += static_cast<int>(sends_.size());
  if (needs_both_ends(run.manner)) state.posted += static_cast<int>(sends_.size());
  const auto came = run.early.find(static_cast<std::uint64_t>(member) << 32 | static_cast<std::uint32_t>(state.step));
  if (came != run.early.end()) {
    outstanding -= came->second;
    run.early.erase(came);
  }
  for (const auto& one : sends_) {
    if (needs_both_ends(run.manner) && run.members[one.to].step < 0)
      run.held.push_back({member, one.to, state.step, one.bytes, at});
    else
      PRISM_RETURN_IF_ERROR(send({number, member, one.to, state.step}, one.bytes,
                                 needs_both_ends(run.manner) ? std::max(at, run.members[one.to].came) : at));
  }
  return {};
}

Result<void> Collectives::send(const Between& message, std::int64_t bytes, Picoseconds at) {
  std::uint32_t index = static_cast<std::uint32_t>(in_flight_.size());
  if (free_messages_.empty()) {
    in_flight_.emplace_back();
  } else {
    index = free_messages_.back();
    free_messages_.pop_back();
  }
  in_flight_[index] = message;
  ++sent_;
  const auto& endpoints = runs_[message.run].endpoints;
  const auto manner = runs_[message.run].manner;
  const bool ordered = manner == Manner::kBuffered || manner == Manner::kLaterFirst;
  const auto connection = ordered ? static_cast<std::int32_t>(message.run) : -1;
  auto sent = network_.send(at, {index | kMark, endpoints[message.from], endpoints[message.to], bytes, connection});
  if (!sent) refused_ = message;
  return sent;
}

namespace {

bool has_bursts(const Topology& topology) {
  for (const auto& link : topology.links())
    if (link.has_burst()) return true;
  return false;
}

// The first `steps` steps of another schedule, from `first` on.
class Part final : public Schedule {
 public:
  Part(const Schedule& whole, int first, int steps) : whole_(whole), first_(first), steps_(steps) {}
  int members() const override { return whole_.members(); }
  int steps() const override { return steps_; }
  int lanes() const override { return whole_.lanes(); }
  int part(int member, int step, std::vector<Send>& sends) const override {
    return whole_.part(member, first_ + step, sends);
  }

 private:
  const Schedule& whole_;
  int first_, steps_;
};

struct Ran {
  Picoseconds last = 0;
  bool together = true;  // all members ended at the same time
  std::uint64_t messages = 0, events = 0;
};

Result<Ran> run(Network& network, const Schedule& whole, int first, int steps, Picoseconds at) {
  Collectives collectives(network);
  std::vector<std::int32_t> endpoints(static_cast<std::size_t>(whole.members()));
  for (std::size_t i = 0; i < endpoints.size(); ++i) endpoints[i] = static_cast<std::int32_t>(i);
  const auto manner = whole.lanes() > 1 ? Manner::kBuffered : Manner::kInSteps;
  const auto number = collectives.begin(std::make_unique<Part>(whole, first, steps), std::move(endpoints), manner);
  std::vector<Collectives::Done> done;
  for (int member = 0; member < whole.members(); ++member)
    PRISM_RETURN_IF_ERROR(collectives.enter(number, member, at, done));
  Ran ran;
  std::vector<Delivery> delivered;
  for (auto next = network.next(); next != kNever; next = network.next()) {
    ++ran.events;
    delivered.clear();
    network.advance(next, delivered);
    for (const auto& one : delivered) PRISM_RETURN_IF_ERROR(collectives.delivered(one, done));
  }
  ran.messages = collectives.messages();
  ran.last = at;
  for (const auto& one : done) {
    ran.together &= one.at == done.front().at;
    ran.last = std::max(ran.last, one.at);
  }
  return ran;
}

}  // namespace

Result<CollectiveTime> time_of_collective(const Topology& topology, Network& network,
                                          std::unique_ptr<Schedule> schedule) {
  if (schedule->members() > topology.endpoints())
    return Error{ErrorCode::kInvalidInput, "a collective of " + std::to_string(schedule->members()) +
                                               " members on a network of " + std::to_string(topology.endpoints()) +
                                               "; accepted: not more members than endpoints"};
  CollectiveTime total;
  Picoseconds clock = 0;  // the network's; its idle time in between does not count
  const auto simulate = [&](int step, int steps) -> Result<Ran> {
    PRISM_ASSIGN_OR_RETURN(auto ran, run(network, *schedule, step, steps, clock));
    total.events += ran.events;
    ran.last -= std::exchange(clock, ran.last);  // how long it took
    return ran;
  };
  const bool repeats = !has_bursts(topology);
  for (int step = 0; step < schedule->steps();) {
    int steps = repeats ? schedule->alike(step) : 1, times = steps;
    Ran ran{0, false};
    if (steps > 1) {
      PRISM_ASSIGN_OR_RETURN(ran, simulate(step, 1));
    }
    if (!ran.together) {  // then no step waits for the slowest of the one before
      steps = schedule->steps() - step;
      times = 1;
      PRISM_ASSIGN_OR_RETURN(ran, simulate(step, steps));
    }
    total.time += ran.last * times;
    total.messages += ran.messages * static_cast<std::uint64_t>(times);
    step += steps;
  }
  return total;
}

}  // namespace prism::simulate
