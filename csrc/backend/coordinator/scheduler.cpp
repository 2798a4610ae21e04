#include "backend/coordinator/scheduler.hpp"

#include <algorithm>

namespace prism {
namespace {

constexpr int kFreePolls = 8;                      // in a row, before pauses begin
constexpr std::int64_t kFirstPause = 50'000;       // ns
constexpr std::int64_t kLongestPause = 5'000'000;  // ns

}  // namespace

Scheduler::Scheduler(const std::vector<Place>& places, Schedule schedule)
    : schedule_(schedule), places_(places.size()) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (int rank = 0; rank < places[i].ranks; ++rank) ranks_.emplace_back().place = static_cast<int>(i);
    for (int slot = 0; slot < places[i].slots; ++slot) add_slot(places_[i]);
  }
}

Scheduler::Scheduler(int ranks, int slots, Schedule schedule, std::span<const int> device_of_rank)
    : schedule_(schedule), ranks_(static_cast<std::size_t>(ranks)), places_(1) {
  for (std::size_t rank = 0; rank < device_of_rank.size() && rank < ranks_.size(); ++rank) {
    ranks_[rank].place = device_of_rank[rank];
    places_.resize(std::max(places_.size(), static_cast<std::size_t>(device_of_rank[rank]) + 1));
  }
  for (std::size_t slot = 0; slot < static_cast<std::size_t>(slots); ++slot) add_slot(places_[slot % places_.size()]);
}

void Scheduler::add_slot(PlaceState& place) {
  slot_.emplace_back();
  free_slot(place, static_cast<int>(slot_.size()) - 1);
  place.peak_slots = std::max(place.peak_slots, ++place.slots);
  peak_slots_ = std::max(peak_slots_, ++slots_);
}

void Scheduler::free_slot(PlaceState& place, int slot) {
  Slot& s = slot_[static_cast<std::size_t>(slot)];
  s.freed = s.last_holder < 0 ? 0 : ++frees_;
  place.free.insert({s.freed, slot});
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
  insert(rank);
}

void Scheduler::insert(int rank) {
  const int polls = at(rank).order == kPolls;
  PlaceState& place = place_of(rank);
  place.ready.insert(key(rank));
  place.polling += polls;
  polling_ready_ += polls;
  ++ready_;
}

void Scheduler::erase(int rank) {
  const int polls = at(rank).order == kPolls;
  PlaceState& place = place_of(rank);
  place.ready.erase(key(rank));
  place.polling -= polls;
  polling_ready_ -= polls;
  --ready_;
}

void Scheduler::dequeue(int rank) {
  Rank& r = at(rank);
  if (r.order == kPolls && r.pause_end > 0) {
    paused_.erase({r.pause_end, rank});
    return;
  }
  erase(rank);
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
  PlaceState& place = place_of(rank);
  if (r.excused)
    --slots_, --place.slots;  // the slot beside it stays in its place
  else
    free_slot(place, r.slot);
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
  if (queued) erase(rank);
  r.urgency += delta;
  if (queued) insert(rank);
}

int Scheduler::next(const PlaceState& place) const {
  auto first = place.ready.begin();
  if (schedule_ == Schedule::kRoundRobin && std::get<0>(*first) != kPolls) {
    const auto after = place.ready.lower_bound({kWhole, 0, place.last_granted + 1});
    if (after != place.ready.end() && std::get<0>(*after) != kPolls) first = after;
  }
  return std::get<2>(*first);
}

// With a free slot and somebody for it; where several have, the one whose first rank comes first.
Scheduler::PlaceState* Scheduler::next_place() {
  PlaceState* best = nullptr;
  for (PlaceState& place : places_)
    if (!place.ready.empty() && !place.free.empty() && (!best || *place.ready.begin() < *best->ready.begin()))
      best = &place;
  return best;
}

int Scheduler::grant(std::int64_t now_ns) {
  while (!paused_.empty() && paused_.begin()->first <= now_ns) {
    const int rank = paused_.begin()->second;
    dequeue(rank);
    at(rank).pause_end = 0;
    enqueue(rank);
  }
  PlaceState* const place = next_place();
  if (place == nullptr) return -1;
  const int rank = next(*place);
  place->last_granted = rank;
  Rank& r = at(rank);
  dequeue(rank);
  r.state = SlotState::kRunning;
  r.granted_ns = now_ns;
  // The slot that it had last, if it is free and nobody else had it since: nothing to switch there.
  const auto slot = [&](int index) -> Slot& { return slot_[static_cast<std::size_t>(index)]; };
  if (r.slot < 0 || slot(r.slot).last_holder != rank || place->free.count({slot(r.slot).freed, r.slot}) == 0) {
    r.slot = place->free.begin()->second;
    if (slot(r.slot).last_holder >= 0) ++switches_;
    slot(r.slot).last_holder = rank;
  }
  place->free.erase({slot(r.slot).freed, r.slot});
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
  add_slot(place_of(rank));
}

int Scheduler::switches_needed(const std::vector<int>& ranks) const {
  std::vector<int> members(places_.size());
  for (const int rank : ranks) ++members[static_cast<std::size_t>(at(rank).place)];
  int needed = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) needed += std::max(0, members[i] - places_[i].peak_slots);
  return needed;
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
