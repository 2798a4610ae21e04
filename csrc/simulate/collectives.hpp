// Collectives under way on a network: who is in which step, and which messages are between them.
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "simulate/network.hpp"
#include "simulate/schedule.hpp"

namespace prism::simulate {

class Collectives {
 public:
  struct Done {
    std::uint32_t run;
    std::int32_t member;
    Picoseconds at;
  };

  explicit Collectives(Network& network) : network_(network) {}

  // `endpoints`: by group rank. The number is used again once every member is done.
  std::uint32_t begin(std::unique_ptr<Schedule> schedule, std::vector<std::int32_t> endpoints);
  // The member comes at `at`; at once done where the schedule has no steps. Errors as of Network::send().
  Result<void> enter(std::uint32_t run, int member, Picoseconds at, std::vector<Done>& done);
  // Of a message that is one of ours: its id has kMark.
  Result<void> delivered(const Delivery& delivery, std::vector<Done>& done);
  std::uint64_t messages() const { return sent_; }

  static constexpr std::uint64_t kMark = std::uint64_t{1} << 63;

 private:
  struct Member {
    int step = -1;        // not come yet
    int outstanding = 0;  // of its own messages and of those to it, in this step
  };
  struct Run {
    std::unique_ptr<Schedule> schedule;
    std::vector<std::int32_t> endpoints;
    std::vector<Member> members;
    std::unordered_map<std::uint64_t, int> early;  // (member, step) -> messages that came before the member got there
    int left = 0;                                  // members that are not done
  };
  struct InFlight {
    std::uint32_t run;
    std::int32_t from, to, step;
  };
  Result<void> go_on(std::uint32_t run, int member, Picoseconds at, std::vector<Done>& done);
  Result<void> begin_step(std::uint32_t run, int member, Picoseconds at);

  Network& network_;
  std::vector<Run> runs_;
  std::vector<std::uint32_t> free_runs_;
  std::vector<InFlight> in_flight_;
  std::vector<std::uint32_t> free_messages_;
  std::vector<Send> sends_;
  std::uint64_t sent_ = 0;
};

// One collective alone on a network, all members at once.
struct CollectiveTime {
  Picoseconds time = 0;  // until the last member is done
  std::uint64_t messages = 0, events = 0;
};
// Steps that repeat are simulated once, where all members end them at the same time.
Result<CollectiveTime> time_of_collective(const Topology& topology, Network& network,
                                          std::unique_ptr<Schedule> schedule);

}  // namespace prism::simulate
