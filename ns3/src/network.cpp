// SPDX-License-Identifier: GPL-2.0-only
#include "network.hpp"

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "refused.hpp"

namespace prism_ns3 {
namespace {

constexpr double kMostPackets = 50'000;  // of a window, which TCP tells as a number of 16 bits

std::vector<std::int64_t> twins(const std::vector<Link>& links) {
  std::vector<std::int64_t> twin(links.size(), -1);
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<LinkId>> alone;
  for (LinkId id = 0; id < links.size(); ++id) {
    auto& back = alone[{links[id].to, links[id].from}];
    const auto found = std::find_if(back.begin(), back.end(),
                                    [&](LinkId one) { return links[one].latency_ps == links[id].latency_ps; });
    if (found == back.end()) {
      alone[{links[id].from, links[id].to}].push_back(id);
      continue;
    }
    twin[id] = *found;
    twin[*found] = id;
    back.erase(found);
  }
  return twin;
}

}  // namespace

Network::Network(Topology topology)
    : topology_(std::move(topology)),
      twin_(twins(topology_.links)),
      ways_(topology_.links.size()),
      nodes_(topology_.vertices) {
  directory_.node_of.resize(topology_.endpoints.size());
}

ns3::Ptr<ns3::Node> Network::node(std::uint32_t vertex) {
  auto& node = nodes_[vertex];
  if (!node) {
    node = ns3::CreateObject<ns3::Node>();
    ns3::InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.SetRoutingHelper(WaysHelper(directory_));
    stack.Install(node);
    node->Initialize();
  }
  return node;
}

Network::Way Network::attach(ns3::Ptr<ns3::NetDevice> device, const Link& link) {
  // ns-3 counts in whole bits per second.
  ns3::DynamicCast<ns3::PointToPointNetDevice>(device)->SetDataRate(
      ns3::DataRate(static_cast<std::uint64_t>(std::llround(link.bytes_per_second * 8))));
  ns3::TrafficControlHelper queues;
  queues.SetRootQueueDisc(MarkingQueue::GetTypeId().GetName());
  const auto queue = queues.Install(device).Get(0);
  // ns-3 does these once for a node, before its first packet; here links come later, too.
  queue->Initialize();
  device->GetNode()->GetObject<ns3::TrafficControlLayer>()->ScanDevices();
  const auto ipv4 = device->GetNode()->GetObject<ns3::Ipv4>();
  ipv4->SetUp(ipv4->AddInterface(device));
  return {device, ns3::DynamicCast<MarkingQueue>(queue)};
}

const Network::Way& Network::way(LinkId id) {
  if (!ways_[id].device) {
    const auto& link = topology_.links[id];
    ns3::PointToPointHelper cable;
    cable.SetDeviceAttribute("Mtu", ns3::UintegerValue(kMtu));
    cable.SetChannelAttribute("Delay", ns3::TimeValue(ns3::PicoSeconds(link.latency_ps)));
    cable.SetQueue("ns3::DropTailQueue", "MaxSize", ns3::QueueSizeValue(ns3::QueueSize("1p")));
    const auto devices = cable.Install(node(link.from), node(link.to));
    ways_[id] = attach(devices.Get(0), link);
    const auto back = twin_[id];
    const auto other = attach(devices.Get(1), back < 0 ? link : topology_.links[back]);
    if (back >= 0) ways_[back] = other;
  }
  return ways_[id];
}

void Network::lead(std::uint32_t from, std::uint32_t to, std::span<const LinkId> links, std::uint32_t window) {
  auto at = topology_.endpoints[from].vertex;
  for (const auto id : links) {
    if (topology_.links[id].from != at)
      throw Refused("link " + std::to_string(id) + " begins at vertex " + std::to_string(topology_.links[id].from) +
                    "; accepted: one from vertex " + std::to_string(at));
    at = topology_.links[id].to;
  }
  const auto end = topology_.endpoints[to].vertex;
  if (at != end)
    throw Refused("a way to vertex " + std::to_string(at) + "; accepted: to vertex " + std::to_string(end));
  for (const auto id : links) {
    const auto& [device, queue] = way(id);
    queue->hold(window);
    ns3::DynamicCast<Ways>(device->GetNode()->GetObject<ns3::Ipv4>()->GetRoutingProtocol())
        ->add(from, to, device, window > 0);
  }
  for (const auto one : {from, to}) directory_.node_of[one] = node(topology_.endpoints[one].vertex);
}

std::uint32_t Network::window(std::span<const LinkId> there, std::span<const LinkId> back) const {
  double slowest_s = 0, round_trip_s = 0;
  const auto pass = [&](std::span<const LinkId> way, int packets) {
    for (const auto id : way) {
      const auto& link = topology_.links[id];
      const double packet_s = (kMtu + kFraming) / link.bytes_per_second;
      if (packets == 1) slowest_s = std::max(slowest_s, packet_s);
      round_trip_s += static_cast<double>(link.latency_ps) * 1e-12 + packets * packet_s;
    }
  };
  pass(there, 1);
  pass(back, 2);  // an acknowledgement waits for the packet that is being sent, and for the one that is about to be
  // One for the packet of which a part is left, one because TCP tells its window in units of almost a packet.
  return static_cast<std::uint32_t>(std::clamp(std::ceil(round_trip_s / slowest_s) + 2, 3.0, kMostPackets));
}

}  // namespace prism_ns3
