// How long each member's part of each communication takes once it can start: facts of the record, or a closed form.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "replay/job.hpp"
#include "replay/replay.hpp"

namespace prism::engine {

// What waits last beyond the end of what they wait for: what the record has between the end of the last transfer waited
// for and the end of the wait; all of it where nothing had to be waited for.
class WakeUps {
 public:
  WakeUps() = default;
  // From when each transfer ended in the record.
  WakeUps(const Job& job, const std::vector<std::int64_t>& recorded_end_ns);
  // `wait`: ClassPlan::wait_number.
  std::int64_t operator()(int rank, std::uint32_t wait) const {
    return first_.empty() || first_[rank] == kNone ? 0 : ns_[std::size_t{first_[rank]} + wait];
  }

 private:
  std::vector<std::uint32_t> first_;  // [world size] of ns_; kNone: none of the rank's waits takes any time
  std::vector<std::int64_t> ns_;
};

struct ServiceTimes {
  std::vector<std::int64_t> duration_ns;  // [entries]
  // [entries], timed graphs: when each transfer ended in the record, as far as can be known.
  std::vector<std::int64_t> recorded_end_ns;
  WakeUps wake_ups;  // of timed graphs
  std::vector<std::string> notes;
};

// Recorded graphs: end - start, where start follows from the recorded issues of all members by the progress model's own
// rule. With clocks that cannot be compared: the least (end - taken up) over the members, which is the last one's.
// Untimed graphs, and slices: ClosedFormLinks.
ServiceTimes service_times(const Job& job, const ClosedFormLinks& links);
// ClosedFormLinks, whether the graph is timed or not.
ServiceTimes closed_form_times(const Job& job, const ClosedFormLinks& links);

}  // namespace prism::engine
