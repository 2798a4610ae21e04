// What the lanes of a rank class do, step after step, so that a rank needs no more than a cursor on each.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/vocabulary.hpp"
#include "graph/graph.hpp"

namespace prism::engine {

struct ClassPlan;

// What of a class is repeated; found by PeriodFinder.
struct Period {
  enum Region : std::uint8_t { kBefore, kRepeated, kAfter };
  std::vector<Region> region;            // [nodes]
  std::vector<std::uint32_t> before;     // [nodes] the same in the period before; kNone: none, or it is not repeated
  std::vector<bool> carried;             // [ClassPlan::in.to] it needs in each round what is from the round before
  std::vector<std::uint32_t> iteration;  // [nodes] of those that are repeated: in the period
  std::vector<std::uint32_t> place;      // [nodes] of those on lanes that are repeated: in its iteration
  // Nodes: a last span in which the program also leaves its loop, and the one in its place before; or kNone.
  std::uint32_t open_span = 0xffffffffu, open_model = 0xffffffffu;
};

enum class StepKind : std::uint8_t { kCompute, kIssue, kWait, kEnd };

struct Step {
  std::uint32_t node = 0;
  std::uint32_t sources = 0;        // ends that it needs; of nodes before it on its lane only those of transfers
  std::uint32_t sources_again = 0;  // the same in rounds beyond the record
  std::uint32_t first_target = 0;   // of ClassProgram::targets; up to the next step's
  std::uint32_t first_post = 0;     // of ClassProgram::posts, which an issue starts
  std::uint32_t place = 0;          // spans and issues: Period::place; waits: ClassPlan::wait_number
  StepKind kind = StepKind::kEnd;
  bool at_once = false;           // nothing that it needs can have ended when its lane gets there
  bool repeated = false;          // in the period
  bool ends_round = false;        // the last one of the period on its lane
  bool begins_iteration = false;  // of the period, on its lane
  std::uint16_t iteration = 0;    // in the period
};

// Who needs a node's end.
struct Target {
  enum When : std::uint8_t { kSameRound, kNextRound, kAfterLast };
  std::uint32_t step;
  std::uint16_t lane;
  When when;
};

// A communication of a class, in one line of the cache.
struct alignas(64) CommPlan {
  std::int64_t seq = 0;
  std::int64_t input_bytes = 0, output_bytes = 0;
  std::uint32_t transfer = 0;      // node, or kNone
  std::uint32_t first_target = 0;  // up to the next one's
  std::uint32_t group = 0;         // slot
  std::int32_t peer = -1;          // messages: slot, -1: any source; rooted: root's group rank
  std::int32_t tag = 0;
  std::uint32_t issues = 0;         // nodes that issue it; the first one does
  std::uint32_t ordinal = 0;        // among the communications of its lane
  std::uint32_t seq_per_round = 0;  // how far the numbers of its kind go on in a period; 0 before it
  std::uint16_t lane = 0;           // of its transfer
  Op op = Op::kNone;
  Period::Region region = Period::kBefore;
  std::int64_t bytes() const { return std::max(input_bytes, output_bytes); }
};

struct LanePlan {
  std::uint32_t first = 0;                         // step
  std::uint32_t period_first = 0, period_end = 0;  // steps; equal: none
  std::uint32_t comms_per_round = 0;
};

struct ClassProgram {
  std::vector<Step> steps;  // lane after lane, each with a kEnd
  std::vector<LanePlan> lanes;
  std::vector<Target> targets;
  std::vector<std::uint32_t> posts;  // communications
  std::vector<CommPlan> comms;       // and one more, for its first_target
  std::span<const Target> targets_of(const Step& step) const {
    return {targets.data() + step.first_target, targets.data() + (&step)[1].first_target};
  }
  std::span<const Target> targets_of(const CommPlan& comm) const {
    return {targets.data() + comm.first_target, targets.data() + (&comm)[1].first_target};
  }
  std::span<const std::uint32_t> posts_of(const Step& step) const {
    return {posts.data() + step.first_post, posts.data() + (&step)[1].first_post};
  }
  std::size_t bytes() const;
};

// `period`: nullptr where the record is all there is.
ClassProgram compile(const ClassView& view, const ClassPlan& plan, const Period* period);

}  // namespace prism::engine
