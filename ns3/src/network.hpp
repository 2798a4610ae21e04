// SPDX-License-Identifier: GPL-2.0-only
// A topology as ns-3 nodes, made as ways come to need them: a node per vertex, point-to-point links with queues that
// mark.
#pragma once
#include <ns3/internet-module.h>
#include <ns3/point-to-point-module.h>

#include <cstdint>
#include <span>
#include <vector>

#include "marking_queue.hpp"
#include "ways.hpp"

namespace prism_ns3 {

using LinkId = std::uint32_t;

struct Link {
  std::uint32_t from = 0, to = 0;  // vertices
  double bytes_per_second = 0;     // of packets, with their headers
  std::int64_t latency_ps = 0;
};

struct Endpoint {
  std::uint32_t vertex = 0;
  std::int32_t host = -1;  // whose processors its messages take
};

struct Topology {
  std::uint32_t vertices = 0;
  std::vector<Link> links;
  std::vector<Endpoint> endpoints;
  std::vector<std::int64_t> host_message_ps;
};

// Bytes: of an IP packet; of what TCP/IP puts before the data (20 + 20, 12 of them options); of PPP's header on the
// link.
inline constexpr std::uint32_t kMtu = 9000, kHeaders = 52, kFraming = 2, kData = kMtu - kHeaders;

class Network {
 public:
  explicit Network(Topology topology);

  const Topology& topology() const { return topology_; }
  ns3::Ptr<ns3::Node> endpoint(std::uint32_t endpoint) const { return directory_.node_of[endpoint]; }
  // Packets from endpoint `from` to `to` take these links, up to `window` data packets at a time; 0: acknowledgements.
  // Refused: links that do not lead there.
  void lead(std::uint32_t from, std::uint32_t to, std::span<const LinkId> links, std::uint32_t window);
  Directory& directory() { return directory_; }
  // As many data packets as keep the way full until the first one is acknowledged.
  std::uint32_t window(std::span<const LinkId> there, std::span<const LinkId> back) const;

 private:
  ns3::Ptr<ns3::Node> node(std::uint32_t vertex);
  struct Way {  // into a link
    ns3::Ptr<ns3::NetDevice> device;
    ns3::Ptr<MarkingQueue> queue;
  };
  const Way& way(LinkId link);
  static Way attach(ns3::Ptr<ns3::NetDevice> device, const Link& link);

  const Topology topology_;
  std::vector<std::int64_t> twin_;  // [links] the other direction of the same cable, -1: none
  std::vector<Way> ways_;           // [links] null: not made yet
  std::vector<ns3::Ptr<ns3::Node>> nodes_;
  Directory directory_;
};

}  // namespace prism_ns3
