// From a finished replay to the figures that people read.
#pragma once
#include <algorithm>
#include <span>

#include "replay/execution.hpp"
#include "replay/replay.hpp"

namespace prism::engine {

// Where the iterations of a class begin, each with a mark, and where the last one ends, if no mark ends it: with the
// node `last`, which lasts no longer than `model`, the node in its place in the iteration before (kNone: than itself).
struct IterationPlan {
  std::span<const std::uint32_t> marks;
  std::uint32_t last = kNone, model = kNone;
  std::size_t count() const { return marks.empty() ? 0 : marks.size() - 1 + (last != kNone); }
};
IterationPlan iteration_plan(const ClassView& view, const ClassPlan& plan);

// How long iteration i lasted on one rank, from when its nodes start and how long they last.
template <typename Start, typename Duration>
std::int64_t iteration_time(const IterationPlan& plan, std::size_t i, Start&& start, Duration&& duration) {
  const auto begin = start(plan.marks[i]);
  if (i + 1 < plan.marks.size()) return start(plan.marks[i + 1]) - begin;
  const auto own = duration(plan.last);
  return start(plan.last) + (plan.model == kNone ? own : std::min(own, duration(plan.model))) - begin;
}

ReplayReport make_report(const Job& job, Execution execution, bool with_analysis = false);

}  // namespace prism::engine
