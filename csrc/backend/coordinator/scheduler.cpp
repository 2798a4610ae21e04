#include "backend/coordinator/scheduler.hpp"

#include <algorithm>

namespace prism {
namespace {

constexpr int kFreePolls = 8;                      // in a row, before pauses begin
constexpr std::int64_t kFirstPause = 50'000;       // ns
constexpr std::int64_t kLongestPause = 5'000'000;  // ns

}  // namespace

Scheduler::Scheduler(int ranks, int slots, Schedule schedule, std::span<const int> device_of_rank)
    : schedule_(schedule),
      ranks_(static_cast<std::size_t>(ranks)),
      devices_(1),
      slot_(static_cast<std::size_t>(slots)),
      slots_(slots),
      peak_slots_(slots) {
  for (std::size_t rank = 0; rank < device_of_rank.size() && rank < ranks_.size(); ++rank) {
    ranks_[rank].device = device_of_rank[rank];
    devices_.resize(std::max(devices_.size(), static_cast<std::size_t>(device_of_rank[rank]) + 1));
  }
  for (int slot = 0; slot < slots; ++slot) {
    slot_[static_cast<std::size_t>(slot)].device = slot % static_cast<int>(devices_.size());
    free_slot(slot);
  }
}

void Scheduler::free_slot(int slot) {
  Slot& s = slot_[static_cast<std::size_t>(slot)];
  s.freed = s.last_holder < 0 ? 0 : ++frees_;
  devices_[static_cast<std::size_t>(s.device)].free.insert({s.freed, slot});
}

Scheduler::Key Scheduler::key(int rank) const {
  const Rank& r = at(rank);
  if (r.order == kPolls) return {kPolls, r.turn, rank};
  if (schedule_ == Schedule::kRoundRobin) return {kWhole, 0, rank};
  return {r.urgency > 0 ? kUrgent : r.order, 0, rank};
}

void Scheduler::enqueue(int rank) {
  Rank& r = at(rank);
  if (r.order == kPolls && r.pause_end > 0) {
    paused_.insert({r.pause_end, rank});
    return;
  }
  if (r.order == kPolls) ++polling_ready_;
  ++ready_count_;
  device_of(rank).ready.insert(key(rank));
}

void Scheduler::dequeue(int rank) {
  Rank& r = at(rank);
  if (r.order == kPolls && r.pause_end > 0) {
    paused_.erase({r.pause_end, rank});
    return;
  }
  if (r.order == kPolls) --polling_ready_;
  --ready_count_;
  device_of(rank).ready.erase(key(rank));
}

void Scheduler::make_ready(int rank, bool whole) {
  Rank& r = at(rank);
  const int order = whole ? kWhole : kPartial;
  if (r.state == SlotState::kRunning || r.state == SlotState::kFinished) return;
  if (r.state == SlotState::kReady) {
    if (r.order <= order) return;
    dequeue(rank);
  }
  r.state = SlotState::kReady;
  r.order = order;
  r.vain_polls = 0;
  enqueue(rank);
}

void Scheduler::give_back(int rank) {
  Rank& r = at(rank);
  holders_.erase(rank);
  --running_;
  if (r.excused)
    --slots_;  // the slot beside it stays in its place
  else
    free_slot(r.slot);
  r.excused = false;
}

void Scheduler::release(int rank, SlotState to) {
  Rank& r = at(rank);
  if (r.state == SlotState::kRunning) give_back(rank);
  if (r.state == SlotState::kReady) dequeue(rank);
  if (to != SlotState::kFinished) r.vain_polls = 0;
  r.state = to;
}

void Scheduler::yield(int rank, std::int64_t now_ns) {
  Rank& r = at(rank);
  give_back(rank);
  r.state = SlotState::kReady;
  r.order = kPolls;
  r.turn = ++turns_;
  const int beyond = ++r.vain_polls - kFreePolls;
  r.pause_end = beyond <= 0 ? 0 : now_ns + std::min(kLongestPause, kFirstPause << std::min(beyond, 10));
  enqueue(rank);
}

void Scheduler::urge(int rank, int delta) {
  Rank& r = at(rank);
  const bool queued = r.state == SlotState::kReady && r.order != kPolls;
  if (queued) device_of(rank).ready.erase(key(rank));
  r.urgency += delta;
  if (queued) device_of(rank).ready.insert(key(rank));
}

int Scheduler::next(const Device& device) const {
  auto first = device.ready.begin();
  if (schedule_ == Schedule::kRoundRobin && std::get<0>(*first) != kPolls) {
    const auto after = device.ready.lower_bound({kWhole, 0, last_granted_ + 1});
    if (after != device.ready.end() && std::get<0>(*after) != kPolls) first = after;
  }
  return std::get<2>(*first);
}

// -1: no device has both a free slot and somebody for it.
int Scheduler::next() const {
  int best = -1;
  for (const Device& device : devices_) {
    if (device.ready.empty() || device.free.empty()) continue;
    const int rank = next(device);
    if (best < 0 || key(rank) < key(best)) best = rank;
  }
  return best;
}

int Scheduler::grant(std::int64_t now_ns) {
  while (!paused_.empty() && paused_.begin()->first <= now_ns) {
    const int rank = paused_.begin()->second;
    dequeue(rank);
    at(rank).pause_end = 0;
    enqueue(rank);
  }
  const int rank = next();
  if (rank < 0) return -1;
  last_granted_ = rank;
  Rank& r = at(rank);
  dequeue(rank);
  r.state = SlotState::kRunning;
  r.granted_ns = now_ns;
  // The slot that it had last, if it is free and nobody else had it since: nothing to switch there.
  const auto slot = [&](int index) -> Slot& { return slot_[static_cast<std::size_t>(index)]; };
  auto& free = device_of(rank).free;
  if (r.slot < 0 || slot(r.slot).last_holder != rank || free.count({slot(r.slot).freed, r.slot}) == 0) {
    r.slot = free.begin()->second;
    if (slot(r.slot).last_holder >= 0) ++switches_;
    slot(r.slot).last_holder = rank;
  }
  free.erase({slot(r.slot).freed, r.slot});
  holders_.insert(rank);
  ++running_;
  ++grants_;
  return rank;
}

std::vector<int> Scheduler::holders_since(std::int64_t since_ns) const {
  std::vector<int> found;
  for (const int rank : holders_)
    if (at(rank).granted_ns < since_ns) found.push_back(rank);
  return found;
}

void Scheduler::excuse(int rank) {
  Rank& r = at(rank);
  r.excused = true;
  slot_.emplace_back().device = r.device;
  free_slot(static_cast<int>(slot_.size()) - 1);
  peak_slots_ = std::max(peak_slots_, ++slots_);
}

void Scheduler::latest_first(std::vector<int>& ranks) const {
  const auto when = [&](int rank) {
    const Rank& r = at(rank);
    if (r.state == SlotState::kRunning) return std::tuple(0, Key{}, rank);
    if (r.state == SlotState::kReady) return std::tuple(1, key(rank), rank);
    return std::tuple(2, Key{}, rank);
  };
  std::sort(ranks.begin(), ranks.end(), [&](int a, int b) { return when(a) > when(b); });
}

}  // namespace prism
