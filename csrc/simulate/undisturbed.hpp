// A ring whose messages have their ways for themselves: each member's next step begins when its own message and its
// neighbour's have arrived, so that all times follow by max and plus, in any order, without an event.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "simulate/picoseconds.hpp"

namespace prism::simulate {

class Undisturbed {
 public:
  struct Member {
    int step = 0;             // steps() once it is done
    int outstanding = 0;      // messages that this step waits for: its own, its neighbour's
    std::int64_t early = 0;   // of its neighbour for later steps, that have arrived
    Picoseconds ready = 0;    // the latest arrival of this step
    Picoseconds to_next = 0;  // how long its message takes
  };
  Undisturbed(std::vector<Member> members, int steps) : members_(std::move(members)), steps_(steps) {
    for (auto& member : members_) inbox_.emplace_back(static_cast<std::size_t>(member.early), Picoseconds{0});
  }

  // All members are ready for the step after theirs, where nothing is under way.
  void begin() {
    for (int member = 0; member < static_cast<int>(members_.size()); ++member) ready_.push_back(member);
  }
  // The message that `from` had under way in the beginning.
  void arrived(int from, Picoseconds at) {
    const int step = members_[from].step;
    meet(from, at);
    pass_on(from, step, at);
  }
  // As far as nothing after `until` is needed. sent(member, step, left, arrives) of every message that leaves,
  // done(member, at).
  template <typename Sent, typename Done>
  void go_on(Picoseconds until, Sent&& sent, Done&& done) {
    while (!ready_.empty()) {
      const int member = ready_.back();
      ready_.pop_back();
      auto& state = members_[member];
      while (state.outstanding == 0) {
        const auto at = state.ready;
        if (++state.step == steps_) {
          done(member, at);
          break;
        }
        state.outstanding = 2;
        if (auto& inbox = inbox_[member]; inbox.first < inbox.arrivals.size()) meet_early(member, inbox.take());
        const auto arrives = later(at, state.to_next);
        sent(member, state.step, at, arrives);
        if (arrives > until) break;
        const int step = state.step;
        meet_early(member, arrives);
        pass_on(member, step, arrives);
      }
    }
  }
  const std::vector<Member>& members() const { return members_; }
  std::int64_t early(int member) const { return inbox_[member].waiting(); }

 private:
  struct Inbox {  // arrivals by step, from the one after the member's
    Inbox(std::size_t count, Picoseconds at) : arrivals(count, at) {}
    std::vector<Picoseconds> arrivals;
    std::size_t first = 0;
    Picoseconds take() {
      const auto at = arrivals[first++];
      if (first == arrivals.size()) arrivals.clear(), first = 0;
      return at;
    }
    std::int64_t waiting() const { return static_cast<std::int64_t>(arrivals.size() - first); }
  };
  void meet_early(int member, Picoseconds at) {
    auto& state = members_[member];
    state.ready = std::max(state.ready, at);
    --state.outstanding;
  }
  void meet(int member, Picoseconds at) {
    meet_early(member, at);
    if (members_[member].outstanding == 0) ready_.push_back(member);
  }
  void pass_on(int from, int step, Picoseconds at) {
    const int next = from + 1 == static_cast<int>(members_.size()) ? 0 : from + 1;
    if (members_[next].step == step)
      meet(next, at);
    else
      inbox_[next].arrivals.push_back(at);
  }

  std::vector<Member> members_;
  int steps_;
  std::vector<Inbox> inbox_;
  std::vector<int> ready_;  // members whose step is over
};

}  // namespace prism::simulate
