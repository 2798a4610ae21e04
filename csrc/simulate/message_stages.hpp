// What every network does with a message before and after its bytes pass: the time that it takes on the processors of
// the two hosts, first come, first served, and the latency of its way. On a connection it waits for those before it.
// Counts who uses what may be shared, for those who hold ways for themselves.
#pragma once
#include <algorithm>
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
  // `busy_endpoints`: endpoints send and receive one message after the other.
  StagedNetwork(const Topology& topology, bool busy_endpoints);

  Result<void> send(Picoseconds at, const Message& message) final;
  Picoseconds begin_operation(std::int32_t endpoint, Picoseconds at) final;
  Picoseconds copy(std::int32_t endpoint, Picoseconds at, std::int64_t bytes) final;
  Picoseconds word_waits(Picoseconds at, std::int32_t from, std::int32_t to) const final;
  Picoseconds next() const final { return std::min(stages_.next(), next_arrival()); }
  Result<void> advance(Picoseconds until, std::vector<Delivery>& delivered) final;
  void observe(FlowObserver& observer) final { observer_ = &observer; }
  bool observed() const final { return observer_ != nullptr; }
  std::uint64_t events() const final { return events_; }

  std::optional<Way> way(const Message& message) const final;
  bool hold(std::uint32_t hold, std::span<const Way> ways, Holder& holder) final;
  void release(std::uint32_t hold, std::span<const Way> ways) final;
  void resume(Picoseconds left, Picoseconds now, const Way& way) final;
  void arrived_alone(Picoseconds left, const Way& way) final;

 protected:
  // How long the bytes of a message pass with nothing else on the way; kNever where that depends on what was before.
  virtual Picoseconds passing_time(const Message& message, std::span<const LinkId> route) const = 0;
  // When a message that is ready at `at` begins to leave.
  virtual Picoseconds leaves(Picoseconds at, const Message&, std::span<const LinkId>) { return at; }
  // The bytes of a message begin to pass over `route`, which is not empty.
  virtual void pass(Picoseconds at, const Message& message, std::span<const LinkId> route) = 0;
  // Further things that the network has to do, e.g. ends of messages: at next_arrival(), do arrive(), which hands
  // messages whose bytes have passed to arrived().
  virtual Picoseconds next_arrival() const = 0;
  virtual void arrive(Picoseconds at) = 0;
  // What words wait for on a link: of each message whose bytes pass, and lie in front of that link, what is left, up to
  // TopologySpec::queue_bytes.
  virtual double queued(LinkId link, Picoseconds) const {
    return passing_[link] > 0 ? static_cast<double>(topology_.spec().queue_bytes) : 0.0;
  }
  // The first of the slowest links.
  LinkId narrowest(std::span<const LinkId> route) const;
  // Called once all that begins or ends at `at` is known.
  virtual void settle(Picoseconds) {}
  void arrived(Picoseconds at, const Message& message, std::span<const LinkId> route);
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
  // Of a link, or an endpoint that sends or receives: the messages that have been sent and not delivered, and the hold.
  // Links count where nothing is shared, too: what passes over one is told of in the order of time.
  struct Use {
    std::uint32_t messages = 0;
    std::uint32_t hold = kNobody;
    std::uint64_t ids = 0;  // the sum of theirs, modulo 2^64
    void add(const Message& message) { ++messages, ids += message.id; }
    void remove(const Message& message) { --messages, ids -= message.id; }
  };
  static constexpr std::uint32_t kNobody = 0xffffffffu;

  // When its turn on the host's processors is over, of which it needs so much (as there is for its host).
  Picoseconds on_host(int endpoint, Picoseconds at, const std::vector<Picoseconds>& needs);
  Picoseconds on_host(std::int32_t host, Picoseconds at, Picoseconds needs);
  Picoseconds latency(std::span<const LinkId> route) const;
  bool has_queues() const { return !ready_.empty(); }
  // Of a message that is with its sender's host, in front of its narrowest link.
  void count_ready(const Message& message, std::span<const LinkId> route, double sign);
  void handle(Picoseconds at, const Event& event);
  // Of the connection that this message was the first of, the next one.
  void next_of_connection(Picoseconds at, const Message& message);
  void received(Picoseconds at, const Message& message, std::span<const LinkId> route);
  void deliver(Picoseconds at, const Message& message, std::span<const LinkId> route);
  template <typename Function>
  void for_each_use(const Message& message, std::span<const LinkId> route, Function&& f) {
    for (const auto link : route) f(uses_[link]);
    if (!busy_endpoints_) return;
    const auto endpoints = topology_.links().size();
    f(uses_[endpoints + 2 * static_cast<std::size_t>(message.from)]);
    f(uses_[endpoints + 2 * static_cast<std::size_t>(message.to) + 1]);
  }

  const Topology& topology_;
  const bool busy_endpoints_;
  std::vector<Use> uses_;     // by link, then each endpoint's for what it sends and for what it receives
  Holder* holder_ = nullptr;  // of all holds
  std::size_t holds_ = 0;
  FlowObserver* observer_ = nullptr;
  EventQueue<Event> stages_;
  // By link, where words wait: bytes of messages that are with their sender's host, as far as they count; messages that
  // pass.
  std::vector<double> ready_;
  std::vector<std::uint32_t> passing_;
  std::vector<std::vector<Picoseconds>> host_free_;  // [hosts][processors] when
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::deque<Passing>>
      connections_;             // in use: who waits
  std::vector<Delivery> done_;  // at the time in hand
  std::uint64_t events_ = 0;
};

}  // namespace prism::simulate
