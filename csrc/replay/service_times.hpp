// How long each member's part of each communication takes once it can start: facts of the record, or a closed form.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "replay/job.hpp"
#include "replay/replay.hpp"

namespace prism::engine {

struct ServiceTimes {
  std::vector<std::int64_t> duration_ns;  // [entries]
  // [entries], timed graphs: when each transfer ended in the record, as far as can be known. What a wait lasted beyond
  // that belongs to the wait.
  std::vector<std::int64_t> recorded_end_ns;
  std::vector<std::string> notes;
};

// Recorded graphs: end - start, where start follows from the recorded issues of all members by the progress model's own
// rule. With clocks that cannot be compared: the least (end - taken up) over the members, which is the last one's.
// Untimed graphs, and slices: ClosedFormLinks.
ServiceTimes service_times(const Job& job, const ClosedFormLinks& links);
// ClosedFormLinks, whether the graph is timed or not.
ServiceTimes closed_form_times(const Job& job, const ClosedFormLinks& links);

}  // namespace prism::engine
