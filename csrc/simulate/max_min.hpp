// Max-min fair rates of flows that share links, kept up to date as flows come and go.
//
// The allocation is the only one in which every flow has a bottleneck: a link that is full and on which no flow is
// faster. After a change only the flows around it are solved again, with all others held; where these then miss their
// bottleneck, or are faster than what a link leaves, they join, until nobody does. Exact up to rounding, and as large
// as what the change really reaches.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "simulate/topology.hpp"

namespace prism::simulate {

class MaxMin {
 public:
  using Slot = std::uint32_t;
  struct Change {
    Slot slot;
    double before;  // bytes per second
  };

  explicit MaxMin(std::vector<double> capacities);  // by link, bytes per second

  // A route without links is not a flow here. The rate is 0 until solve().
  Slot add(std::span<const LinkId> route);
  void remove(Slot slot);  // the slot is used again
  void set_capacity(LinkId link, double capacity);
  // The flows whose rates have changed, in the order in which they were reached; until the next call.
  const std::vector<Change>& solve();
  double rate(Slot slot) const { return flows_[slot].rate; }
  double used(LinkId link) const;  // bytes per second
  double capacity(LinkId link) const { return links_[link].capacity; }
  std::span<const LinkId> route(Slot slot) const { return flows_[slot].route; }
  template <typename Function>
  void for_each_on(LinkId link, Function&& f) const {
    for (const auto& member : links_[link].flows) f(member.slot);
  }
  std::size_t flows_on(LinkId link) const { return links_[link].flows.size(); }
  const std::vector<LinkId>& touched() const { return touched_; }  // links whose use the last solve() may have changed

 private:
  struct Member {
    Slot slot;
    std::uint32_t position;  // of the link in the flow's route
  };
  struct LinkState {
    double capacity = 0;
    std::vector<Member> flows;
    // While solving:
    bool touched = false, dirty = false;
    double left = 0;         // what the flows that are not settled may take
    std::uint32_t open = 0;  // such flows
    double level = 0;        // of its own flows, once it is a bottleneck
  };
  struct FlowState {
    std::span<const LinkId> route;
    std::vector<std::uint32_t> positions;  // in the links' lists
    double rate = 0, solved = 0;
    LinkId bottleneck = -1;
    bool affected = false, settled = false;
  };
  struct Candidate {
    double level;
    LinkId link;
  };

  void mark(LinkId link);
  void affect(Slot slot);
  void touch(LinkId link);
  void fill();
  void settle(Slot slot, LinkId bottleneck, double level);
  bool grow();
  double rate_now(Slot slot) const { return flows_[slot].affected ? flows_[slot].solved : flows_[slot].rate; }
  double share(LinkId link) const;

  std::vector<LinkState> links_;
  std::vector<FlowState> flows_;
  std::vector<Slot> free_;
  std::vector<LinkId> dirty_;
  // While solving:
  std::vector<Slot> affected_;
  std::vector<LinkId> touched_;
  std::vector<Candidate> heap_;
  std::vector<Change> changed_;
};

}  // namespace prism::simulate
