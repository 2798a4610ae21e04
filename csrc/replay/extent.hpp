// How late an execution can come, whatever waits for what: a file may say anything of its times.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "core/result.hpp"
#include "replay/edits.hpp"
#include "replay/job.hpp"
#include "replay/service_times.hpp"

namespace prism::engine {

class Extent {
 public:
  // Where its lanes start; what is on them follows.
  void begins(const Job& job, int rank) {
    for (const auto node : job.plan(rank).lane_first)
      if (node != kNone) latest_start_ = std::max(latest_start_, static_cast<double>(job.timing(rank).start_ns[node]));
  }
  void takes(std::span<const std::int64_t> duration_ns) {
    for (const auto duration : duration_ns) sum_ += static_cast<double>(duration);
  }
  void takes(double duration_ns) { sum_ += duration_ns; }
  // Half of what 64 bits hold, so that two such sums may be added.
  Result<void> check() const {
    if (latest_start_ + sum_ < 4e18) return {};
    return Error{ErrorCode::kInvalidInput, "the times of the trace add up to more than 4e18 ns (126 years)"};
  }

 private:
  double latest_start_ = 0, sum_ = 0;
};

// Of an execution with these durations and transfers. On a network the carrier sees to the transfers' times.
inline Result<void> check_extent(const Job& job, const Durations& durations, const ServiceTimes& service) {
  Extent extent;
  for (int rank = 0; rank < static_cast<int>(job.ranks.size()); ++rank) {
    if (job.ranks[rank].cls < 0) continue;
    extent.begins(job, rank);
    extent.takes(durations[rank]);
  }
  extent.takes(service.duration_ns);
  return extent.check();
}

}  // namespace prism::engine
