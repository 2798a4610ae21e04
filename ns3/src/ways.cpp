// SPDX-License-Identifier: GPL-2.0-only
#include "ways.hpp"

namespace prism_ns3 {
namespace {

constexpr std::uint32_t kLoopback = 0;  // ns-3's interface 0

}  // namespace

ns3::TypeId Ways::GetTypeId() {
  static const auto id = ns3::TypeId("prism_ns3::Ways").SetParent<ns3::Ipv4RoutingProtocol>();
  return id;
}

ns3::Ptr<ns3::Ipv4Route> Ways::route(const ns3::Ipv4Header& header, ns3::Ptr<ns3::NetDevice> device) const {
  auto route = ns3::Create<ns3::Ipv4Route>();
  route->SetSource(header.GetSource());
  route->SetDestination(header.GetDestination());
  route->SetGateway(ns3::Ipv4Address::GetAny());
  route->SetOutputDevice(device);
  return route;
}

ns3::Ptr<ns3::NetDevice> Ways::way(const ns3::Ipv4Header& header) {
  const auto found = devices_.find(Directory::pair(header));
  if (found == devices_.end()) return nullptr;
  ++directory_.packets;
  return found->second;
}

bool Ways::connects(ns3::Ptr<const ns3::Packet> packet, const ns3::Ipv4Header& header) const {
  if (directory_.connecting_pairs.empty()) return false;
  ns3::TcpHeader tcp;
  packet->PeekHeader(tcp);
  auto pair = Directory::pair(header);
  if (tcp.GetDestinationPort() != Directory::kPort) pair = pair << 32 | pair >> 32;  // from the receiver
  return directory_.connecting_pairs.count(pair) > 0;
}

ns3::Ptr<ns3::Ipv4Route> Ways::RouteOutput(ns3::Ptr<ns3::Packet> packet, const ns3::Ipv4Header& header,
                                           ns3::Ptr<ns3::NetDevice>, ns3::Socket::SocketErrno& error) {
  error = ns3::Socket::ERROR_NOTERROR;
  if (!packet) {
    auto before = route(header, ipv4_->GetNetDevice(kLoopback));
    before->SetSource(Directory::address(directory_.connecting));
    return before;
  }
  if (connects(packet, header)) return route(header, ipv4_->GetNetDevice(kLoopback));
  if (auto device = way(header)) return route(header, device);
  error = ns3::Socket::ERROR_NOROUTETOHOST;
  return nullptr;
}

bool Ways::RouteInput(ns3::Ptr<const ns3::Packet> packet, const ns3::Ipv4Header& header,
                      ns3::Ptr<const ns3::NetDevice> device, const UnicastForwardCallback& forward,
                      const MulticastForwardCallback&, const LocalDeliverCallback& deliver, const ErrorCallback&) {
  if (device == ipv4_->GetNetDevice(kLoopback)) {
    deliver_at_once(packet, header);
  } else if (auto next = way(header)) {
    forward(route(header, next), packet, header);
  } else {
    deliver(packet, header, static_cast<std::uint32_t>(ipv4_->GetInterfaceForDevice(device)));
  }
  return true;
}

void Ways::deliver_at_once(ns3::Ptr<const ns3::Packet> packet, const ns3::Ipv4Header& header) const {
  const auto node = directory_.node_of.at(Directory::endpoint(header.GetDestination()));
  ns3::Simulator::ScheduleWithContext(node->GetId(), ns3::Time(0), [node, header, copy = packet->Copy()] {
    const auto interface = node->GetObject<ns3::Ipv4L3Protocol>()->GetInterface(kLoopback);
    node->GetObject<ns3::TcpL4Protocol>()->Receive(copy, header, interface);
  });
}

}  // namespace prism_ns3
