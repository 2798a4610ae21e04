// What a timeline says beyond the times of its nodes: what each iteration's time is made of, and who came late.
#pragma once
#include <cstdint>
#include <vector>

#include "core/vocabulary.hpp"

namespace prism {

struct Analysis {
  // The critical path of each iteration across ranks, from its begin on the rank that took longest to its end there:
  // what held each node up, and so on. Iteration after iteration, in order of time; start of one = end of the one
  // before, so that the durations of an iteration sum to its time. Nothing on it waits: where a rank waited, the path
  // is on the transfer, then on whoever came last. A node that the path enters or leaves midway counts with that part.
  static constexpr std::uint32_t kNotStarted = 0xffffffffu;  // in place of a node: the rank's record begins only later
  struct Path {
    std::vector<std::int32_t> iteration, rank;
    std::vector<std::uint32_t> node;
    std::vector<std::int64_t> start_ns, duration_ns;
  } path;
  // One entry a collective of which any part has ended, in order of group and sequence number; of members that are in
  // the graph and came.
  struct Collectives {
    std::vector<std::uint32_t> group, members;
    std::vector<std::int64_t> seq, bytes;  // bytes: the most that one member puts in or gets out
    std::vector<Op> op;
    std::vector<std::int32_t> late_rank;         // came last (of several the lowest)
    std::vector<std::int32_t> late_comm;         // its number there
    std::vector<std::int64_t> late_by_ns;        // after the last but one
    std::vector<std::int64_t> waited_ns;         // by all members together, until their parts could start
    std::vector<std::int64_t> start_ns, end_ns;  // the last one's coming, and the last one's end
  } collectives;
  // [world size] One entry a communication of the rank: when its part could start (INT64_MIN: never, somebody did not
  // come and nobody waited), and what the rank waited until then.
  struct Parts {
    std::vector<std::int64_t> start_ns, waited_ns;
  };
  std::vector<Parts> parts;
};

}  // namespace prism
