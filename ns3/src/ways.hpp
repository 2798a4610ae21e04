// SPDX-License-Identifier: GPL-2.0-only
// Routing by both ends of a packet, over ways that are given: the routes of the simulator that asks, not of a protocol.
#pragma once
#include <ns3/internet-module.h>

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace prism_ns3 {

// What all nodes share.
struct Directory {
  std::vector<ns3::Ptr<ns3::Node>> node_of;  // by endpoint
  std::uint64_t packets = 0;                 // handed to links
  // pair() of connections that are being made. This takes no time and no link, since they are there before the job
  // begins (NCCL's are).
  std::unordered_set<std::uint64_t> connecting_pairs;
  // ns-3 asks for the way before it knows the sender's address: that of the endpoint which connects just now.
  std::uint32_t connecting = 0;

  static constexpr std::uint16_t kPort = 1;  // at which receivers listen
  static std::uint64_t pair(std::uint32_t from, std::uint32_t to) { return std::uint64_t{from} << 32 | to; }
  static std::uint64_t pair(const ns3::Ipv4Header& header) {
    return pair(endpoint(header.GetSource()), endpoint(header.GetDestination()));
  }
  static ns3::Ipv4Address address(std::uint32_t endpoint) { return ns3::Ipv4Address(kFirst + endpoint); }
  static std::uint32_t endpoint(ns3::Ipv4Address address) { return address.Get() - kFirst; }

 private:
  static constexpr std::uint32_t kFirst = 0x0a000001;  // 10.0.0.1
};

class Ways final : public ns3::Ipv4RoutingProtocol {
 public:
  static ns3::TypeId GetTypeId();
  explicit Ways(Directory& directory) : directory_(directory) {}

  // Packets from endpoint `from` to `to` leave this node by `device`: data, or acknowledgements as well where no data
  // have a way of their own.
  void add(std::uint32_t from, std::uint32_t to, ns3::Ptr<ns3::NetDevice> device, bool data) {
    auto& known = devices_[Directory::pair(from, to)];
    if (data || !known) known = device;
  }

  ns3::Ptr<ns3::Ipv4Route> RouteOutput(ns3::Ptr<ns3::Packet> packet, const ns3::Ipv4Header& header,
                                       ns3::Ptr<ns3::NetDevice>, ns3::Socket::SocketErrno& error) override;
  bool RouteInput(ns3::Ptr<const ns3::Packet> packet, const ns3::Ipv4Header& header,
                  ns3::Ptr<const ns3::NetDevice> device, const UnicastForwardCallback& forward,
                  const MulticastForwardCallback&, const LocalDeliverCallback& deliver,
                  const ErrorCallback& error) override;
  void SetIpv4(ns3::Ptr<ns3::Ipv4> ipv4) override { ipv4_ = ipv4; }
  void NotifyInterfaceUp(std::uint32_t) override {}
  void NotifyInterfaceDown(std::uint32_t) override {}
  void NotifyAddAddress(std::uint32_t, ns3::Ipv4InterfaceAddress) override {}
  void NotifyRemoveAddress(std::uint32_t, ns3::Ipv4InterfaceAddress) override {}
  void PrintRoutingTable(ns3::Ptr<ns3::OutputStreamWrapper>, ns3::Time::Unit) const override {}

 private:
  ns3::Ptr<ns3::Ipv4Route> route(const ns3::Ipv4Header& header, ns3::Ptr<ns3::NetDevice> device) const;
  ns3::Ptr<ns3::NetDevice> way(const ns3::Ipv4Header& header);  // null: none from here
  bool connects(ns3::Ptr<const ns3::Packet> packet, const ns3::Ipv4Header& header) const;
  void deliver_at_once(ns3::Ptr<const ns3::Packet> packet, const ns3::Ipv4Header& header) const;

  Directory& directory_;
  ns3::Ptr<ns3::Ipv4> ipv4_;
  std::unordered_map<std::uint64_t, ns3::Ptr<ns3::NetDevice>> devices_;  // by pair
};

// For ns3::InternetStackHelper.
class WaysHelper final : public ns3::Ipv4RoutingHelper {
 public:
  explicit WaysHelper(Directory& directory) : directory_(directory) {}
  WaysHelper* Copy() const override { return new WaysHelper(directory_); }
  ns3::Ptr<ns3::Ipv4RoutingProtocol> Create(ns3::Ptr<ns3::Node>) const override {
    return ns3::Create<Ways>(directory_);
  }

 private:
  Directory& directory_;
};

}  // namespace prism_ns3
