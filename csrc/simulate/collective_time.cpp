// One collective alone.
#include <algorithm>
#include <string>
#include <utility>

#include "simulate/collectives.hpp"

namespace prism::simulate {
namespace {

// The first `steps` steps of another schedule, from `first` on.
class Part final : public Schedule {
 public:
  Part(const Schedule& whole, int first, int steps) : whole_(whole), first_(first), steps_(steps) {}
  int members() const override { return whole_.members(); }
  int steps() const override { return steps_; }
  int lanes() const override { return whole_.lanes(); }
  int part(int member, int step, std::vector<Send>& sends) const override {
    return whole_.part(member, first_ + step, sends);
  }
  int alike(int step) const override { return std::min(whole_.alike(first_ + step), steps_ - step); }

 private:
  const Schedule& whole_;
  int first_, steps_;
};

struct Ran {
  Picoseconds last = 0;
  bool together = true;  // all members ended at the same time
  std::uint64_t messages = 0;
};

Error too_long() { return {ErrorCode::kInvalidInput, "the collective takes longer than " + clock_range()}; }

Result<Ran> run(Network& network, const Schedule& whole, int first, int steps, Picoseconds at) {
  Collectives collectives(network);
  std::vector<std::int32_t> endpoints(static_cast<std::size_t>(whole.members()));
  for (std::size_t i = 0; i < endpoints.size(); ++i) endpoints[i] = static_cast<std::int32_t>(i);
  const auto manner = whole.lanes() > 1 ? Manner::kBuffered : Manner::kInSteps;
  const auto number = collectives.begin(std::make_unique<Part>(whole, first, steps), std::move(endpoints), manner);
  std::vector<Collectives::Done> done;
  for (int member = 0; member < whole.members(); ++member)
    PRISM_RETURN_IF_ERROR(collectives.enter(number, member, at, done));
  Ran ran;
  std::vector<Delivery> delivered;
  while (network.next() != kNever || collectives.next() != kNever) {
    delivered.clear();
    PRISM_RETURN_IF_ERROR(network.advance(collectives.next(), delivered));
    for (const auto& one : delivered) PRISM_RETURN_IF_ERROR(collectives.delivered(one, done));
    if (delivered.empty()) collectives.advance(collectives.next(), done);
  }
  if (collectives.under_way()) return too_long();
  ran.messages = collectives.messages();
  ran.last = at;
  for (const auto& one : done) {
    ran.together &= one.at == done.front().at;
    ran.last = std::max(ran.last, one.at);
  }
  return ran;
}

}  // namespace

Result<CollectiveTime> time_of_collective(const Topology& topology, Network& network,
                                          std::unique_ptr<Schedule> schedule) {
  if (schedule->members() > topology.endpoints())
    return Error{ErrorCode::kInvalidInput, "a collective of " + std::to_string(schedule->members()) +
                                               " members on a network of " + std::to_string(topology.endpoints()) +
                                               "; accepted: not more members than endpoints"};
  CollectiveTime total;
  Picoseconds clock = 0;  // the network's; its idle time in between does not count
  const auto simulate = [&](int step, int steps) -> Result<Ran> {
    PRISM_ASSIGN_OR_RETURN(auto ran, run(network, *schedule, step, steps, clock));
    ran.last -= std::exchange(clock, ran.last);  // how long it took
    return ran;
  };
  const bool repeats = !network.has_memory();
  for (int step = 0; step < schedule->steps();) {
    int steps = repeats ? schedule->alike(step) : 1, times = steps;
    Ran ran{0, false};
    if (steps > 1) {
      PRISM_ASSIGN_OR_RETURN(ran, simulate(step, 1));
    }
    if (!ran.together) {  // then no step waits for the slowest of the one before
      steps = schedule->steps() - step;
      times = 1;
      PRISM_ASSIGN_OR_RETURN(ran, simulate(step, steps));
    }
    if (ran.last > (kLatest - total.time) / times) return too_long();
    total.time += ran.last * times;
    total.messages += ran.messages * static_cast<std::uint64_t>(times);
    step += steps;
  }
  total.events = network.events();
  total.packets = network.packets();
  return total;
}

}  // namespace prism::simulate
