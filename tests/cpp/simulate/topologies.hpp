// Networks and what happens on them, for the tests of the simulator.
#pragma once
#include <vector>

#include "simulate/network.hpp"

namespace prism::simulate::testing {

constexpr Picoseconds kMicrosecond = 1'000'000, kMillisecond = 1'000 * kMicrosecond, kSecond = 1'000 * kMillisecond;

// Endpoints in a row of vertices 0 to `endpoints` - 1 and links between any vertices; the vertices after them are
// switches.
inline Topology wired(int endpoints, int switches, std::vector<Link> links) {
  TopologySpec spec;
  spec.vertices = endpoints + switches;
  for (int i = 0; i < endpoints; ++i) spec.endpoint.push_back(i);
  spec.links = std::move(links);
  for (auto& link : spec.links)
    if (link.line_bytes_per_second == 0) link.line_bytes_per_second = link.bytes_per_second;
  return Topology::make(std::move(spec)).value();
}

// Sends all, lets time go on as long as anything happens; the times of arrival by the messages' order.
struct Sent {
  Picoseconds at;
  int from, to;
  std::int64_t bytes;
};
inline std::vector<Picoseconds> arrivals(Network& network, const std::vector<Sent>& sent) {
  std::vector<Picoseconds> at(sent.size(), kNever);
  for (std::size_t i = 0; i < sent.size(); ++i)
    if (!network.send(sent[i].at, {i, sent[i].from, sent[i].to, sent[i].bytes})) return {};
  std::vector<Delivery> delivered;
  while (network.next() != kNever)
    if (!network.advance(kNever, delivered)) return {};
  for (const auto& one : delivered) at[one.id] = one.at;
  return at;
}

}  // namespace prism::simulate::testing
