// What every network does with a message before and after its bytes pass: the time that it takes on the processors of
// the two hosts, first come, first served, and the latency of its way. On a connection it waits for those before it.
#pragma once
#include <deque>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "simulate/event_queue.hpp"
#include "simulate/flow_observer.hpp"

namespace prism::simulate {

class StagedNetwork : public Network {
 public:
  explicit StagedNetwork(const Topology& topology);

  Result<void> send(Picoseconds at, const Message& message) final;
  Picoseconds begin_operation(std::int32_t endpoint, Picoseconds at) final;
  Picoseconds copy(std::int32_t endpoint, Picoseconds at, std::int64_t bytes) final;
  Picoseconds next() const final { return std::min(stages_.next(), next_arrival()); }
  void advance(Picoseconds until, std::vector<Delivery>& delivered) final;
  void observe(FlowObserver& observer) final { observer_ = &observer; }

 protected:
  // When a message that is ready at `at` begins to leave.
  virtual Picoseconds leaves(Picoseconds at, const Message&, std::span<const LinkId>) { return at; }
  // The bytes of a message begin to pass over `route`, which is not empty.
  virtual void pass(Picoseconds at, const Message& message, std::span<const LinkId> route) = 0;
  // Further things that the network has to do, e.g. ends of messages: at next_arrival(), do arrive(), which hands
  // messages whose bytes have passed to arrived().
  virtual Picoseconds next_arrival() const = 0;
  virtual void arrive(Picoseconds at) = 0;
  // Called once all that begins or ends at `at` is known.
  virtual void settle(Picoseconds) {}
  void arrived(Picoseconds at, const Message& message);
  const Topology& topology() const { return topology_; }
  struct Passing {
    Message message;
    std::span<const LinkId> route;
  };
  FlowObserver* observer() const { return observer_; }

 private:
  enum class Stage : std::uint8_t { kReady, kPasses, kNext, kTaken };
  struct Event {
    Stage stage;
    Message message;
    std::span<const LinkId> route;
  };
  // When its turn on the host's processors is over, of which it needs so much (as there is for its host).
  Picoseconds on_host(int endpoint, Picoseconds at, const std::vector<Picoseconds>& needs);
  Picoseconds on_host(std::int32_t host, Picoseconds at, Picoseconds needs);
  void handle(Picoseconds at, const Event& event);
  // Of the connection that this message was the first of, the next one.
  void next_of_connection(Picoseconds at, const Message& message);
  void received(Picoseconds at, const Message& message);

  const Topology& topology_;
  FlowObserver* observer_ = nullptr;
  EventQueue<Event> stages_;
  std::vector<std::vector<Picoseconds>> host_free_;  // [hosts][processors] when
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::deque<Passing>>
      connections_;             // in use: who waits
  std::vector<Delivery> done_;  // at the time in hand
};

}  // namespace prism::simulate
