// The network without sharing.
#include <algorithm>
#include <limits>

#include "simulate/message_stages.hpp"

namespace prism::simulate {
namespace {

class ClosedForm final : public StagedNetwork {
 public:
  explicit ClosedForm(const Topology& topology) : StagedNetwork(topology, false) {}

 private:
  Picoseconds passing_time(const Message& message, std::span<const LinkId> route) const override {
    Picoseconds longest = 0;
    for (const auto id : route) {
      const auto& link = topology().links()[id];
      const auto bytes = static_cast<double>(message.bytes);
      // What min(line x t, burst + rate x t) takes; a burst is there for every message.
      const auto at_line = transfer_time(bytes, link.line_bytes_per_second);
      const auto burst = static_cast<double>(link.burst_bytes);
      longest = std::max({longest, at_line, transfer_time(std::max(bytes - burst, 0.0), link.bytes_per_second)});
    }
    return longest;
  }
  void pass(Picoseconds at, const Message& message, std::span<const LinkId> route) override {
    const auto until = later(at, passing_time(message, route));
    if (observer()) observer()->passed(at, until, static_cast<double>(message.bytes), route);
    arrivals_.post(until, {message, route});
  }
  Picoseconds next_arrival() const override { return arrivals_.next(); }
  void arrive(Picoseconds at) override {
    const auto [message, route] = arrivals_.pop();
    if (observer()) observer()->ended(at, message, route);
    arrived(at, message, route);
  }

  EventQueue<Passing> arrivals_;
};

}  // namespace

std::unique_ptr<Network> closed_form(const Topology& topology) { return std::make_unique<ClosedForm>(topology); }

}  // namespace prism::simulate
