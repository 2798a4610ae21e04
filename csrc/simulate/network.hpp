// The seam between those who send messages (collectives, graphs) and how a network carries them. Driven from outside:
// time goes on only by advance(). One thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
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

// Has ways for its own messages, and loses them once another message needs what they use.
class Holder {
 public:
  virtual ~Holder() = default;
  // Before another message is sent at `at`; release() and resume() are called in here.
  virtual void disturbed(std::uint32_t hold, Picoseconds at) = 0;
};

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
  // How long a word that is said at `at`, now, waits behind what is being sent on its way; its latency counts
  // elsewhere.
  virtual Picoseconds word_waits(Picoseconds at, std::int32_t from, std::int32_t to) const {
    static_cast<void>(at), static_cast<void>(from), static_cast<void>(to);
    return 0;
  }
  // Nothing happens before this time; kNever: nothing will, unless something is sent.
  virtual Picoseconds next() const = 0;
  // Lets time go on to the first moment at which anything is delivered, so that what this sets off can be sent, but not
  // beyond `until`; appends what is delivered then, by id. kPeerFailed, kTimeout, kInvalidInput, kIo: a process that
  // the network runs in has failed.
  virtual Result<void> advance(Picoseconds until, std::vector<Delivery>& delivered) = 0;
  // Before the first message; the observer outlives the network.
  virtual void observe(FlowObserver& observer) = 0;
  // Whether anybody needs to be told of messages that are not sent, see arrived_alone().
  virtual bool observed() const { return true; }

  // For messages whose times follow by arithmetic while nothing comes in between, so that they need not be sent.
  struct Way {
    Message message;  // each has these ends and this size
    std::span<const LinkId> route;
    Picoseconds latency, passing;           // how long one takes with nothing else on the way: both
    std::optional<std::uint64_t> own = {};  // the holder's message that is under way on it
  };
  // nullopt where the time depends on what was before, or no way leads there.
  virtual std::optional<Way> way(const Message& message) const;
  // False, and nothing held, where the ways share something with each other or with another message under way.
  virtual bool hold(std::uint32_t hold, std::span<const Way> ways, Holder& holder);
  virtual void release(std::uint32_t hold, std::span<const Way> ways);
  // Of a message that left at `left` and has had its way for itself until now, when it has not arrived.
  virtual void resume(Picoseconds left, Picoseconds now, const Way& way);
  // One that has arrived like that, for the observer.
  virtual void arrived_alone(Picoseconds left, const Way& way);
  // Moments at which anything was simulated.
  virtual std::uint64_t events() const = 0;
  // That links have carried; 0 where there are none.
  virtual std::uint64_t packets() const { return 0; }
  // Whether messages on an idle network depend on what passed before.
  virtual bool has_memory() const { return false; }
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

// Packets over TCP (DCTCP) by ns-3, in the process of `program`, the path of prism-ns3; the rates of links are those of
// packets with their headers. `silence`: how long the program may take to start, or to say that it is at work.
// kIo: it cannot be started; kInvalidInput: a link with a burst, or what it does not accept; kPeerFailed, kTimeout.
Result<std::unique_ptr<Network>> packet_level(const Topology& topology, const std::string& program,
                                              std::chrono::nanoseconds silence = std::chrono::minutes(1));

enum class NetworkKind { kClosedForm, kFlowLevel, kOccupancy, kPacketLevel };
// "closed", "flow", "nic", "ns3"; kInvalidInput names them.
Result<NetworkKind> network_kind(std::string_view name);
// `program`: of packet_level(), whose errors come out here.
Result<std::unique_ptr<Network>> make_network(NetworkKind kind, const Topology& topology, const std::string& program);

}  // namespace prism::simulate
