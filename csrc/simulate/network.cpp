#include "simulate/network.hpp"

#include <fmt/format.h>

namespace prism::simulate {

std::optional<Network::Way> Network::way(const Message&) const { return std::nullopt; }
bool Network::hold(std::uint32_t, std::span<const Way>, Holder&) { return false; }
void Network::release(std::uint32_t, std::span<const Way>) {}
void Network::resume(Picoseconds, Picoseconds, const Way&) {}
void Network::arrived_alone(Picoseconds, const Way&) {}

Result<NetworkKind> network_kind(std::string_view name) {
  if (name == "closed") return NetworkKind::kClosedForm;
  if (name == "flow") return NetworkKind::kFlowLevel;
  if (name == "nic") return NetworkKind::kOccupancy;
  if (name == "ns3") return NetworkKind::kPacketLevel;
  return Error{ErrorCode::kInvalidInput, fmt::format("network '{}'; accepted: closed, flow, nic, ns3", name)};
}

Result<std::unique_ptr<Network>> make_network(NetworkKind kind, const Topology& topology, const std::string& program) {
  switch (kind) {
    case NetworkKind::kClosedForm:
      return closed_form(topology);
    case NetworkKind::kOccupancy:
      return occupancy(topology);
    case NetworkKind::kPacketLevel:
      return packet_level(topology, program);
    case NetworkKind::kFlowLevel:
      break;
  }
  return flow_level(topology);
}

}  // namespace prism::simulate
