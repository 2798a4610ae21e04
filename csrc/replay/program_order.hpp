// The nodes of a class in an order, and in iterations, that do not depend on how the times of its lanes interleave.
#pragma once
#include <cstdint>
#include <vector>

#include "replay/job.hpp"

namespace prism::engine {

// Each behind all that it depends on (Kahn's algorithm).
std::vector<std::uint32_t> in_order(const ClassPlan& plan);
// [nodes] A node belongs to the iteration of the latest mark that it depends on, in program order and through
// hand-overs between lanes; to -1 before the first mark, and on a lane to which nothing is handed over.
std::vector<int> iterations_by_cause(const ClassView& view, const ClassPlan& plan);

}  // namespace prism::engine
