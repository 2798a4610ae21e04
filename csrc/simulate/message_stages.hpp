// What every network does with a message before and after its bytes pass: the time that it takes on the processors of
// the two hosts, first come, first served, and the latency of its way.
#pragma once
#include <utility>
#include <vector>

#include "simulate/event_queue.hpp"
#include "simulate/flow_observer.hpp"

namespace prism::simulate {

class StagedNetwork : public Network {
 public:
  explicit StagedNetwork(const Topology& topology)
      : topology_(topology), host_free_(topology.spec().host_message.size()) {}

  Result<void> send(Picoseconds at, const Message& message) final;
  Picoseconds next() const final { return std::min(stages_.next(), next_arrival()); }
  Result<void> advance(Picoseconds until, std::vector<Delivery>& delivered) final;
  void observe(FlowObserver& observer) final { observer_ = &observer; }
  std::uint64_t events() const final { return events_; }

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
  enum class Stage : std::uint8_t { kReady, kPasses, kTaken };
  struct Event {
    Stage stage;
    Message message;
    std::span<const LinkId> route;
  };
  Picoseconds on_host(int endpoint, Picoseconds at);  // when its turn on the host's processors is over
  void handle(Picoseconds at, const Event& event);

  const Topology& topology_;
  FlowObserver* observer_ = nullptr;
  EventQueue<Event> stages_;
  std::vector<Picoseconds> host_free_;
  std::vector<Delivery> done_;  // at the time in hand
  std::uint64_t events_ = 0;
};

}  // namespace prism::simulate
