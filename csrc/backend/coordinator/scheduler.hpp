// Who runs: hands slots to ranks. A rank belongs to one place (a host, or a device), and each place has slots of its
// own. Pure bookkeeping, O(log N) per call and O(places) per grant. Loop thread only.
// Order by need: ranks for whose arrival others wait; then ranks all of whose awaited operations are complete; then
// those with some complete; last, in turn, those that only poll. Lowest rank first within each. Round-robin, the
// yardstick: the next rank by number that can run. All this within the ranks of a place.
#pragma once
#include <cstdint>
#include <set>
#include <span>
#include <tuple>
#include <vector>

namespace prism {

enum class SlotState : std::uint8_t { kAbsent, kReady, kRunning, kBlocked, kLent, kFinished };

enum class Schedule : std::uint8_t { kByNeed, kRoundRobin };

class Scheduler {
 public:
  struct Place {
    int ranks = 0, slots = 0;  // the next `ranks` ranks by number
  };
  Scheduler(const std::vector<Place>& places, Schedule schedule = Schedule::kByNeed);
  // `device_of_rank`: empty where ranks are bound to none; slot s is of device s % devices.
  Scheduler(int ranks, int slots, Schedule schedule = Schedule::kByNeed, std::span<const int> device_of_rank = {});

  SlotState state(int rank) const { return at(rank).state; }
  bool polls(int rank) const { return at(rank).state == SlotState::kReady && at(rank).order == kPolls; }
  // From any state but running and finished. `whole`: nothing that it waits for is missing.
  void make_ready(int rank, bool whole);
  // A running rank gives its slot back: kBlocked, kLent or kFinished (which any rank may become).
  void release(int rank, SlotState to);
  // A running rank polled in vain: behind all others, and after a growing pause when it does so again and again.
  void yield(int rank, std::int64_t now_ns);
  // `delta` more operations wait for this rank alone.
  void urge(int rank, int delta);
  // Gives a free slot to the next rank of its place and returns it; -1 when there is none of either.
  int grant(std::int64_t now_ns);
  bool has_free_slot() const {
    for (const PlaceState& place : places_)
      if (!place.free.empty()) return true;
    return false;
  }
  bool has_free_slot(int rank) const { return !place_of(rank).free.empty(); }  // where this rank is
  // Ranks that have held a slot since before `since_ns`.
  std::vector<int> holders_since(std::int64_t since_ns) const;
  bool excused(int rank) const { return at(rank).excused; }
  // The holder spins: somebody else may run beside it until it gives its slot back.
  void excuse(int rank);
  // Its slot was not usable before now.
  void restart_tenure(int rank, std::int64_t now_ns) { at(rank).granted_ns = now_ns; }
  // Orders ranks by when they are to run: holders, those that are ready in their order, then those that wait for
  // something, which will be ready together, lowest rank first.
  void latest_first(std::vector<int>& ranks) const;

  int running() const { return running_; }
  int waiting() const { return ready_ - polling_ready_; }                  // for a slot, pollers not counted
  int waiting_beside(int rank) const { return place_of(rank).waiting(); }  // for the slots that it may have
  int waiting_at(int place) const { return places_[static_cast<std::size_t>(place)].waiting(); }
  int polling() const { return polling_ready_ + static_cast<int>(paused_.size()); }
  // When the first paused poller may run; -1: there is none.
  std::int64_t next_pause_end() const { return paused_.empty() ? -1 : paused_.begin()->first; }
  std::uint64_t grants() const { return grants_; }
  std::uint64_t switches() const { return switches_; }  // grants of a slot to another rank than had it before
  int peak_slots() const { return peak_slots_; }
  // Of these ranks, each of which gave its slot back: how many have to be switched in again, however one schedules.
  int switches_needed(const std::vector<int>& ranks) const;

 private:
  enum Order : int { kUrgent, kWhole, kPartial, kPolls };
  struct Rank {
    SlotState state = SlotState::kAbsent;
    int order = kWhole;      // while ready, urgency aside
    std::uint64_t turn = 0;  // of a poller
    std::int64_t pause_end = 0;
    int vain_polls = 0;
    int urgency = 0;
    int place = 0;
    int slot = -1;  // held, or held last
    bool excused = false;
    std::int64_t granted_ns = 0;
  };
  using Key = std::tuple<int, std::uint64_t, int>;
  struct Slot {
    int last_holder = -1;
    std::uint64_t freed = 0;  // counts up
  };
  struct PlaceState {
    std::set<Key> ready;
    int polling = 0;                               // of the ready ones
    std::set<std::pair<std::uint64_t, int>> free;  // (freed, slot): longest free first, its holder's state stays
    int slots = 0, peak_slots = 0, last_granted = -1;
    int waiting() const { return static_cast<int>(ready.size()) - polling; }
  };
  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Key key(int rank) const;
  int next(const PlaceState& place) const;
  PlaceState* next_place();
  void insert(int rank);
  void erase(int rank);
  void enqueue(int rank);
  void dequeue(int rank);
  void give_back(int rank);
  void add_slot(PlaceState& place);
  void free_slot(PlaceState& place, int slot);

  PlaceState& place_of(int rank) { return places_[static_cast<std::size_t>(at(rank).place)]; }
  const PlaceState& place_of(int rank) const { return places_[static_cast<std::size_t>(at(rank).place)]; }

  const Schedule schedule_;
  std::vector<Rank> ranks_;
  std::vector<PlaceState> places_;
  std::set<std::pair<std::int64_t, int>> paused_;  // pollers that are not to run before that time
  std::set<int> holders_;
  std::vector<Slot> slot_;
  int ready_ = 0, slots_ = 0, running_ = 0, polling_ready_ = 0, peak_slots_ = 0;
  std::uint64_t turns_ = 0, frees_ = 0, grants_ = 0, switches_ = 0;
};

}  // namespace prism
