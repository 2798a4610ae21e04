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
  return Error{ErrorCode::kInvalidInput, fmt::format("network '{}'; accepted: closed, flow, nic", name)};
}

std::unique_ptr<Network> make_network(NetworkKind kind, const Topology& topology) {
  switch (kind) {
    case NetworkKind::kClosedForm:
      return closed_form(topology);
    case NetworkKind::kOccupancy:
      return occupancy(topology);
    case NetworkKind::kFlowLevel:
      break;
  }
  return flow_level(topology);
}

}  // namespace prism::simulate
