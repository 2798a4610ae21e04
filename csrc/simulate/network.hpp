// The seam between those who send messages (collectives, graphs) and how a network carries them. Driven from outside:
// time goes on only by advance(). One thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/result.hpp"
#include "simulate/picoseconds.hpp"
#include "simulate/topology.hpp"

namespace prism::simulate {

struct Message {
  std::uint64_t id = 0;           // the sender's; breaks ties: earlier numbers are delivered first
  std::int32_t from = 0, to = 0;  // endpoints
  std::int64_t bytes = 0;
  std::int32_t connection = -1;  // those of one, from one endpoint to another, pass one after the other; -1: of none
};

struct Delivery {
  Picoseconds at = 0;
  std::uint64_t id = 0;
};

class FlowObserver;

class Network {
 public:
  virtual ~Network() = default;
  // Ready to leave at `at`, which is not before the time to which the network has advanced. kInvalidInput: an endpoint
  // that does not exist or cannot be reached, a negative size.
  virtual Result<void> send(Picoseconds at, const Message& message) = 0;
  // Who takes part in an operation comes at `at`, not before the network's time: when its host is ready for messages.
  virtual Picoseconds begin_operation(std::int32_t endpoint, Picoseconds at) {
    static_cast<void>(endpoint);
    return at;
  }
  // From `at` on it copies bytes, on its host's processors: when that is over.
  virtual Picoseconds copy(std::int32_t endpoint, Picoseconds at, std::int64_t bytes) {
    static_cast<void>(endpoint), static_cast<void>(bytes);
    return at;
  }
  // The earliest time at which anything happens that is known now; kNever.
  virtual Picoseconds next() const = 0;
  // Lets time go on to `until`; appends what has been delivered, by (time, id). Called with next() or an earlier time,
  // so that what a delivery sets off can be sent before time goes on.
  virtual void advance(Picoseconds until, std::vector<Delivery>& delivered) = 0;
  // Before the first message; the observer outlives the network.
  virtual void observe(FlowObserver& observer) = 0;
};

// Latency and size over the narrowest link, whatever else is under way. Host time as in flow_level().
std::unique_ptr<Network> closed_form(const Topology& topology);
// Messages share links max-min fairly, after their latency has passed (SimGrid's CM02). A message takes its time on the
// processors of its sender's host, one after the other, then the latency of its links and its bytes over them at once,
// then its time on those of the receiver's host.
std::unique_ptr<Network> flow_level(const Topology& topology);
// Endpoints send one message after the other and receive one after the other, each at the rate of its way's narrowest
// link; nothing between the endpoints is shared (the occupancy of LogGP, with a gap per byte only). A message is
// received while it is sent, a latency later.
std::unique_ptr<Network> occupancy(const Topology& topology);

enum class NetworkKind { kClosedForm, kFlowLevel, kOccupancy };
// "closed", "flow", "nic"; kInvalidInput names them.
Result<NetworkKind> network_kind(std::string_view name);
std::unique_ptr<Network> make_network(NetworkKind kind, const Topology& topology);

}  // namespace prism::simulate
