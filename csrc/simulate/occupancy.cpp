// The network of endpoints that are busy while they send and receive.
#include <algorithm>
#include <vector>

#include "simulate/flow_observer.hpp"
#include "simulate/message_stages.hpp"

namespace prism::simulate {
namespace {

class Occupancy final : public StagedNetwork {
 public:
  explicit Occupancy(const Topology& topology)
      : StagedNetwork(topology, true), sends_until_(topology.endpoints()), receives_until_(topology.endpoints()) {}

 private:
  // The narrowest link's rate is that of the whole way.
  Picoseconds passing_time(const Message& message, std::span<const LinkId> route) const override {
    double rate = topology().links()[route[0]].bytes_per_second;
    for (const auto link : route) rate = std::min(rate, topology().links()[link].bytes_per_second);
    return transfer_time(static_cast<double>(message.bytes), rate);
  }

  Picoseconds leaves(Picoseconds at, const Message& message, std::span<const LinkId> route) override {
    if (route.empty() || message.bytes == 0) return at;
    auto& until = sends_until_[message.from];
    const auto begins = std::max(at, until);
    until = later(begins, passing_time(message, route));
    return begins;
  }

  void pass(Picoseconds at, const Message& message, std::span<const LinkId> route) override {
    auto& until = receives_until_[message.to];
    const auto begins = std::max(at, until);
    until = later(begins, passing_time(message, route));
    if (observer()) observer()->passed(begins, until, static_cast<double>(message.bytes), route);
    arrivals_.post(until, {message, route});
  }
  Picoseconds next_arrival() const override { return arrivals_.next(); }
  void arrive(Picoseconds at) override {
    const auto [message, route] = arrivals_.pop();
    if (observer()) observer()->ended(at, message, route);
    arrived(at, message, route);
  }

  std::vector<Picoseconds> sends_until_, receives_until_;  // [endpoints]
  EventQueue<Passing> arrivals_;
};

}  // namespace

std::unique_ptr<Network> occupancy(const Topology& topology) { return std::make_unique<Occupancy>(topology); }

}  // namespace prism::simulate
