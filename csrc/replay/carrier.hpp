// The seam between the engine, which knows who meets whom and when each part of a communication may start, and what
// says how long it takes: recorded times, or a network that all share.
#pragma once
#include <cstdint>
#include <vector>

#include "core/result.hpp"
#include "replay/in_flight.hpp"
#include "replay/service_times.hpp"

namespace prism::engine {

// Called with times that never go back. What ends is appended to `ended`, then or in a later call, at a time that is
// not before the one in hand; parts that are under way only, each once.
class Carrier {
 public:
  struct Ended {
    std::uint32_t part;
    std::int64_t at_ns;
  };
  virtual ~Carrier() = default;
  // Before all others: what the numbers of parts and meetings mean. It outlives the carrier's use.
  void attach(const InFlight& in_flight) { in_flight_ = &in_flight; }
  // A backend's worker has taken up a member's part in a collective.
  virtual void came(std::uint32_t, std::int64_t, std::vector<Ended>&) {}
  // The same, where the rule is not the last member's: it may have to wait for others to start.
  virtual void taken_up(std::uint32_t, std::int64_t, std::vector<Ended>&) {}
  // A receive has been posted: its sender will hear of it.
  virtual void posted(std::uint32_t, std::int64_t) {}
  // It can start, by the rule of the progress model.
  virtual void start(std::uint32_t part, std::int64_t at_ns, std::vector<Ended>& ended) = 0;
  // The same of all members that are in the graph, by the last member's rule.
  virtual void start_all(std::uint32_t meeting, std::int64_t at_ns, std::vector<Ended>& ended) {
    const Meeting& all = in_flight_->meeting(meeting);
    for (std::uint32_t m = 0; m < all.size; ++m)
      if (const auto part = in_flight_->member(all, m); is_entry(part)) start(part, at_ns, ended);
  }
  // Both ends of a message are there. kNone: the end is on a rank that is not in the graph.
  virtual void start_message(std::uint32_t send, std::uint32_t receive, std::int64_t at_ns,
                             std::vector<Ended>& ended) = 0;
  // All members of a collective that are in the graph are done: its number will be another's.
  virtual void over(std::uint32_t /*meeting*/) {}
  // Lets time go on until just before `until_ns`, but not beyond the first moment at which something ends. The first
  // error of any call comes out here.
  virtual Result<void> advance(std::int64_t /*until_ns*/, std::vector<Ended>&) { return {}; }
  // The clock goes back to the beginning, for ranks that have nothing to do with those before.
  virtual Result<void> start_over() { return {}; }
  // Whether something will never end because that is later than the clock can show.
  virtual bool overdue() const { return false; }

 protected:
  const InFlight* in_flight_ = nullptr;
};

// Each part takes the time that the record, or a closed form, has for it, whatever else is under way.
class FixedTimes final : public Carrier {
 public:
  explicit FixedTimes(const ServiceTimes& service) : service_(service) {}
  void start(std::uint32_t part, std::int64_t at_ns, std::vector<Ended>& ended) override {
    const Part& own = (*in_flight_)[part];
    ended.push_back({part, at_ns + service_.duration_ns[in_flight_->job().ranks[own.rank].entry_base + own.comm]});
  }
  void start_message(std::uint32_t send, std::uint32_t receive, std::int64_t at_ns,
                     std::vector<Ended>& ended) override {
    for (const auto part : {send, receive})
      if (part != kNone) start(part, at_ns, ended);
  }

 private:
  const ServiceTimes& service_;
};

}  // namespace prism::engine
