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
  run.left = run.missing = schedule->members();
  run.members.assign(static_cast<std::size_t>(run.left), {});
  run.schedule = std::move(schedule);
  run.endpoints = std::move(endpoints);
  run.manner = manner;
  return number;
}

Result<void> Collectives::enter(std::uint32_t number, int member, Picoseconds at, std::vector<Done>& done) {
  runs_[number].members[member].came = at;
  PRISM_RETURN_IF_ERROR(go_on(number, member, at, done));
  if (--runs_[number].missing == 0) leave_alone(number);
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

Result<void> Collectives::enter_all(std::uint32_t number, Picoseconds at, std::vector<Done>& done) {
  if (leave_alone(number, at)) {
    auto& run = runs_[number];
    run.missing = 0;
    for (auto& member : run.members) member.came = at;
    go_on_alone(number);
    return {};
  }
  const int members = runs_[number].missing;
  for (int m = 0; m < members; ++m) PRISM_RETURN_IF_ERROR(enter(number, m, at, done));
  return {};
}

Result<void> Collectives::delivered(const Delivery& delivery, std::vector<Done>& done) {
  const auto index = static_cast<std::uint32_t>(delivery.id & ~kMark);
  const auto message = in_flight_[index];
  free_messages_.push_back(index);
  auto& run = runs_[message.run];
  auto& sender = run.members[message.from];
  const bool in_steps = run.manner == Manner::kInSteps, both_ends = needs_both_ends(run.manner);
  if (run.manner != Manner::kBuffered) --sender.posted;
  if (run.alone) {
    run.alone->arrived.emplace_back(message.from, delivery.at);
    run.alone->now.arrived(message.from, delivery.at);
    go_on_alone(message.run);
    return {};
  }
  const auto lane = static_cast<std::size_t>(message.step % run.schedule->lanes());
  bool sender_ends = in_steps && --sender.outstanding[lane] == 0;
  if (both_ends) sender_ends = sender.posted == 0 && sender.step == run.schedule->steps();
  auto& receiver = run.members[message.to];
  bool receiver_ends = false;
  if (receiver.step >= message.step)
    receiver_ends = --receiver.outstanding[lane] == 0;
  else
    ++run.early[early_key(message.to, message.step)];
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
  if (run.schedule && run.missing == 0 && run.until_try <= 0) leave_alone(message.run);
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
  run.members[member].ended = true;
  if (--run.left > 0) return;
  if (run.alone) end_alone(number);
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
  if (run.manner != Manner::kBuffered) state.posted += static_cast<int>(sends_.size());
  --run.until_try;
  const auto came = run.early.find(early_key(member, state.step));
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

std::uint32_t Collectives::new_message(const Between& message) {
  ++sent_;
  if (free_messages_.empty()) {
    in_flight_.push_back(message);
    return static_cast<std::uint32_t>(in_flight_.size() - 1);
  }
  const auto index = free_messages_.back();
  free_messages_.pop_back();
  in_flight_[index] = message;
  return index;
}

Result<void> Collectives::send(const Between& message, std::int64_t bytes, Picoseconds at) {
  const auto index = new_message(message);
  runs_[message.run].members[message.from].latest = index;
  const auto& endpoints = runs_[message.run].endpoints;
  const auto manner = runs_[message.run].manner;
  const bool ordered = manner == Manner::kBuffered || manner == Manner::kLaterFirst;
  const auto connection = ordered ? static_cast<std::int32_t>(message.run) : -1;
  auto sent = network_.send(at, {index | kMark, endpoints[message.from], endpoints[message.to], bytes, connection});
  if (!sent) refused_ = message;
  return sent;
}

}  // namespace prism::simulate
