// Whom each part of a communication waited for, from the times of an execution alone.
#pragma once
#include <cstdint>
#include <vector>

#include "replay/execution.hpp"
#include "replay/job.hpp"

namespace prism::engine {

class Holds {
 public:
  Holds(const Job& job, const Execution& execution);

  // When the part was there for its peers: taken up by a worker of its backend, a message: issued. INT64_MIN: never.
  std::int64_t arrival_ns(std::uint32_t entry) const { return arrival_ns_[entry]; }
  // The part that came last of those that this one needs; itself, where no other came later.
  std::uint32_t holder(std::uint32_t entry) const;
  // Where all workers were at other collectives of the group: the one whose end let this one be taken up; else kNone.
  std::uint32_t freed_by(std::uint32_t entry) const { return freed_by_[entry]; }
  // Of a message: its other end; kNone where that is not in the graph.
  std::uint32_t partner(std::uint32_t entry) const { return partner_[entry]; }

 private:
  void take_up(int rank);

  const Job& job_;
  const Execution& execution_;
  std::vector<std::int64_t> arrival_ns_;           // [entries]
  std::vector<std::uint32_t> freed_by_, partner_;  // [entries]
  std::vector<std::uint32_t> last_;                // [collectives] entry; of several the lowest rank's
};

}  // namespace prism::engine
