// Finds operations that belong together: collectives by (group, seq), messages by (source, destination, group, tag,
// order). Knows nothing of sockets, slots or memory. Loop thread only.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/coordinator/exchange.hpp"
#include "core/result.hpp"

namespace prism {

class Matcher {
 public:
  // urge(rank, delta): `delta` more operations of others wait for `rank` alone. `real`: the ranks that come, where not
  // all do; what the others put in is filled in by whoever has a complete exchange, and checked there.
  Matcher(int ranks, std::function<void(int rank, int delta)> urge, const std::vector<int>& real = {});
  ~Matcher();  // exchanges and their groups hold one another

  Result<void> join(int rank, GroupHandle handle, const std::string& key, std::vector<std::int32_t> members);
  Result<void> leave(int rank, GroupHandle handle);
  // The exchange that the call became part of; complete() when it was the last one missing.
  Result<std::shared_ptr<Exchange>> arrive(int rank, WorkId work, Operation operation);
  bool is_virtual(int rank) const { return !real_.empty() && !real_[static_cast<std::size_t>(rank)]; }
  // Its own time limit has passed: members that come later get the error at once.
  void expire(const std::shared_ptr<Exchange>& exchange, Error error);

 private:
  struct Membership {
    std::shared_ptr<Group> group;
    int member = -1;
  };
  Result<std::shared_ptr<Exchange>> arrive_collective(const Membership& place, Arrival arrival);
  Result<std::shared_ptr<Exchange>> arrive_message(const Membership& place, Arrival arrival);
  void put(Exchange& exchange, std::size_t index, Arrival arrival);
  void urge(Exchange& exchange, int rank);
  std::size_t real_members(const Group& group) const;

  std::vector<bool> real_;  // by rank; empty: all
  std::function<void(int, int)> urge_;
  // A key can be used again: a member's second join is to the second group of that key, also while others are still in
  // the first. Oldest first; gone once all members have left.
  std::unordered_map<std::string, std::deque<std::shared_ptr<Group>>> groups_;
  std::vector<std::unordered_map<GroupHandle, Membership>> memberships_;  // by rank
  std::uint64_t messages_ = 0;
};

}  // namespace prism
